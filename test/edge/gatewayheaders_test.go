// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestEdge_KeepsForwardingHeadersOfGateways: the flag in the stream's header makes the edge keep what
// a gateway says and append its address; without it, and of a caller outside of clusters, everything
// is replaced.
func TestEdge_KeepsForwardingHeadersOfGateways(t *testing.T) {
	t.Parallel()
	got := make(chan *http.Request, 1)
	p := servicetest.NewPath(t, recordTo(got))
	outside := p.Server.StartCaller("http://hello.demo")
	sent := http.Header{
		"X-Forwarded-For": {"192.0.2.7", "198.51.100.1"}, "X-Forwarded-Proto": {"https"}, "X-Forwarded-Port": {"443"},
		"X-Forwarded-Host": {"shop.example.com"}, "Forwarded": {"for=192.0.2.7;proto=https"},
		"X-Real-Ip": {"6.6.6.6"}, "X_forwarded_for": {"6.6.6.6"}, "True-Client-Ip": {"6.6.6.6"},
	}
	const replaced = "[10.1.2.3] [http] [hello.demo] [] []"
	for name, c := range map[string]struct {
		forwarder *servicetest.Forwarder
		change    func(h *tunnel.OpenHeader)
		sent      http.Header
		want      string // For, Proto, Host, Port and Forwarded
	}{
		"another pod": {p.Forwarder, func(*tunnel.OpenHeader) {}, sent, replaced},
		"gateway": {p.Forwarder, func(h *tunnel.OpenHeader) { h.TrustsForwarding = true }, sent,
			"[192.0.2.7, 198.51.100.1, 10.1.2.3] [https] [shop.example.com] [443] " +
				"[for=192.0.2.7;proto=https, for=10.1.2.3]"},
		"gateway with IPv6": {p.Forwarder, func(h *tunnel.OpenHeader) {
			h.TrustsForwarding, h.ClientAddr = true, "[fd00::5]:1"
		}, http.Header{"Forwarded": {"for=192.0.2.7"}},
			`[fd00::5] [http] [hello.demo] [] [for=192.0.2.7, for="[fd00::5]"]`},
		"gateway that says nothing": {p.Forwarder, func(h *tunnel.OpenHeader) { h.TrustsForwarding = true }, nil,
			replaced},
		"caller outside of clusters": {outside, func(h *tunnel.OpenHeader) {
			h.EndpointID, h.Scheme, h.TrustsForwarding = "", "http", true
		}, sent, "[127.0.0.1] [http] [hello.demo] [] []"},
	} {
		h := servicetest.OpenHeader(t, p.Bound)
		c.change(&h)
		c.forwarder.Do(c.forwarder.TransportWith(h), "GET", "http://hello.demo/", nil, c.sent)
		in := servicetest.Receive(t, got, "request").Header
		if have := fmt.Sprint(in["X-Forwarded-For"], in["X-Forwarded-Proto"], in["X-Forwarded-Host"],
			in["X-Forwarded-Port"], in["Forwarded"]); have != c.want {
			t.Errorf("%s: the upstream got %s, want %s", name, have, c.want)
		}
		for _, claim := range []string{"X-Real-Ip", "X_forwarded_for", "True-Client-Ip"} {
			if in[claim] != nil {
				t.Errorf("%s: the upstream got %s", name, claim)
			}
		}
	}
}

// TestEdge_EndsRedirectLoopBehindGateway: an upstream that sends everybody to https does so for ever
// behind a gateway that speaks TLS, until its headers are believed.
func TestEdge_EndsRedirectLoopBehindGateway(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Forwarded-Proto") != "https" {
			http.Redirect(w, r, "https://"+r.Header.Get("X-Forwarded-Host")+r.URL.Path, http.StatusMovedPermanently)
		}
	}, func(b *tunnel.Bind) { b.HostMode = "rewrite" })
	for trusted, want := range map[bool]string{false: "301 https://hello.demo/x", true: "200 "} {
		h := servicetest.OpenHeader(t, p.Bound)
		h.TrustsForwarding = trusted
		res := p.Forwarder.Do(p.Forwarder.TransportWith(h), "GET", "http://hello.demo/x", nil, http.Header{
			"Host": {"shop.example.com"}, "X-Forwarded-Host": {"shop.example.com"}, "X-Forwarded-Proto": {"https"}})
		if got := fmt.Sprint(res.StatusCode, " ", res.Header.Get("Location")); got != want {
			t.Errorf("trusted %v: got %s, want %s", trusted, got, want)
		}
	}
}
