// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/service/dashboard"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// canceledRevoker is a Revoker that cancels its client's request before it revokes.
type canceledRevoker struct {
	account.Revoker
	cancel context.CancelFunc // ends the client's request
	result chan error
}

func (r *canceledRevoker) Revoke(
	ctx context.Context, by account.Caller, sel account.RevokeSelector, reason string,
) (*account.Revocation, error) {
	r.cancel()
	<-ctx.Done() // the caller passes the context of its request
	done, err := r.Revoker.Revoke(ctx, by, sel, reason)
	r.result <- err
	return done, err
}

// TestRevoke_CompletesWithoutItsClient cancels the client's request in every way to revoke.
func TestRevoke_CompletesWithoutItsClient(t *testing.T) {
	t.Parallel()
	hook := &canceledRevoker{result: make(chan error, 1)}
	c := startSessionLoad(t, func(o *service.Options) {
		o.SetWrapRevoker(func(r account.Revoker) account.Revoker { hook.Revoker = r; return hook })
	})
	p := newDashboardBrowser(c.Server)
	p.signIn(c.APIKey)
	base := "https://" + c.Addrs.Service.String()
	for name, request := range map[string]func(m loadSession) (*http.Client, *http.Request){
		"API": func(m loadSession) (*http.Client, *http.Request) {
			r := newRequest(t, "DELETE", base+"/app/sessions/"+m.session, nil)
			r.Header.Set("Authorization", "Bearer "+c.APIKey)
			r.Header.Set("Service-Version", "2")
			return &http.Client{Transport: p.via}, r
		},
		"dashboard": func(m loadSession) (*http.Client, *http.Request) {
			r := newRequest(t, "POST", base+"/ui/traffic-policy/sessions/"+m.session+"/revoke", url.Values{})
			r.AddCookie(&http.Cookie{Name: dashboard.CookieName(r.Host), Value: p.cookie})
			return &http.Client{Transport: p.via}, r
		},
		"logout": func(m loadSession) (*http.Client, *http.Request) {
			r := newRequest(t, "POST", loadURL+"/_fairlead/oidc/logout", url.Values{})
			r.Header.Set("Cookie", m.cookie)
			return c.newLoginBrowser(), r
		},
		"back-channel logout": func(loadSession) (*http.Client, *http.Request) {
			return c.newLoginBrowser(), newLogoutRequest(t, loadURL,
				c.idp.Sign(c.idp.LogoutClaims("back-channel logout")))
		},
	} {
		m := c.addSessionOfClient(oidctest.ClientID, name)
		client, r := request(m)
		ctx, cancel := context.WithCancel(servicetest.Context(t))
		hook.cancel = cancel
		if res, err := client.Do(r.WithContext(ctx)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: the client gets %v, %v", name, res, err)
		}
		if err := servicetest.Receive(t, hook.result, "revocation by "+name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if status := c.status(m); status != http.StatusUnauthorized {
			t.Errorf("%s: the session is alive: %d", name, status)
		}
	}
}

// newRequest returns a request of the same origin, with a form unless it is nil.
func newRequest(t *testing.T, method, target string, form url.Values) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(form.Encode()))
	must.Succeed(t, err)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}
