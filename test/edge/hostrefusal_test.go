// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestEdge_TellsAgentOfRefusedHost answers as development servers do, in pieces, too.
func TestEdge_TellsAgentOfRefusedHost(t *testing.T) {
	t.Parallel()
	vite := "Blocked request. This host (\"hello.demo\") is not allowed.\nTo allow this host, add \"hello.demo\" to " +
		"`server.allowedHosts` in vite.config.js."
	rails := "<!DOCTYPE html><html><head><style>" + strings.Repeat("body { color: #333 }\n", 300) +
		"</style></head><body><header><h1>Blocked hosts: hello.demo</h1></header>"
	const refused = tunnel.LineHostRefused
	for name, c := range map[string]struct {
		status int
		body   string
		pieces int // the body is flushed in as many
		mode   string
		want   string
	}{
		"Vite":                    {403, vite, 1, "", refused},
		"Vite in pieces":          {403, vite, 40, "", refused},
		"webpack-dev-server":      {403, "Invalid Host header", 1, "", refused},
		"webpack-dev-server 4":    {200, "Invalid Host header", 1, "", refused},
		"Rails":                   {403, rails, 3, "", refused},
		"Django":                  {400, "<title>DisallowedHost at /</title>", 1, "", refused},
		"FastAPI":                 {400, "Invalid host header", 1, "", refused},
		"a value that is refused": {403, vite, 1, "shop.example.com", refused},
		"rewritten already":       {403, vite, 1, "rewrite", ""},
		"another 403":             {403, "Forbidden", 1, "", ""},
		"another status":          {200, vite, 1, "", ""},
		"far behind":              {403, strings.Repeat(" ", 20<<10) + vite, 1, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := servicetest.NewPath(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.status == http.StatusOK {
					w.Header().Set("Content-Length", strconv.Itoa(len(c.body)))
				}
				w.WriteHeader(c.status)
				for rest := c.body; rest != ""; {
					n := min(len(c.body)/c.pieces+1, len(rest))
					_, _ = io.WriteString(w, rest[:n])
					_ = http.NewResponseController(w).Flush()
					rest = rest[n:]
				}
			}, func(b *tunnel.Bind) { b.HostMode = c.mode })
			res := p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, nil)
			if got := servicetest.ReadAll(t, res.Body); res.StatusCode != c.status || got != c.body {
				t.Errorf("the client got %d and %d bytes, want %d", res.StatusCode, len(got), len(c.body))
			}
			if line := servicetest.Receive(t, p.Agent.Lines, "request line"); line.Code != c.want {
				t.Errorf("the agent was told %q, want %q", line.Code, c.want)
			}
		})
	}
}

// TestEdge_RewritesOwnOrigin: an upstream that gets its own Host gets its own Origin and Referer, too.
func TestEdge_RewritesOwnOrigin(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	for _, c := range []struct{ mode, upstreamURL, header, sent, want string }{
		{"rewrite", "", "Origin", "http://hello.demo", "http://UPSTREAM"},
		{"rewrite", "", "Origin", "https://HELLO.demo:443", "http://UPSTREAM"},
		{"rewrite", "", "Referer", "http://hello.demo/a?b=http://hello.demo", "http://UPSTREAM/a?b=http://hello.demo"},
		{"rewrite", "https://intranet.corp:443", "Origin", "http://hello.demo", "https://intranet.corp"},
		{"rewrite", "", "Origin", "http://evil.example", "http://evil.example"},
		{"rewrite", "", "Origin", "http://hello.demo.evil.example", "http://hello.demo.evil.example"},
		{"rewrite", "", "Origin", "http://hello.demo:8080", "http://hello.demo:8080"},
		{"rewrite", "", "Referer", "http://hello.demo@evil.example/", "http://hello.demo@evil.example/"},
		{"rewrite", "", "Origin", "null", "null"},
		{"", "", "Origin", "http://hello.demo", "http://hello.demo"},
		{"shop.example.com", "", "Origin", "http://hello.demo", "http://hello.demo"},
	} {
		var upstream string
		p := servicetest.NewPath(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Header },
			func(b *tunnel.Bind) {
				b.HostMode, upstream = c.mode, strings.TrimPrefix(b.UpstreamURL, "http://")
				if c.upstreamURL != "" {
					b.UpstreamURL = c.upstreamURL
				}
			})
		p.Forwarder.Do(p.Transport, "GET", "http://hello.demo/", nil, http.Header{c.header: {c.sent}})
		want := strings.Replace(c.want, "UPSTREAM", upstream, 1)
		if h := servicetest.Receive(t, got, "request"); h.Get(c.header) != want {
			t.Errorf("%q, %s %q: the upstream got %q, want %q", c.mode, c.header, c.sent, h.Get(c.header), want)
		}
	}
}
