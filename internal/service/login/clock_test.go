// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// TestLogin_RefusesWithWrongClock takes each step of a login while the server's clock is wrong, and
// again when it is right. A person who is logged in is served all the time.
func TestLogin_RefusesWithWrongClock(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(w *harness, b *browser) (step func() response){
		"a request without a session": func(_ *harness, b *browser) func() response {
			return func() response { return b.get("/page") }
		},
		"login": func(_ *harness, b *browser) func() response {
			return func() response { return b.get("/_fairlead/staff/login") }
		},
		"callback": func(w *harness, b *browser) func() response {
			b.get("/page")
			return func() response { return b.get(w.callback()) }
		},
		"acs": func(w *harness, b *browser) func() response {
			b.get("/page")
			w.idp.authentication.InResponseTo, w.idp.authentication.Once = "id-"+w.idp.last().State, "assertion-1"
			return func() response { return w.postACS("SAMLResponse=x") }
		},
		"finish": func(w *harness, b *browser) func() response {
			b.get("/page")
			w.idp.authentication.InResponseTo, w.idp.authentication.Once = "id-"+w.idp.last().State, "assertion-1"
			at := w.postACS("SAMLResponse=x").Header().Get("Location")
			return func() response { return b.get(at) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newHarness(t)
			known := w.browser()
			known.login("/")
			logins := len(w.store.logins)
			step := prepare(w, w.browser())
			w.clockErr = errors.New("an hour off")
			res := step()
			if res.Code != http.StatusServiceUnavailable || res.Header().Get("Retry-After") == "" ||
				res.Header().Get(account.CodeHeader) != string(account.CodeUnavailable) ||
				!strings.Contains(res.Body.String(), "its clock is wrong") || res.Header().Get("Set-Cookie") != "" {
				t.Errorf("with a wrong clock: %d %v %s", res.Code, res.Header(), res.Body)
			}
			if !strings.Contains(w.log.String(), "an hour off") || len(w.store.logins) != logins {
				t.Errorf("%d logins more, log: %s", len(w.store.logins)-logins, w.log)
			}
			if res := known.get("/"); res.upstream == nil {
				t.Errorf("a person who is logged in: %d", res.Code)
			}
			w.clockErr = nil
			if res := step(); res.Code != http.StatusSeeOther {
				t.Errorf("with the right clock: %d %s", res.Code, res.Body)
			}
		})
	}
}
