// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pires/go-proxyproto"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

const readyEverywhere = "True Accepted, True Bound, True Ready, True Ready"

func TestExporter_ServesAgentEndpoint(t *testing.T) {
	w := newWorld(t)
	r := w.start(w.deployment()).ready()
	w.serviceOf(w.namespace, "api", "hello")
	o := w.export("api", "api")
	w.kube.MustCreate(o)
	w.expectReady(o, "True Ready")
	w.expectAnswer(o.Spec.URL, "200 hello")
	w.expectConditions(o, readyEverywhere)
	row := w.rows(o.Spec.URL)[0]
	if o.Status.ID != row.ID || o.Status.AssignedURL != o.Spec.URL || o.Status.ObservedGeneration != o.Generation {
		t.Errorf("status %+v of endpoint %s", o.Status, row.ID)
	}
	want := account.Owner{Cluster: clusterUID(w), Kind: "AgentEndpoint", Namespace: w.namespace, Name: "api",
		UID: string(o.UID)}
	if row.Owner == nil || *row.Owner != want || row.Type != account.TypeAgent ||
		row.UpstreamURL != "http://api."+w.namespace+".svc" && row.UpstreamURL != "http://api."+w.namespace+".svc:80" {
		t.Errorf("row %+v, owner %+v, want %+v", row, row.Owner, want)
	}
	wait.Until(t, "the event", func() bool { return strings.Join(w.eventReasons(o), " ") == v1alpha1.ReasonReady })
	if n := r.metric("fairlead_exporter_endpoints_bound"); n != 1 {
		t.Errorf("%v endpoints bound", n)
	}
	if n := r.metric("fairlead_exporter_connections_total"); n < 1 {
		t.Errorf("%v connections", n)
	}
	w.kube.MustDelete(o)
	wait.Until(t, "the endpoint's end", func() bool { return len(w.rows(o.Spec.URL)) == 0 })
	wait.Until(t, "the end of its series", func() bool { return r.metric("fairlead_exporter_connections_total") == 0 })
}

// clusterUID returns the UID of the cluster.
func clusterUID(w *world) string {
	w.Helper()
	ns := &corev1.Namespace{}
	if err := w.kube.Get(w.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		w.Fatal(err)
	}
	return string(ns.UID)
}

// eventReasons returns the reasons of the events about an object.
func (w *world) eventReasons(o client.Object) (reasons []string) {
	w.Helper()
	var list eventsv1.EventList
	if err := w.kube.List(w.Context(), &list, client.InNamespace(o.GetNamespace())); err != nil {
		w.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.UID == o.GetUID() {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

// metric returns the sum of a metric's samples.
func (r *replica) metric(name string) (sum float64) {
	r.w.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.w.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// TestExporter_Conditions creates objects that cannot be served, or not yet.
func TestExporter_Conditions(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	w.kube.MustCreate(
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "elsewhere"},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "dns"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolUDP}}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "portless"},
			Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "empty"},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "empty"},
				Ports: []corev1.ServicePort{{Port: 80}}}},
	)
	w.start(w.deployment())
	for name, tt := range map[string]struct {
		change  func(*v1alpha1.AgentEndpointSpec)
		ready   string
		message string
		bound   bool
	}{
		"missing":    {upstreamTo("http://nowhere"), "UpstreamNotFound", "does not exist", true},
		"external":   {upstreamTo("http://elsewhere"), "UnsupportedService", "ExternalName", true},
		"udp":        {upstreamTo("http://dns"), "UnsupportedService", "no TCP port", true},
		"portless":   {upstreamTo("http://portless"), "UnsupportedService", "no ports", true},
		"other-port": {upstreamTo("http://api:81"), "PortNotFound", "it has 80", true},
		"empty":      {upstreamTo("http://empty"), "NoReadyEndpoints", "no ready endpoint", true},
		"foreign":    {upstreamTo("http://api.default"), "UpstreamNotAllowed", "export.crossNamespace", false},
		"address":    {upstreamTo("http://10.0.0.1"), "UpstreamNotAllowed", "is an address", false},
		"internet": {upstreamTo("http://www.example.com"), "UpstreamNotAllowed", "no Service of this cluster",
			false},
		"bad-authority": {func(s *v1alpha1.AgentEndpointSpec) {
			s.Upstream = v1alpha1.Upstream{URL: "https://api", TLS: &v1alpha1.UpstreamTLS{CA: "x"}}
		}, "UpstreamNotAllowed", `upstream.tls.ca "x": the given CA bundle holds no PEM certificate`, false},
		"foreign-url":  {urlTo("http://api.other"), "URLNotAllowed", "in namespace " + w.namespace, false},
		"three-labels": {urlTo("http://a.b.c"), "URLNotAllowed", "exactly two DNS labels", false},
		"bad-policy": {func(s *v1alpha1.AgentEndpointSpec) {
			s.TrafficPolicy = inline(`{"on_http_request":[{"actions":[{"type":"dance"}]}]}`)
		}, "PolicyInvalid", "dance", false},
		"no-config-map": {func(s *v1alpha1.AgentEndpointSpec) {
			s.TrafficPolicy = &v1alpha1.TrafficPolicy{TargetRef: &v1alpha1.TrafficPolicyRef{Kind: "ConfigMap",
				Name: "nowhere"}}
		}, "PolicyNotFound", "nowhere", false},
	} {
		o := w.export(name, "api")
		tt.change(&o.Spec)
		w.kube.MustCreate(o)
		if message := w.expectReady(o, "False "+tt.ready); !strings.Contains(message, tt.message) {
			t.Errorf("%s: message %q, want %q", name, message, tt.message)
		}
		if bound := w.conditions(o)[v1alpha1.ConditionBound]; (bound == "True Bound") != tt.bound {
			t.Errorf("%s: Bound is %s", name, bound)
		}
		if rows := w.rows(o.Spec.URL); len(rows) > 0 != tt.bound {
			t.Errorf("%s: the account has %d endpoints", name, len(rows))
		}
	}
}

// TestExporter_LongName exports an object whose name is longer than an endpoint's may be.
func TestExporter_LongName(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	w.start(w.deployment())
	o := w.export("api", "api")
	o.Name = strings.Repeat("long.", 40) + "name"
	w.kube.MustCreate(o)
	w.expectReady(o, "True Ready")
	w.expectAnswer(o.Spec.URL, "200 hello")
}

func upstreamTo(url string) func(*v1alpha1.AgentEndpointSpec) {
	return func(s *v1alpha1.AgentEndpointSpec) { s.Upstream.URL = url }
}

func urlTo(url string) func(*v1alpha1.AgentEndpointSpec) {
	return func(s *v1alpha1.AgentEndpointSpec) { s.URL = url }
}

func inline(json string) *v1alpha1.TrafficPolicy {
	return &v1alpha1.TrafficPolicy{Inline: &runtime.RawExtension{Raw: []byte(json)}}
}

func TestExporter_HealsWhenCauseIsGone(t *testing.T) {
	w := newWorld(t)
	w.start(w.deployment())
	o := w.export("api", "api")
	o.Spec.TrafficPolicy = &v1alpha1.TrafficPolicy{TargetRef: &v1alpha1.TrafficPolicyRef{Kind: "ConfigMap", Name: "p"}}
	w.kube.MustCreate(o)
	w.expectReady(o, "False PolicyNotFound")
	w.kube.MustCreate(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p"},
		Data: map[string]string{
			"policy.yaml": "on_http_response:\n- actions:\n  - {type: add-headers, config: {headers: {x-a: b}}}"}})
	w.expectReady(o, "False UpstreamNotFound")
	slice := w.serviceOf(w.namespace, "api", "hello")
	w.expectReady(o, "True Ready")
	w.expectAnswer(o.Spec.URL, "200 hello")
	update(w, slice, func(s *v1Slice) { s.Endpoints[0].Conditions.Ready = new(bool) })
	w.expectReady(o, "False NoReadyEndpoints")
	if answer := w.call(o.Spec.URL); !strings.HasPrefix(answer, "502") {
		t.Errorf("without a ready endpoint the answer is %s", answer)
	}
	w.endpointsOf(w.namespace, "api", "again")
	w.expectReady(o, "True Ready")
	w.expectAnswer(o.Spec.URL, "200 again")
}

func TestExporter_ReadsNoConfigMapWithoutRight(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	var read atomic.Bool
	w.start(w.deployment(), func(o *exporter.Options) {
		o.InlinePolicies = true
		o.Kubernetes = rest.CopyConfig(o.Kubernetes)
		o.Kubernetes.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				read.Store(read.Load() || strings.Contains(req.URL.Path, "/configmaps"))
				return next.RoundTrip(req)
			})
		})
	}).ready()
	o := w.export("api", "api")
	o.Spec.TrafficPolicy = &v1alpha1.TrafficPolicy{TargetRef: &v1alpha1.TrafficPolicyRef{Kind: "ConfigMap", Name: "p"}}
	w.kube.MustCreate(o)
	if message := w.expectReady(o, "False PolicyInvalid"); !strings.Contains(message, "write the policy inline") {
		t.Errorf("the message has no remedy: %s", message)
	}
	update(w, o, func(o *v1alpha1.AgentEndpoint) { o.Spec.TrafficPolicy = inline(`{}`) })
	w.expectReady(o, "True Ready")
	if read.Load() {
		t.Error("ConfigMaps were read")
	}
}

func TestExporter_Refusals(t *testing.T) {
	w := newWorld(t, func(body map[string]any) {
		body["acl"] = []string{"export:*", "bind:http://a.*", "bind:http://b.*"}
	})
	w.serviceOf(w.namespace, "api", "hello")
	w.start(w.deployment())
	forbidden := w.export("c", "api")
	w.kube.MustCreate(forbidden)
	w.expectReady(forbidden, "False Forbidden")
	first, second := w.export("a", "api"), w.export("taken", "api")
	second.Spec.URL = first.Spec.URL
	w.kube.MustCreate(first)
	w.expectReady(first, "True Ready")
	w.kube.MustCreate(second)
	message := w.expectReady(second, "False URLTaken")
	if !strings.Contains(message, "AgentEndpoint "+w.namespace+"/a ") {
		t.Errorf("the message names no owner: %s", message)
	}
	for _, o := range []*v1alpha1.AgentEndpoint{first, second} {
		update(w, o, func(o *v1alpha1.AgentEndpoint) { o.Spec.PoolingEnabled = true })
	}
	w.expectReady(second, "True Ready")
	w.expectReady(first, "True Ready")
}

func TestExporter_ReadinessNamesCause(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	o := w.export("api", "api")
	w.kube.MustCreate(o)
	r := w.start(w.deployment()).ready()
	if rows := w.rows(o.Spec.URL); len(rows) != 1 {
		t.Errorf("a ready exporter has bound %d endpoints", len(rows))
	}
	w.service.Stop()
	wait.Until(t, "an exporter that is not ready", func() bool { return r.readyz() == http.StatusInternalServerError })
	w.expectReady(o, "False Unreachable")
}

// TestExporter_UpstreamOptions reaches an https Service by its fingerprint, and tells a tcp Service the
// caller by the PROXY protocol. What is said about the first is bound anew when it changes.
func TestExporter_UpstreamOptions(t *testing.T) {
	w := newWorld(t)
	secure := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Connection", "close") // each request is dialed
		_, _ = io.WriteString(rw, "secure")
	}))
	t.Cleanup(secure.Close)
	plain := servicetest.ServeTCP(t, func(c *net.TCPConn) {
		pc := proxyproto.NewConn(c, proxyproto.WithPolicy(proxyproto.REQUIRE))
		_, _ = fmt.Fprintf(pc, "%v", pc.RemoteAddr())
	})
	for name, to := range map[string]string{"web": secure.Listener.Addr().String(), "mail": plain} {
		slice := w.serviceOf(w.namespace, name, "")
		w.network.routes.Store(slice.Endpoints[0].Addresses[0]+":8080", to)
	}
	w.start(w.deployment())
	web, mail := w.export("web", "web"), w.export("mail", "mail")
	web.Spec.Upstream = v1alpha1.Upstream{URL: "https://web:80"}
	mail.Spec.URL = "tcp://mail." + w.namespace + ":25"
	mail.Spec.Upstream = v1alpha1.Upstream{URL: "tcp://mail:80", ProxyProtocol: 2}
	w.kube.MustCreate(web, mail)
	w.expectReady(web, "True Ready")
	w.expectReady(mail, "True Ready")
	if got := w.call(web.Spec.URL); !strings.HasPrefix(got, "502 ") || !strings.Contains(got, "--upstream-ca-sha256") {
		t.Errorf("an unknown authority: %s", got)
	}
	update(w, web, func(o *v1alpha1.AgentEndpoint) {
		o.Spec.Upstream.TLS = &v1alpha1.UpstreamTLS{CASHA256: trust.Fingerprint(secure.Certificate()),
			ServerName: "example.com"}
	})
	w.expectAnswer(web.Spec.URL, "200 secure")
	row := w.rows(mail.Spec.URL)[0]
	st := w.forwarder.Open(servicetest.OpenHeader(t, tunnel.Bound{EndpointID: row.ID, URL: row.URL}))
	if got := servicetest.ReadAll(t, st); got != servicetest.PodAddr {
		t.Errorf("the tcp upstream was told of %q", got)
	}
}
