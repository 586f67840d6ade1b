// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/operatortest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// Addresses of pods: the API server only knows them as texts.
const (
	victimPod   = "10.1.0.5"
	attackerPod = "10.1.0.66"
	nodeIP      = "10.99.0.2"
)

var config *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, &config, testenv.WithControllers("endpointslice"), testenv.WithMultiClusterKinds()))
}

// world is a cluster with an exporter, a team that exports its Service, and a user of another
// namespace.
type world struct {
	*operatortest.World
	mallory   client.Client // has the rights that an editor of namespace self would have, and more
	victim    string        // a namespace
	self      string        // mallory's
	backend   string        // of the account
	stop      func()
	pods      map[string]string // address of a pod -> where it listens
	dialsLock sync.Mutex
	dialed    map[string]bool
}

// newWorld starts all of it.
func newWorld(t *testing.T, change ...func(*exporter.Options)) *world {
	t.Helper()
	w := &world{World: operatortest.New(t, config, servicetest.Start(t)), dialed: map[string]bool{}}
	w.victim, w.self = w.Target, w.Kube.CreateNamespace("mallory-")
	w.backend = w.Service.Tenant().Answer(200, "of the account")
	w.pods = map[string]string{
		victimPod + ":8080":   servicetest.ServeHTTP(t, answer("victim")),
		attackerPod + ":8080": servicetest.ServeHTTP(t, answer("mallory")),
	}
	w.impersonate()
	w.pod(w.victim, "victim", victimPod)
	w.pod(w.self, "honest", attackerPod)
	w.run(change...)
	return w
}

func answer(body string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(body)) }
}

// impersonate gives mallory every right in the namespace that concerns an exporter.
func (w *world) impersonate() {
	w.Helper()
	all := []string{"*"}
	editor := metav1.ObjectMeta{Namespace: w.self, Name: "editor"}
	w.Kube.MustCreate(&rbacv1.Role{ObjectMeta: editor, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"services", "configmaps", "endpoints", "secrets"}, Verbs: all},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: all},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"agentendpoints", "cloudendpoints"},
			Verbs: all},
		{APIGroups: []string{"multicluster.x-k8s.io"}, Resources: []string{"serviceexports"}, Verbs: all},
	}})
	user := "mallory-" + w.self
	w.Kube.MustCreate(&rbacv1.RoleBinding{ObjectMeta: editor,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "editor"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}})
	c := rest.CopyConfig(config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user}
	var err error
	w.mallory, err = client.New(c, client.Options{})
	must.Succeed(w, err)
}

// pod makes a pod that is ready, and a Service of it with port 8080.
func (w *world) pod(namespace, name, ip string) {
	w.Helper()
	w.Kube.CreatePod(namespace, name, ip)
	w.Kube.CreateService(namespace, name, name, 8080)
}

// run runs an exporter until stop, or the end of the test.
func (w *world) run(change ...func(*exporter.Options)) {
	w.Helper()
	own := func(o *exporter.Options) {
		o.AllowNamespaces, o.DialUpstream = []string{w.victim, w.self}, w.dial
		o.Namespace = w.Kube.CreateNamespace("fairlead-") // with a Lease of its own
	}
	w.stop = w.StartExporter(w.ExporterKey(), append([]func(*exporter.Options){own}, change...)...)
}

// dial connects with a pod, and records which.
func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.dialsLock.Lock()
	w.dialed[address] = true
	w.dialsLock.Unlock()
	to, ok := w.pods[address]
	if !ok {
		return nil, fmt.Errorf("nothing listens at %s", address)
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

// takeDials returns the addresses that the exporter dialed since the last call.
func (w *world) takeDials() []string {
	w.dialsLock.Lock()
	defer w.dialsLock.Unlock()
	taken := slices.Sorted(maps.Keys(w.dialed))
	clear(w.dialed)
	return taken
}

// replaced returns the text with the names of the world.
func (w *world) replaced(text string) string {
	return strings.NewReplacer("$VICTIM", w.victim, "$SELF", w.self, "$BACKEND", w.backend, "$VICTIMPOD", victimPod,
		"$NODE", nodeIP).Replace(text)
}

// apply creates the objects of a YAML text in the namespace, with their API versions, and returns
// the last one.
func (w *world) apply(as client.Client, namespace, text string) (o *unstructured.Unstructured, err error) {
	w.Helper()
	versions := map[string]string{"Service": "v1", "ConfigMap": "v1", "EndpointSlice": "discovery.k8s.io/v1",
		"ServiceExport": "multicluster.x-k8s.io/v1beta1"}
	for doc := range strings.SplitSeq(w.replaced(text), "\n---\n") {
		o = &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(doc), &o.Object); err != nil {
			w.Fatalf("%v in\n%s", err, doc)
		}
		o.SetAPIVersion(versions[o.GetKind()])
		if o.GetAPIVersion() == "" {
			o.SetAPIVersion(v1alpha1.GroupVersion.String())
		}
		o.SetNamespace(namespace)
		if err := as.Create(w.Context(), o); err != nil {
			return o, err
		}
	}
	return o, nil
}

// condition returns "Status Reason" and the message of a condition.
func (w *world) condition(o *unstructured.Unstructured, typ string) (statusAndReason, message string) {
	w.Helper()
	must.Succeed(w, w.Kube.Get(w.Context(), client.ObjectKeyFromObject(o), o))
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	text, err := o.MarshalJSON()
	if err == nil {
		err = yaml.Unmarshal(text, &status)
	}
	must.Succeed(w, err)
	c := meta.FindStatusCondition(status.Status.Conditions, typ)
	if c == nil || c.ObservedGeneration != o.GetGeneration() {
		return "", ""
	}
	return string(c.Status) + " " + c.Reason, c.Message
}

// expect waits for a condition, such as "Accepted False UpstreamNotAllowed", whose message has the
// parts.
func (w *world) expect(o *unstructured.Unstructured, want string, parts ...string) {
	w.Helper()
	typ, statusAndReason, _ := strings.Cut(want, " ")
	deadline := time.Now().Add(time.Minute)
	for {
		got, message := w.condition(o, typ)
		missing := ""
		for _, part := range parts {
			if part = w.replaced(part); !strings.Contains(message, part) {
				missing = part
			}
		}
		if got == statusAndReason && missing == "" {
			return
		}
		if time.Now().After(deadline) {
			w.Errorf("%s %s: %s is %s: %q, want %s with %q", o.GetKind(), o.GetName(), typ, got, message,
				statusAndReason, missing)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// endpoints returns the account's endpoints that objects of a namespace own.
func (w *world) endpoints(namespace string) (own []account.Endpoint) {
	w.Helper()
	var list struct {
		Endpoints []account.Endpoint `json:"endpoints"`
	}
	if status := w.Service.CallAPI(http.MethodGet, "/endpoints?limit=1000", nil, &list); status != http.StatusOK {
		w.Fatalf("listing endpoints: status %d", status)
	}
	for _, e := range list.Endpoints {
		if e.Owner != nil && e.Owner.Namespace == namespace {
			own = append(own, e)
		}
	}
	return own
}

// pollInterval keeps a test within the rate that the API admits.
const pollInterval = 100 * time.Millisecond

// get calls an endpoint as a pod of another cluster does.
func (w *world) get(f *servicetest.Forwarder, e *account.Endpoint) (status int, body string) {
	w.Helper()
	return f.Get(tunnel.Bound{EndpointID: e.ID, URL: e.URL})
}

// waitGet waits until a call of a URL answers with the body.
func (w *world) waitGet(f *servicetest.Forwarder, namespace, url, body string) {
	w.Helper()
	wait.Until(w, url+" answering "+body, func() bool {
		time.Sleep(pollInterval)
		for _, e := range w.endpoints(namespace) {
			if e.URL == url && e.Status == account.StatusOnline {
				_, got := w.get(f, &e)
				return got == body
			}
		}
		return false
	})
}
