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

// discardResponse is a ResponseWriter that drops the response.
type discardResponse struct{ header http.Header }

func (d discardResponse) Header() http.Header         { return d.header }
func (d discardResponse) Write(b []byte) (int, error) { return len(b), nil }
func (d discardResponse) WriteHeader(int)             {}

// BenchmarkSession measures a request with a session, without the time of the store.
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
		w.handler.ServeLogin(discardResponse{http.Header{}}, r, q,
			func(w http.ResponseWriter, _ *http.Request, _ *account.LoginIdentity) {
				served++
				_, _ = io.WriteString(w, "upstream")
			})
	}
	if served < b.N {
		b.Errorf("%d of %d requests passed", served, b.N)
	}
}
