// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// discard is a ResponseWriter that costs nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// BenchmarkSession is what a request with a session costs beside the store's look at it.
func BenchmarkSession(b *testing.B) {
	w := newHarness(b)
	br := w.browser()
	br.login("/")
	r := httptest.NewRequest(http.MethodGet, "/a?b=c", nil)
	for name, value := range br.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	q := trafficpolicy.LoginRequest{Config: &w.config,
		Endpoint: &account.Endpoint{AccountID: "ac", URL: "https://app.example.com"},
		Conn:     &trafficpolicy.Conn{ClientIP: netip.MustParseAddr("192.0.2.7")}}
	served := 0
	b.ReportAllocs()
	for b.Loop() {
		w.handler.ServeLogin(discard{http.Header{}}, r, q,
			func(w http.ResponseWriter, _ *http.Request, _ trafficpolicy.LoginResult) {
				served++
				_, _ = io.WriteString(w, "upstream")
			})
	}
	if served < b.N {
		b.Errorf("%d of %d requests went on", served, b.N)
	}
}
