// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// claims are headers by which clients could claim another address.
var claims = []string{
	"True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "X-Forwarded", "Client-Ip",
	"X-Real-Ip", "X_client_ip", "X-Forwarded-Server",
}

// requestWithClaims sends a request with the claims in header and trailers and returns what the
// upstream got.
func requestWithClaims(t *testing.T, tr http.RoundTripper, url string, got <-chan *http.Request) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(servicetest.Context(t), "POST", url,
		io.MultiReader(strings.NewReader("chunked")))
	must.Succeed(t, err)
	req.Trailer = http.Header{"X-Sum": {"1"}, "X-Forwarded-For": {"6.6.6.6"}}
	for _, name := range claims {
		req.Header[name], req.Trailer[name] = []string{"6.6.6.6"}, []string{"6.6.6.6"}
	}
	res, err := tr.RoundTrip(req)
	must.Succeed(t, err)
	_ = res.Body.Close()
	r := servicetest.Receive(t, got, "request")
	for what, h := range map[string]http.Header{"header": r.Header, "trailer": r.Trailer} {
		for name, values := range h {
			if strings.Contains(strings.Join(values, ","), "6.6.6.6") {
				t.Errorf("the upstream got the %s %s: %v", what, name, values)
			}
		}
	}
	if r.Trailer.Get("X-Sum") != "1" {
		t.Errorf("the upstream got the trailers %v", r.Trailer)
	}
	return r
}

// newTransport returns a pod's client for one protocol.
func newTransport(p *servicetest.Path, protocol string) *http.Transport {
	return p.Forwarder.Transport(p.Bound, func(ps *http.Protocols) {
		ps.SetHTTP1(protocol == "http1")
		ps.SetUnencryptedHTTP2(protocol == "http2")
	})
}

func recordTo(got chan<- *http.Request) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r
	}
}

func TestEdge_DropsClaimsAboutTheClient(t *testing.T) {
	t.Parallel()
	for _, protocol := range []string{"http1", "http2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			got := make(chan *http.Request, 1)
			p := servicetest.NewPath(t, recordTo(got), func(b *tunnel.Bind) {
				b.UpstreamProtocol = protocol
				b.TrafficPolicy = `on_http_request: [{actions: [
					{type: add-headers, config: {headers: {cf-connecting-ip: "${conn.client_ip}"}}}]}]`
			})
			h := requestWithClaims(t, newTransport(p, protocol), "http://hello.demo/", got).Header
			if h.Get("Cf-Connecting-Ip") != "10.1.2.3" || h.Get("X-Forwarded-For") != "10.1.2.3" {
				t.Errorf("the policy could not name the client: %v", h)
			}
		})
	}
}

// TestEdge_DropsClaimsBehindATrustedProxy checks that a trusted proxy names the client in
// X-Forwarded-For. The other headers that it passes on may be the client's.
func TestEdge_DropsClaimsBehindATrustedProxy(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t, func(o *service.Options) { o.Public.TrustedProxies = []string{"127.0.0.1"} })
	got := make(chan *http.Request, 1)
	w.Bind("public", "https://app.example.com", recordTo(got))
	tr := w.NewBrowser().Transport
	h := requestWithClaims(t, tr, "https://app.example.com/", got).Header
	if h.Get("X-Forwarded-For") != "127.0.0.1" {
		t.Errorf("headers %v", h)
	}
	req, err := http.NewRequestWithContext(servicetest.Context(t), "GET", "https://app.example.com/", nil)
	must.Succeed(t, err)
	req.Header = http.Header{"X-Forwarded-For": {"192.0.2.7"}, "True-Client-Ip": {"6.6.6.6"}}
	res, err := tr.RoundTrip(req)
	must.Succeed(t, err)
	_ = res.Body.Close()
	if h := servicetest.Receive(t, got, "request").Header; h.Get("X-Forwarded-For") != "192.0.2.7" ||
		h["True-Client-Ip"] != nil {
		t.Errorf("headers %v", h)
	}
}

// TestEdge_DropsReservedNamesFromAnswers checks the code header, by which programs distinguish a
// page of Fairlead's from an answer of the upstream.
func TestEdge_DropsReservedNamesFromAnswers(t *testing.T) {
	t.Parallel()
	const other = "fairlead_other"
	for _, protocol := range []string{"http1", "http2"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			p := servicetest.NewPath(t, func(w http.ResponseWriter, r *http.Request) {
				h := w.Header()
				h.Set(account.CodeHeader, "ERR_FL_3010")
				h[other] = []string{"x"}
				if r.URL.Path == "/switch" {
					h.Set("Connection", "Upgrade")
					h.Set("Upgrade", "echo")
					w.WriteHeader(http.StatusSwitchingProtocols)
					return
				}
				w.WriteHeader(http.StatusEarlyHints)
				h.Set("Trailer", "X-Sum, "+account.CodeHeader)
				_, _ = io.WriteString(w, "body")
				h.Set("X-Sum", "1")
				h.Set(http.TrailerPrefix+other, "x")
			}, func(b *tunnel.Bind) { b.UpstreamProtocol = protocol })
			check := func(what string, h map[string][]string) {
				for name, values := range h {
					if account.IsReservedHeader(name) {
						t.Errorf("%s: %s: %v", what, name, values)
					}
				}
			}
			req, err := http.NewRequestWithContext(httptrace.WithClientTrace(servicetest.Context(t),
				&httptrace.ClientTrace{
					Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { check("interim", h); return nil },
				}), "GET", "http://hello.demo/", nil)
			must.Succeed(t, err)
			res, err := newTransport(p, protocol).RoundTrip(req)
			must.Succeed(t, err)
			defer res.Body.Close()
			check("header", res.Header)
			if body := servicetest.ReadAll(t, res.Body); body != "body" || res.Trailer.Get("X-Sum") != "1" {
				t.Errorf("%q, trailers %v", body, res.Trailer)
			}
			check("trailer", res.Trailer)
			if protocol == "http1" {
				upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
				res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/switch", nil, upgrade)
				if check("101", res.Header); res.StatusCode != http.StatusSwitchingProtocols {
					t.Errorf("status %d", res.StatusCode)
				}
			}
		})
	}
}
