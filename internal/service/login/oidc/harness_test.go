// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
)

var testAction = login.Action{AccountID: "ac", EndpointURL: "https://app.example.com", AuthID: "oidc"}

func startProvider(t *testing.T) *oidctest.Provider { return prepare(oidctest.Start(t)) }

// prepare makes the provider log in one person with any code.
func prepare(p *oidctest.Provider) *oidctest.Provider {
	p.Nonce = "nonce"
	p.Person = map[string]any{"sub": "1078", "email": "ann@example.com", "email_verified": true, "name": "Ann",
		"preferred_username": "ann", "groups": []string{"a", "b"}, "sid": "sid", "auth_time": 1_700_000_000,
		"department": "sales", "level": 3}
	return p
}

// preparedIdentity returns the identity of the person whom prepare logs in.
func preparedIdentity() account.LoginIdentity {
	return account.LoginIdentity{ProviderUserID: "1078", Username: "ann", Email: "ann@example.com", Name: "Ann",
		Groups: []string{"a", "b"}, Attributes: map[string][]string{"department": {"sales"}, "level": {"3"}}}
}

func configOf(p *oidctest.Provider) trafficpolicy.LoginConfig {
	return trafficpolicy.LoginConfig{Kind: trafficpolicy.LoginOIDC, IssuerURL: p.URL, ClientID: oidctest.ClientID,
		ClientSecret: oidctest.ClientSecret}
}

func newTestProvider(t *testing.T, p *oidctest.Provider, c trafficpolicy.LoginConfig) login.CallbackProvider {
	t.Helper()
	made, err := Factory()(&c, p.Client)
	if err != nil {
		t.Fatal(err)
	}
	return made.(login.CallbackProvider)
}

// handleCallback passes the query of a callback to the provider.
func handleCallback(t *testing.T, p login.CallbackProvider, query string) (*login.Authentication, error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/_fairlead/oidc/callback?"+query, nil)
	return p.HandleCallback(t.Context(), r,
		&login.Flow{State: "state", Nonce: "nonce", Verifier: strings.Repeat("v", 43),
			StartedAt: time.Now()}, testAction)
}

// verifyLogout posts a logout token to the provider.
func verifyLogout(t *testing.T, p login.Provider, token string) (login.LogoutToken, error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/_fairlead/oidc/logout", nil)
	r.PostForm = url.Values{"logout_token": {token}}
	return p.(login.LogoutVerifier).VerifyLogout(t.Context(), r)
}

func parseURL(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// userMessage returns what the person is shown.
func userMessage(err error) string {
	var e *account.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Msg
}

// loggedCause returns what is logged.
func loggedCause(err error) string {
	var e *account.Error
	if !errors.As(err, &e) || e.Cause == nil {
		return ""
	}
	return e.Cause.Error()
}
