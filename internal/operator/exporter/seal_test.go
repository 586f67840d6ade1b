// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// sealedExport returns a sealed AgentEndpoint tcp://NAME.NAMESPACE:5432 for port 80 of the Service api.
func (w *world) sealedExport(name string) *v1alpha1.AgentEndpoint {
	o := w.export(name, "api")
	o.Spec.URL, o.Spec.Upstream.URL, o.Spec.Sealed = "tcp://"+name+"."+w.namespace+":5432", "tcp://api:80", true
	return o
}

// owner returns the owner of the account's sealed endpoints.
func (w *world) owner() *sealtest.Owner {
	w.Helper()
	session, err := w.forwarder.Wait(servicetest.Context(w.T))
	if err != nil {
		w.Fatal(err)
	}
	return sealtest.NewOwner(w.T, session.Welcome().AccountID)
}

// requireSealed requires that an endpoint whose upstream answers "hello" refuses plain calls and serves
// sealed ones.
func (w *world) requireSealed(b tunnel.Bound, owner *sealtest.Owner) {
	w.Helper()
	if code := w.forwarder.OpenRefused(servicetest.OpenHeader(w.T, b)); code != tunnel.RefusedSealed {
		w.Errorf("a plain call: %v", code)
	}
	c, err := w.forwarder.OpenSealed(b, owner.Trust())
	if err != nil {
		w.Fatal(err)
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	if got := servicetest.ReadAll(w.T, c); !strings.HasSuffix(got, "\r\n\r\nhello") {
		w.Errorf("got %q", got)
	}
}

// TestExporter_SealsByWildcard also holds that an object which asks for what the certificate cannot do
// is not served in the clear, and is served once it can.
func TestExporter_SealsByWildcard(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	owner, dir := w.owner(), t.TempDir()
	w.start(w.deployment(), func(o *exporter.Options) { o.SealDir = dir })
	o, public := w.sealedExport("db"), w.export("public", "api")
	other, policy := w.sealedExport("other"), w.sealedExport("policy")
	public.Spec.URL, public.Spec.Bindings, public.Spec.Sealed = "http://a.internal", []string{"internal"}, true
	policy.Spec.TrafficPolicy = inline(`{"on_tcp_connect": [{"expressions": ["conn.pod.name == 'x'"],
		"actions": [{"type": "deny"}]}]}`)
	other.Spec.URL = strings.Replace(other.Spec.URL, "5432", "5433", 1)
	w.kube.MustCreate(o, public, other, policy)
	if message := w.expectReady(o, "False SealUnavailable"); !strings.Contains(message, "tls.crt") {
		t.Errorf("without a certificate: %s", message)
	}
	sealtest.Write(t, dir, owner.Server(account.EndpointURL{Scheme: "tcp", Host: "*." + w.namespace, Port: 5432}))
	for _, o := range []*v1alpha1.AgentEndpoint{o, public, other, policy} { // not to wait for the next look
		update(w, o, func(o *v1alpha1.AgentEndpoint) { o.Spec.Description = "again" })
	}
	w.expectReady(o, "True Ready")
	for refused, want := range map[*v1alpha1.AgentEndpoint][2]string{
		public: {"SealUnavailable", "the binding kubernetes alone"},
		policy: {"PolicyInvalid", "by an agent with --seal-callers"},
		other:  {"SealUnavailable", "does not name " + other.Spec.URL + ": have one signed"}} {
		if message := w.expectReady(refused, "False "+want[0]); !strings.Contains(message, want[1]) {
			t.Errorf("%s: %s", refused.Name, message)
		}
		w.expectConditions(refused, strings.ReplaceAll("False R, False R, Unknown R, False R", "R", want[0]))
		if rows := w.rows(refused.Spec.URL); len(rows) > 0 {
			t.Errorf("%s: the account has %d endpoints", refused.Name, len(rows))
		}
	}
	b := tunnel.Bound{EndpointID: o.Status.ID, URL: o.Spec.URL}
	w.requireSealed(b, owner)
}

// TestExporter_ServesSealedHTTP also holds that a connection which is kept ends with its next answer once
// the policy is another, that the service does not get the policy, and that an endpoint which is plain
// does not stay when its object asks for a seal and for what is refused.
func TestExporter_ServesSealedHTTP(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	owner, dir := w.owner(), t.TempDir()
	w.start(w.deployment(), func(o *exporter.Options) { o.SealDir = dir })
	sealtest.Write(t, dir, owner.Server(account.EndpointURL{Scheme: "http", Host: "*." + w.namespace, Port: 80}))
	answer := func(text string) *v1alpha1.TrafficPolicy {
		return inline(`{"on_http_request": [{"expressions": ["req.url.path == '/policy'"], "actions": [
			{"type": "custom-response", "config": {"status_code": 200, "body": "` + text + `"}}]}]}`)
	}
	o, plain := w.export("web", "api"), w.export("plain", "api")
	o.Spec.Sealed, o.Spec.TrafficPolicy = true, answer("one")
	w.kube.MustCreate(o, plain)
	w.expectReady(plain, "True Ready")
	update(w, plain, func(o *v1alpha1.AgentEndpoint) { o.Spec.Sealed, o.Spec.TrafficPolicy = true, inline(`{"x": 1}`) })
	w.expectReady(o, "True Ready")
	if row := w.rows(o.Spec.URL)[0]; row.TrafficPolicy != "" {
		t.Errorf("the service has the policy %s", row.TrafficPolicy)
	}
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return w.forwarder.OpenSealed(tunnel.Bound{EndpointID: o.Status.ID, URL: o.Spec.URL}, owner.Trust())
	}}
	defer tr.CloseIdleConnections()
	get := func(path string) (body string, last bool) {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, o.Spec.URL+path, nil)
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		return string(text), res.Close
	}
	for path, want := range map[string]string{"/": "hello", "/policy": "one"} {
		if body, last := get(path); body != want || last {
			t.Errorf("%s: %q, closed: %t", path, body, last)
		}
	}
	update(w, o, func(o *v1alpha1.AgentEndpoint) { o.Spec.TrafficPolicy = answer("two") })
	servicetest.Eventually(t, "the end of a kept connection", func() bool { _, last := get("/policy"); return last })
	if body, last := get("/policy"); body != "two" || last {
		t.Errorf("the next connection: %q, closed: %t", body, last)
	}
	servicetest.Eventually(t, "the end of the plain endpoint", func() bool { return len(w.rows(plain.Spec.URL)) == 0 })
}

// TestExporter_WithoutSealServesNothingSealed also holds that an endpoint that was plain goes when its
// object asks for a seal.
func TestExporter_WithoutSealServesNothingSealed(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	w.start(w.deployment())
	o := w.sealedExport("db")
	o.Spec.Sealed = false
	w.kube.MustCreate(o)
	w.expectReady(o, "True Ready")
	update(w, o, func(o *v1alpha1.AgentEndpoint) { o.Spec.Sealed = true })
	if message := w.expectReady(o, "False SealUnavailable"); !strings.Contains(message, "export.sealSecret") {
		t.Errorf("the message is %s", message)
	}
	servicetest.Eventually(t, "the end of the plain endpoint", func() bool { return len(w.rows(o.Spec.URL)) == 0 })
}

// TestExporter_SealsServiceExports also holds that a ServiceExport which asks for what the exporters cannot
// do serves nothing, in the clear or else.
func TestExporter_SealsServiceExports(t *testing.T) {
	w := newWorld(t)
	w.clusterService("api", "hello")
	owner, dir := w.owner(), t.TempDir()
	w.start(w.deployment(), exporting, func(o *exporter.Options) { o.SealDir = dir })
	o := w.serviceExport("api")
	w.expectPort("api", "hello")
	row := w.rows("tcp://" + w.host("api", "a") + ":80")[0]
	b := tunnel.Bound{EndpointID: row.ID, URL: row.URL}
	seal := func(value string) {
		update(w, o, func(o *v1beta1.ServiceExport) {
			o.Annotations = map[string]string{"bindings.fairlead.dev/sealed": value, "changes": o.ResourceVersion}
		})
	}
	seal("yes")
	w.expectExport(o, "Ready=False Failed", `the annotation bindings.fairlead.dev/sealed is "yes": give "true"`)
	w.expectPort("api", "no endpoint")
	seal("true")
	w.expectExport(o, "Ready=False SealUnavailable", "tls.crt")
	sealtest.Write(t, dir, owner.Server(account.EndpointURL{Scheme: "tcp", Host: "*." + w.namespace, Port: 80}))
	seal("true")
	w.expectExport(o, "Ready=False SealUnavailable", "does not name "+row.URL+": have one signed that does, "+
		"fairlead seal sign --url "+row.URL)
	w.expectPort("api", "no endpoint")
	sealtest.Write(t, dir, owner.Server(account.EndpointURL{Scheme: "tcp", Host: "*." + w.host("", "a")[1:], Port: 80}))
	servicetest.Eventually(t, "a sealed export", func() bool {
		seal("true") // the files are read every few seconds
		all, _ := w.exportConditions(o)
		return strings.Contains(all, "Ready=True Exported") && len(w.rows(row.URL)) > 0
	})
	b.EndpointID = w.rows(row.URL)[0].ID
	w.requireSealed(b, owner)
}

// TestExporter_RequiresProofOfCallers also holds that policies may read who calls then.
func TestExporter_RequiresProofOfCallers(t *testing.T) {
	w := newWorld(t)
	w.clusterService("api", "hello")
	owner, dir := w.owner(), t.TempDir()
	sealtest.Write(t, dir, owner.Server(account.EndpointURL{Scheme: "tcp", Host: "*." + w.namespace, Port: 5432}))
	callers := filepath.Join(dir, "authorities.pem")
	w.start(w.deployment(), func(o *exporter.Options) { o.SealDir, o.SealCallers = dir, callers })
	o := w.sealedExport("db")
	o.Spec.TrafficPolicy = inline(`{"on_tcp_connect": [{"expressions": ["conn.cluster != 'c-1'"],
		"actions": [{"type": "deny"}]}]}`)
	w.kube.MustCreate(o)
	if message := w.expectReady(o, "False SealUnavailable"); !strings.Contains(message, "of export.sealCallers") {
		t.Errorf("without authorities: %s", message)
	}
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: owner.Root.Raw})
	must.Succeed(t, os.WriteFile(callers, root, 0o600))
	update(w, o, func(o *v1alpha1.AgentEndpoint) { o.Spec.Description = "again" })
	w.expectReady(o, "True Ready")
	b := tunnel.Bound{EndpointID: o.Status.ID, URL: o.Spec.URL}
	if _, err := w.forwarder.OpenSealed(b, owner.Trust()); err == nil || !strings.Contains(err.Error(), "not proven") {
		t.Errorf("a caller who proves nothing: %v", err)
	}
	c, err := w.forwarder.OpenSealed(b, owner.Trust(owner.Caller("c-1", time.Hour)))
	must.Succeed(t, err)
	_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	if got := servicetest.ReadAll(t, c); !strings.HasSuffix(got, "\r\n\r\nhello") {
		t.Errorf("got %q", got)
	}
}
