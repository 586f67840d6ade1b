// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestEdge_AnswersGRPCWithStatus checks that gRPC clients get a status of gRPC in a header that
// ends the stream.
func TestEdge_AnswersGRPCWithStatus(t *testing.T) {
	t.Parallel()
	p := servicetest.NewPath(t, func(_ http.ResponseWriter, _ *http.Request) {}, func(b *tunnel.Bind) {
		b.TrafficPolicy = `
on_http_request:
- expressions: ["req.url.path == '/deny'"]
  actions: [{type: deny}]
- expressions: ["req.url.path == '/login'"]
  actions: [{type: basic-auth, config: {credentials: ["user:password"]}}]
on_http_response:
- expressions: ["req.url.path == '/late'"]
  actions: [{type: custom-response, config: {body: "${req.headers['nothing'][0]}"}}]
`
	})
	for name, transport := range map[string]*http.Transport{"HTTP/1": p.Transport,
		"HTTP/2": p.Forwarder.Transport(p.Bound, func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) })} {
		for target, want := range map[string]string{"hello.demo/deny": "7", "hello.demo/login": "16",
			"hello.demo/late": "13", "other.demo/": "7"} {
			res := p.Forwarder.Do(transport, "POST", "http://"+target, strings.NewReader("x"),
				http.Header{"Content-Type": {"application/grpc+proto"}})
			if body := servicetest.ReadAll(t, res.Body); res.StatusCode != 200 || body != "" ||
				res.Header.Get("Grpc-Status") != want || res.ContentLength != 0 ||
				!strings.HasPrefix(res.Header.Get("Grpc-Message"), "ERR_FL_") {
				t.Errorf("%s, %s: %d %q %v", name, target, res.StatusCode, body, res.Header)
			}
		}
	}
}
