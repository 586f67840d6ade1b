// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const fiveRules = `
on_http_request:
- expressions: ["conn.pod.namespace != 'shop'"]
  actions: [{type: deny}]
- expressions: ["req.url.path.startsWith('/admin')", "conn.pod.service_account != 'admin'"]
  actions: [{type: deny}]
- actions: [{type: rate-limit, config: {name: a, capacity: 2000000000, rate: 60s, bucket_key: [conn.pod.name]}}]
- expressions: ["getReqHeader('x-version') == ['2']"]
  actions: [{type: url-rewrite, config: {from: /api/, to: /v2/}}]
- actions: [{type: add-headers, config: {headers: {x-caller: "${conn.pod.namespace}/${conn.pod.name}"}}}]
`

// BenchmarkFiveRules is what a policy of five rules costs a request.
func BenchmarkFiveRules(b *testing.B) {
	p, err := Compile(fiveRules, Options{})
	must.Succeed(b, err)
	w, r, c := httptest.NewRecorder(), httptest.NewRequest("GET", "/api/users", nil), fullConn()
	r.Header.Set("X-Version", "2")
	passed := 0
	b.ReportAllocs()
	for b.Loop() {
		p.ServeHTTP(w, r, c, forwardFunc(func(http.ResponseWriter, *http.Request, Target) { passed++ }))
	}
	if passed == 0 {
		b.Error("no request passed")
	}
}

// BenchmarkCompileLargest is what setting the largest document costs.
func BenchmarkCompileLargest(b *testing.B) {
	text := "on_http_request:\n" +
		strings.Repeat(
			"- expressions: [\"req.url.path.startsWith('/a')\", \"req.method == 'GET'\", \"req.host == 'a'\", "+
				"\"conn.client_ip != 'x'\"]\n  actions: [{type: deny}]\n", maxRules)
	for b.Loop() {
		if _, err := Compile(text, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
