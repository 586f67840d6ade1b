// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// fakeGitHub is a GitHub Enterprise Server that exchanges the code "c".
type fakeGitHub struct {
	t            *testing.T
	user, emails string // bodies of the REST API
	emailStatus  int
}

// startGitHub returns a fake with one verified address, its URL and the provider of a policy.
func startGitHub(t *testing.T) (*fakeGitHub, string, login.CallbackProvider) {
	t.Helper()
	g := &fakeGitHub{t: t, emailStatus: http.StatusOK,
		user: `{"id": 1078, "login": "ann", "name": "Ann", "email": "public@example.com"}`,
		emails: `[{"email": "old@example.com", "primary": false, "verified": true}, ` +
			`{"email": "ann@example.com", "primary": true, "verified": true}]`}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login/oauth/access_token", g.serveToken)
	mux.HandleFunc("GET /api/v3/user", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer gho" {
			t.Errorf("request with %v", r.Header)
		}
		_, _ = w.Write([]byte(g.user))
	})
	mux.HandleFunc("GET /api/v3/user/emails", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(g.emailStatus)
		_, _ = w.Write([]byte(g.emails))
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	p, err := Factory()(&trafficpolicy.LoginConfig{Kind: trafficpolicy.LoginOAuth, Provider: "github",
		IssuerURL: srv.URL + "/", ClientID: "client", ClientSecret: "hush"}, srv.Client())
	if err != nil {
		t.Fatal(err)
	}
	return g, srv.URL, p.(login.CallbackProvider)
}

func (g *fakeGitHub) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("client_secret") != "hush" || r.PostFormValue("code_verifier") == "" {
		g.t.Errorf("token request with %v", r.PostForm)
	}
	w.Header().Set("Content-Type", "application/x-www-form-urlencoded")
	if r.PostFormValue("code") != "c" {
		_, _ = w.Write([]byte("error=bad_verification_code&error_description=expired"))
		return
	}
	_, _ = w.Write([]byte("access_token=gho&scope=read%3Auser&token_type=bearer"))
}

func TestGitHub_StartsFlow(t *testing.T) {
	t.Parallel()
	_, url, p := startGitHub(t)
	start, err := p.StartFlow(t.Context(), &login.Flow{State: "s", Verifier: "v", ForceReauth: true}, testAction)
	if q := parseURL(t, start.URL).Query(); err != nil || q.Get("prompt") != "select_account" ||
		q.Get("code_challenge_method") != "S256" || q.Get("scope") != "read:user user:email" ||
		!strings.HasPrefix(start.URL, url+"/login/oauth/authorize?") {
		t.Errorf("%s %v", start.URL, err)
	}
}

func TestGitHub_LogsIn(t *testing.T) {
	t.Parallel()
	g, url, p := startGitHub(t)
	got, err := handleCallback(t, p, "code=c")
	if err != nil || got.Key != "github\x00"+url+"\x001078" || got.Issuer != "" || !got.AuthTime.IsZero() ||
		!reflect.DeepEqual(got.Identity, account.LoginIdentity{ProviderUserID: "1078", Username: "ann",
			Email: "ann@example.com", Name: "Ann"}) {
		t.Errorf("%+v, %v", got, err)
	}
	g.emails = `[{"email": "ann@example.com", "primary": true, "verified": false}]`
	if got, err := handleCallback(t, p, "code=c"); err != nil || got.Identity.Email != "" {
		t.Errorf("an address that is not verified: %+v, %v", got, err)
	}
	g.emailStatus = http.StatusNotFound
	if got, err := handleCallback(t, p, "code=c"); err != nil || got.Identity.Email != "" {
		t.Errorf("without permission to read addresses: %+v, %v", got, err)
	}
}

func TestGitHub_RefusesInvalidResponses(t *testing.T) {
	t.Parallel()
	g, _, p := startGitHub(t)
	if _, err := handleCallback(t, p, "code=d"); account.CodeOf(err) != account.CodeLoginFailed {
		t.Errorf("a bad code: %v", err)
	}
	g.user = `{"login": "ann"}`
	if got, err := handleCallback(t, p, "code=c"); got != nil || account.CodeOf(err) != account.CodeProviderFailed {
		t.Errorf("a user without an id: %+v, %v", got, err)
	}
}
