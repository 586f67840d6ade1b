// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/upstream"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// config is an administrator's of the control plane that the tests share, apart by namespace.
var config *rest.Config

func TestMain(m *testing.M) {
	os.Exit(testenv.Run(m, &config, testenv.WithControllers("namespace", "garbagecollector"),
		testenv.WithMultiClusterKinds()))
}

// world is a service, a namespace of a cluster, and a forwarder of another one.
type world struct {
	*testing.T
	service   *servicetest.Server
	forwarder *servicetest.Forwarder
	tenant    *servicetest.Tenant
	namespace string
	key       string      // of the scope exporter
	network   *podNetwork // of the cluster
	kube      *testenv.Kube
}

func newWorld(t *testing.T, change ...func(map[string]any)) *world {
	t.Helper()
	t.Parallel()
	w := &world{T: t, service: servicetest.Start(t), network: &podNetwork{},
		kube: testenv.NewKube(t, config)}
	w.forwarder, w.tenant = w.service.StartForwarder(), w.service.Tenant()
	w.namespace = w.kube.CreateNamespace("team-")
	body := map[string]any{"scopes": []string{"exporter"}}
	for _, f := range change {
		f(body)
	}
	var key account.APIKey
	w.service.CreateObject("/api_keys", body, &key)
	w.key = *key.Token
	return w
}

// update changes an object, however often it is written meanwhile.
func update[T client.Object](w *world, o T, change func(T)) {
	w.Helper()
	wait.Until(w.T, "an update of "+o.GetName(), func() bool {
		if err := w.kube.Get(w.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			w.Fatal(err)
		}
		change(o)
		return w.kube.Update(w.Context(), o) == nil
	})
}

// podNetwork leads from the addresses of endpoints to this machine.
type podNetwork struct{ routes sync.Map }

func (n *podNetwork) dial(ctx context.Context, network, address string) (net.Conn, error) {
	to, ok := n.routes.Load(address)
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
	}
	return new(net.Dialer).DialContext(ctx, network, to.(string))
}

// podAddress numbers the addresses of all tests.
var podAddress atomic.Int32

// serviceOf creates a Service with a port 80 and an endpoint that answers with the text.
func (w *world) serviceOf(namespace, name, text string) *discoveryv1.EndpointSlice {
	w.Helper()
	w.kube.MustCreate(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "web", Port: 80}}}})
	return w.endpointsOf(namespace, name, text)
}

// endpointsOf creates an EndpointSlice of the Service, with an endpoint that answers with the text.
func (w *world) endpointsOf(namespace, name, text string) *discoveryv1.EndpointSlice {
	w.Helper()
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: name + "-",
			Labels: map[string]string{discoveryv1.LabelServiceName: name,
				discoveryv1.LabelManagedBy: upstream.SliceController}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{w.pod(text)},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("web"), Port: ptr.To[int32](8080)}},
	}
	w.kube.MustCreate(s)
	return s
}

// pod returns a ready endpoint that answers port 8080 with the text.
func (w *world) pod(text string) discoveryv1.Endpoint {
	w.Helper()
	n := podAddress.Add(1)
	address := fmt.Sprintf("10.200.%d.%d", n/250, n%250+1)
	w.network.routes.Store(address+":8080", servicetest.ServeHTTP(w.T, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Connection", "close") // each request is dialed
		_, _ = rw.Write([]byte(text))
	}))
	return discoveryv1.Endpoint{Addresses: []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}
}

// export returns an AgentEndpoint of the namespace for the Service, which is not created yet.
func (w *world) export(name, service string) *v1alpha1.AgentEndpoint {
	return &v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1alpha1.AgentEndpointSpec{URL: "http://" + name + "." + w.namespace,
			Upstream: v1alpha1.Upstream{URL: "http://" + service}}}
}

// replica is an exporter of the world's cluster.
type replica struct {
	w       *world
	options exporter.Options
	log     *logbuffer.Buffer
	stop    func() // tells it to stop and waits for its end
	metrics *prometheus.Registry
}

// deployment creates the Deployment of the exporters in a namespace of its own, where their Lease
// is.
func (w *world) deployment() *appsv1.Deployment {
	w.Helper()
	labels := map[string]string{"app": "exporter"}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.kube.CreateNamespace("team-"), Name: "exporter"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "exporter", Image: "exporter"}}}}}}
	w.kube.MustCreate(d)
	return d
}

// start runs an exporter of the Deployment for the world's namespace until the test ends.
func (w *world) start(d *appsv1.Deployment, change ...func(*exporter.Options)) *replica {
	w.Helper()
	key := filepath.Join(w.TempDir(), "key")
	if err := os.WriteFile(key, []byte(w.key+"\n"), 0o600); err != nil {
		w.Fatal(err)
	}
	health, err := freeaddr.Find()
	if err != nil {
		w.Fatal(err)
	}
	edge := w.service.Addrs.Service.String()
	r := &replica{w: w, log: &logbuffer.Buffer{}, metrics: prometheus.NewRegistry()}
	r.options = exporter.Options{
		API: options.API{APIURL: "https://" + edge, Credentials: options.Credentials{SecretFile: key,
			CAFile: filepath.Join(w.service.Options.DataDir, "ca.crt")}, VersionHeader: "Service-Version"},
		Session:       options.Session{EdgeAddress: edge, PodName: "exporter-" + health, DrainTimeout: 3 * time.Second},
		Installation:  installation.Installation{Namespace: d.Namespace, Release: "fairlead"},
		Deployment:    d.Name,
		ObjectOptions: exporter.ObjectOptions{AllowNamespaces: []string{w.namespace}},
		ClusterDomain: "cluster.local",
		Process: options.Process{HealthAddr: health,
			Kubernetes: rest.CopyConfig(config), Logger: slog.New(slog.NewTextHandler(r.log, nil))},
		Metrics: r.metrics, DialUpstream: w.network.dial,
	}
	for _, f := range change {
		f(&r.options)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- exporter.Run(ctx, r.options) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := wait.Receive(w.T, "the exporter's end", ended); err != nil {
			w.Errorf("the exporter ended: %v", err)
		}
	})
	w.Cleanup(func() {
		r.stop()
		if w.Failed() {
			w.Logf("an exporter's log:\n%s", r.log)
		}
	})
	return r
}

// ready waits until the replica is ready.
func (r *replica) ready() *replica {
	r.w.Helper()
	wait.Until(r.w.T, "a ready exporter", func() bool { return r.readyz() == http.StatusOK })
	return r
}

// readyz returns the status of the replica's readiness, 0 while nothing listens.
func (r *replica) readyz() int {
	res, err := http.Get("http://" + r.options.HealthAddr + "/readyz")
	if err != nil {
		return 0
	}
	_ = res.Body.Close()
	return res.StatusCode
}

// rows returns the account's endpoints at the URL, the oldest first.
func (w *world) rows(url string) []account.Endpoint {
	w.Helper()
	page, err := w.tenant.Store.ListEndpoints(w.Context(), w.tenant.Account, account.EndpointFilter{URL: url},
		account.Page{})
	if err != nil {
		w.Errorf("listing endpoints: %v", err)
		return nil
	}
	slices.Reverse(page.Endpoints)
	return page.Endpoints
}

// call requests the URL as a pod of another cluster does, and returns the answer as "<status>
// <body>".
func (w *world) call(url string) string {
	w.Helper()
	rows := w.rows(url)
	if len(rows) == 0 {
		return "no endpoint"
	}
	tr := w.forwarder.Transport(tunnel.Bound{EndpointID: rows[0].ID, URL: rows[0].URL})
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(servicetest.Context(w.T), http.MethodGet, rows[0].URL, nil)
	if err != nil {
		return err.Error()
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", res.StatusCode, body)
}

// expectAnswer waits until the URL is answered with the text.
func (w *world) expectAnswer(url, want string) {
	w.Helper()
	got := ""
	defer func() {
		if got != want {
			w.Logf("%s: the last answer was %q, want %q", url, got, want)
		}
	}()
	wait.Until(w.T, want+" at "+url, func() bool { got = w.call(url); return got == want })
}

// conditions returns the conditions of an AgentEndpoint of the present generation as "Type=Status
// Reason", and reads it.
func (w *world) conditions(o *v1alpha1.AgentEndpoint) map[string]string {
	w.Helper()
	if err := w.kube.Get(w.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		w.Fatal(err)
	}
	found := map[string]string{}
	for _, c := range o.Status.Conditions {
		if c.ObservedGeneration == o.Generation {
			found[c.Type] = string(c.Status) + " " + c.Reason
		}
	}
	return found
}

// expectReady waits until Ready is as given, "True Ready", and returns its message.
func (w *world) expectReady(o *v1alpha1.AgentEndpoint, want string) string {
	w.Helper()
	defer func() {
		if w.Failed() {
			text, _ := json.Marshal(o.Status)
			w.Logf("%s: want Ready %s, the last status was %s", o.Name, want, text)
		}
	}()
	wait.Until(w.T, o.Name+" with Ready "+want, func() bool {
		return w.conditions(o)[v1alpha1.ConditionReady] == want
	})
	return meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady).Message
}

// expectConditions compares all conditions, "True Accepted True Bound True Ready True Ready" in the
// order Accepted, Bound, UpstreamReady, Ready.
func (w *world) expectConditions(o *v1alpha1.AgentEndpoint, want string) {
	w.Helper()
	found := w.conditions(o)
	var all []string
	for _, typ := range []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionBound, v1alpha1.ConditionUpstreamReady,
		v1alpha1.ConditionReady} {
		all = append(all, found[typ])
	}
	if got := strings.Join(all, ", "); got != want {
		w.Errorf("%s: conditions %s, want %s", o.Name, got, want)
	}
}
