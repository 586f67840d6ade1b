// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudendpoint_test

import (
	"context"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/cloudendpoint"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/policy"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// config is the API server that the tests share, apart by namespace.
var config *rest.Config

func TestMain(m *testing.M) { os.Exit(testenv.Run(m, &config)) }

// harness is a namespace, a service with a key of its cluster, and reconcilers of the two.
type harness struct {
	*testing.T
	service   *servicetest.Server
	kube      *testenv.Kube
	namespace string
	cluster   string // what the namespace says is its cluster
	account   *recorder
	events    *events.FakeRecorder

	reconciler *cloudendpoint.Reconciler
	follower   atomic.Bool // another replica holds the Lease
	stop       func()
}

// newHarness starts a service and a reconciler whose key has the rules; none: the default.
func newHarness(t *testing.T, acl ...string) *harness {
	t.Helper()
	h := newNamespace(t, servicetest.Start(t), acl...)
	h.start()
	return h
}

// newNamespace returns a namespace, with a key of its own of the service, and starts nothing.
func newNamespace(t *testing.T, service *servicetest.Server, acl ...string) *harness {
	t.Helper()
	h := &harness{T: t, service: service, kube: testenv.NewKube(t, config)}
	h.namespace = h.kube.CreateNamespace("team-")
	var ns corev1.Namespace
	if err := h.kube.Get(t.Context(), client.ObjectKey{Name: h.namespace}, &ns); err != nil {
		t.Fatal(err)
	}
	h.cluster = string(ns.UID)
	fields := map[string]any{"scopes": []string{"exporter"}, "cluster_uid": h.cluster}
	if len(acl) > 0 {
		fields["acl"] = acl
	}
	var key account.APIKey
	service.CreateObject("/api_keys", fields, &key)
	api, err := apiclient.New(apiclient.Options{BaseURL: "https://" + service.Addrs.Service.String(),
		TLS: service.ClientTLS(), APIKey: func() (string, error) { return *key.Token, nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.CloseIdleConnections)
	h.account = &recorder{API: accountclient.New(api)}
	return h
}

// Cluster and Leading implement accountclient.Replica.
func (h *harness) Cluster() string { return h.cluster }
func (h *harness) Leading() bool   { return !h.follower.Load() }

// start runs a new reconciler in a manager until stop, or the end of the test.
func (h *harness) start() {
	h.Helper()
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: h.kube.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{h.namespace: {}}},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}}},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		h.Fatal(err)
	}
	h.events = events.NewFakeRecorder(100)
	h.reconciler = cloudendpoint.New(cloudendpoint.Options{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Account: h.account,
		Policies: policy.New(policy.Options{Metadata: mgr.GetClient(), Live: mgr.GetAPIReader()}),
		URLs:     h, Replica: h, Recorder: h.events, Clock: clock.RealClock{},
	})
	if err := cloudendpoint.Index(h.Context(), mgr.GetFieldIndexer()); err != nil {
		h.Fatal(err)
	}
	if err := h.reconciler.SetupWithManager(mgr); err != nil {
		h.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	h.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			h.Error(err)
		}
	})
	h.Cleanup(h.stop)
}

// CheckURL admits what the exporter admits by default.
func (h *harness) CheckURL(namespace, binding, url string) (account.EndpointURL, string) {
	u, err := account.ParseBindingURL(binding, url)
	if err != nil {
		return u, "spec.url: " + account.FirstRule(err)
	}
	if binding == account.BindingKubernetes && !strings.HasSuffix(u.Host, "."+namespace) {
		return u, "spec.url is of another namespace"
	}
	return u, ""
}

// recorder records the calls of the account's API.
type recorder struct {
	accountclient.API

	mu    sync.Mutex
	calls []string
	// before and after return the error of a call instead of making it, and after it was made; nil:
	// none.
	before, after func(call string) error
}

func (r *recorder) record(call string) (before, after func(string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	none := func(string) error { return nil }
	before, after = none, none
	if r.before != nil {
		before = r.before
	}
	if r.after != nil {
		after = r.after
	}
	return before, after
}

// set changes what fails.
func (r *recorder) set(before, after func(string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.before, r.after = before, after
}

// take returns the calls since the last one.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.calls
	r.calls = nil
	return taken
}

// peek returns the calls since the last take.
func (r *recorder) peek() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func recorded[T any](r *recorder, call string, do func() (T, error)) (result T, err error) {
	before, after := r.record(call)
	if err := before(call); err != nil {
		return result, err
	}
	made, err := do()
	if failed := after(call); failed != nil {
		return result, failed
	}
	return made, err
}

func (r *recorder) Endpoint(ctx context.Context, id string) (*account.Endpoint, error) {
	return recorded(r, "GET", func() (*account.Endpoint, error) { return r.API.Endpoint(ctx, id) })
}

func (r *recorder) ListEndpoints(
	ctx context.Context, f account.EndpointFilter,
) (*apiclient.EndpointSnapshot, error) {
	return recorded(r, "LIST", func() (*apiclient.EndpointSnapshot, error) { return r.API.ListEndpoints(ctx, f) })
}

func (r *recorder) CreateEndpoint(ctx context.Context, e account.Endpoint) (*account.Endpoint, error) {
	return recorded(r, "POST", func() (*account.Endpoint, error) { return r.API.CreateEndpoint(ctx, e) })
}

func (r *recorder) PatchEndpoint(
	ctx context.Context, id string, p account.EndpointPatch, owner *account.Owner,
) (*account.Endpoint, error) {
	return recorded(r, "PATCH", func() (*account.Endpoint, error) { return r.API.PatchEndpoint(ctx, id, p, owner) })
}

func (r *recorder) DeleteEndpoint(ctx context.Context, id string) error {
	_, err := recorded(r, "DELETE", func() (struct{}, error) { return struct{}{}, r.API.DeleteEndpoint(ctx, id) })
	return err
}

// url returns the URL of a name in the namespace.
func (h *harness) url(name string) string { return "http://" + name + "." + h.namespace }

// create makes a CloudEndpoint with the URL of its name, unless the spec has another.
func (h *harness) create(name string, spec v1alpha1.CloudEndpointSpec) *v1alpha1.CloudEndpoint {
	h.Helper()
	if spec.URL == "" {
		spec.URL = h.url(name)
	}
	o := &v1alpha1.CloudEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}, Spec: spec}
	h.kube.MustCreate(o)
	return o
}

// update changes the spec of an object.
func (h *harness) update(o *v1alpha1.CloudEndpoint, change func(*v1alpha1.CloudEndpointSpec)) {
	h.Helper()
	wait.Until(h, "an update without a conflict", func() bool {
		if err := h.kube.Get(h.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			h.Fatal(err)
		}
		change(&o.Spec)
		return h.kube.Update(h.Context(), o) == nil
	})
}

// expect waits until a condition of the object's generation has the status and reason, and its
// message the parts.
func (h *harness) expect(o *v1alpha1.CloudEndpoint, typ, statusAndReason string, parts ...string) {
	h.Helper()
	deadline := time.Now().Add(time.Minute)
	got := ""
	for {
		if err := h.kube.Get(h.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			h.Fatal(err)
		}
		c := meta.FindStatusCondition(o.Status.Conditions, typ)
		missing := ""
		if c != nil && c.ObservedGeneration == o.Generation && o.Status.ObservedGeneration == o.Generation {
			got = string(c.Status) + " " + c.Reason
			for _, part := range parts {
				if !strings.Contains(c.Message, part) {
					missing = part
				}
			}
			if got == statusAndReason && missing == "" {
				return
			}
			got += ": " + c.Message
		}
		if time.Now().After(deadline) {
			h.Fatalf("%s is %q, want %s with %q", typ, got, statusAndReason, parts)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// expectReady waits until the object is ready, and returns its endpoint as an administrator sees
// it.
func (h *harness) expectReady(o *v1alpha1.CloudEndpoint) account.Endpoint {
	h.Helper()
	h.expect(o, v1alpha1.ConditionReady, "True Ready")
	e, found := h.endpoint(o.Status.ID)
	if !found {
		h.Fatalf("the account has no endpoint %q, which the status names", o.Status.ID)
	}
	return e
}

// endpoint reads an endpoint with the administrator's key.
func (h *harness) endpoint(id string) (e account.Endpoint, found bool) {
	h.Helper()
	return e, h.get("/endpoints/"+id, &e) == http.StatusOK
}

// get reads what the API has at the path, as soon as its limit of requests allows.
func (h *harness) get(path string, into any) (status int) {
	h.Helper()
	wait.Until(h, "the API's limit", func() bool {
		status = h.service.CallAPI(http.MethodGet, path, nil, into)
		return status != http.StatusTooManyRequests
	})
	return status
}

// endpoints returns all endpoints of the account.
func (h *harness) endpoints() []account.Endpoint {
	h.Helper()
	var list struct {
		Endpoints []account.Endpoint `json:"endpoints"`
	}
	if status := h.get("/endpoints?limit=1000", &list); status != http.StatusOK {
		h.Fatalf("listing endpoints: status %d", status)
	}
	return list.Endpoints
}

// quiet waits until nothing is called for a second.
func (h *harness) quiet() {
	h.Helper()
	for h.account.take(); ; {
		time.Sleep(time.Second)
		if len(h.account.take()) == 0 {
			return
		}
	}
}
