// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/live"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// cutting admits every request, with one session that can be cut.
type cutting struct{ *live.Registry }

func (c cutting) ServeLogin(
	w http.ResponseWriter, r *http.Request, l trafficpolicy.LoginRequest, next trafficpolicy.AdmitFunc,
) {
	guarded, under, cut := live.Abortable(w, r, l.Conn.Aborter, nil)
	e := c.Register(cut)
	defer e.Done()
	e.SetSession("session")
	next(guarded, under, &account.LoginIdentity{ID: "au_1"})
}

// counter counts aborts.
type counter struct{ n *atomic.Int32 }

func (c counter) Abort() { c.n.Add(1) }

// abortingOutcome aborts the session when it learns the status of an answer.
type abortingOutcome struct {
	Outcome
	logins cutting
}

func (o abortingOutcome) Status(code int) (retry bool) {
	o.logins.Abort([]string{"session"})
	return o.Outcome.Status(code)
}

const loginPolicy = "on_http_request:\n- actions:\n  - {type: oauth, config: {provider: github, client_id: a, " +
	"client_secret: b}}\n"

// TestServeHTTP_DoesNotRetryAbortedRequest checks that a request which is aborted ends without a
// page, and without another child of the failover, wherever it was when it was cut.
func TestServeHTTP_DoesNotRetryAbortedRequest(t *testing.T) {
	t.Parallel()
	logins := cutting{live.New(nil)}
	breaking := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		logins.Abort([]string{"session"})
		panic(http.ErrAbortHandler) // before an answer: a GET may be tried again
	}))
	t.Cleanup(breaking.Close)
	unwell := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		logins.Abort([]string{"session"})
		w.WriteHeader(503)
	}))
	t.Cleanup(unwell.Close)
	for name, first := range map[string]Attempt{"broken off": static(breaking.Listener.Addr().String()),
		"unwell": static(unwell.Listener.Addr().String()), "answered": answer(503, "")} {
		l := (&leaves{}).add(first, 503).add(answer(200, "from the second"))
		if name == "answered" {
			l.list[0].Outcome = abortingOutcome{l.list[0].Outcome, logins}
		}
		var severed atomic.Int32
		e := newEdge(t, dialing(l), func(o *Options) { o.Logins = logins })
		ep := cloudEndpoint(loginPolicy, "bk")
		ep.URL, ep.Scheme, ep.Bindings = "https://app.example.com", "https", []string{account.BindingPublic}
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if err, ok := recover().(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					t.Errorf("%s: it does not end in an abort: %v", name, err)
				}
			}()
			e.ServeHTTP(w, httptest.NewRequest("GET", "https://app.example.com/", nil), ep,
				ClientInfo{Aborter: counter{&severed}})
		}()
		if w.Body.Len() > 0 || strings.Contains(w.Body.String(), "second") || severed.Load() != 1 {
			t.Errorf("%s: %d %q, severed %d times", name, w.Code, w.Body, severed.Load())
		}
		if slices.Contains(l.told, "b1 up") || slices.Contains(l.told, "b1 200") {
			t.Errorf("%s: the second child was tried: %v", name, l.told)
		}
	}
}
