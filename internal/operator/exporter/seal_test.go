// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"io"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
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

// TestExporter_SealsByWildcard also holds that an object which asks for what the certificate cannot do
// is not served in the clear, and is served once it can.
func TestExporter_SealsByWildcard(t *testing.T) {
	w := newWorld(t)
	w.serviceOf(w.namespace, "api", "hello")
	owner, dir := w.owner(), t.TempDir()
	w.start(w.deployment(), func(o *exporter.Options) { o.SealDir = dir })
	o, web := w.sealedExport("db"), w.export("web", "api")
	other, policy := w.sealedExport("other"), w.sealedExport("policy")
	web.Spec.Sealed, policy.Spec.TrafficPolicy = true, inline(`{}`)
	other.Spec.URL = strings.Replace(other.Spec.URL, "5432", "5433", 1)
	w.kube.MustCreate(o, web, other, policy)
	if message := w.expectReady(o, "False SealUnavailable"); !strings.Contains(message, "tls.crt") {
		t.Errorf("without a certificate: %s", message)
	}
	sealtest.Write(t, dir, owner.Server(account.EndpointURL{Scheme: "tcp", Host: "*." + w.namespace, Port: 5432}))
	for _, o := range []*v1alpha1.AgentEndpoint{o, web, other, policy} { // not to wait for the next look
		update(w, o, func(o *v1alpha1.AgentEndpoint) { o.Spec.Description = "again" })
	}
	w.expectReady(o, "True Ready")
	for refused, want := range map[*v1alpha1.AgentEndpoint]string{web: "is for tcp:// URLs",
		policy: "without a trafficPolicy", other: "does not name " + other.Spec.URL + ": have one signed"} {
		if message := w.expectReady(refused, "False SealUnavailable"); !strings.Contains(message, want) {
			t.Errorf("%s: %s", refused.Name, message)
		}
		w.expectConditions(refused,
			"False SealUnavailable, False SealUnavailable, Unknown SealUnavailable, False SealUnavailable")
		if rows := w.rows(refused.Spec.URL); len(rows) > 0 {
			t.Errorf("%s: the account has %d endpoints", refused.Name, len(rows))
		}
	}
	b := tunnel.Bound{EndpointID: o.Status.ID, URL: o.Spec.URL}
	if code := w.forwarder.OpenRefused(servicetest.OpenHeader(t, b)); code != tunnel.RefusedSealed {
		t.Errorf("a plain call: %v", code)
	}
	c, err := w.forwarder.OpenSealed(b, owner.Trust())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	if got := servicetest.ReadAll(t, c); !strings.HasSuffix(got, "\r\n\r\nhello") {
		t.Errorf("got %q", got)
	}
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
