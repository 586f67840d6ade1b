// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
)

// gitHub is the part of a GitHub Enterprise Server that a login uses. Every login is alice's,
// without a password.
type gitHub struct {
	mu         sync.Mutex
	challenges map[string]string // of PKCE, by code
	prompts    []string
	emails     string
}

func (g *gitHub) serve(t *testing.T) string {
	g.challenges = map[string]string{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login/oauth/authorize", g.authorize)
	mux.HandleFunc("POST /login/oauth/access_token", g.token)
	bearer := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer gho_token" || body == "" {
				http.Error(w, `{"message":"Not Found"}`, http.StatusNotFound)
				return
			}
			_, _ = w.Write([]byte(body))
		}
	}
	mux.HandleFunc("GET /api/v3/user",
		bearer(`{"id":583231,"login":"alice","name":"Alice Arnold","email":"public@evil.example"}`))
	mux.HandleFunc("GET /api/v3/user/emails", bearer(g.emails))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL
}

func (g *gitHub) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	code := "code-" + q.Get("state")
	g.mu.Lock()
	g.challenges[code] = q.Get("code_challenge")
	g.prompts = append(g.prompts, q.Get("prompt"))
	g.mu.Unlock()
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(),
		http.StatusFound)
}

func (g *gitHub) token(w http.ResponseWriter, r *http.Request) {
	code := r.PostFormValue("code")
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	g.mu.Lock()
	challenge, known := g.challenges[code]
	delete(g.challenges, code)
	g.mu.Unlock()
	answer := map[string]string{"access_token": "gho_token", "token_type": "bearer", "scope": "read:user,user:email"}
	if !known || challenge != base64.RawURLEncoding.EncodeToString(sum[:]) ||
		r.PostFormValue("client_secret") != secretOf("github") {
		// with status 200, as GitHub does
		answer = map[string]string{"error": "bad_verification_code",
			"error_description": "The code passed is incorrect or expired."}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// TestGitHub_LogsIn identifies a user by the account's number, and passes the primary address if it
// is verified.
func TestGitHub_LogsIn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		emails string
		want   string
	}{
		"verified": {
			`[{"email":"old@example.com","primary":false,"verified":true},` +
				`{"email":"alice@example.com","primary":true,"verified":true}]`, alice.email},
		"not verified":  {`[{"email":"alice@example.com","primary":true,"verified":false}]`, ""},
		"no permission": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gitHub{emails: test.emails}
			a := newTenant(t)
			s := a.site("github")
			s.serve(
				always(action{Type: "oauth", Config: map[string]any{"provider": "github", "provider_url": g.serve(t),
					"client_id": "github", "client_secret": secretOf("github")}}),
				rule{Expressions: []string{"actions.oauth.identity.provider_user_id != '583231'"},
					Actions: []action{{Type: "deny"}}})
			b := newBrowser(t)
			back := b.visit(s.url + "/x?y=1")
			e := back.echo(t)
			if e.URL != "/x?y=1" || e.Header.Get("Fairlead-Auth-Email") != test.want ||
				e.Header.Get("Fairlead-Auth-Name") != "Alice Arnold" ||
				e.Header.Get("Fairlead-Auth-Provider") != "GitHub" {
				t.Errorf("the upstream got %+v", e)
			}
			checkCookies(t, back, s, "oauth")
			if status := a.api("DELETE", "/app/users/"+e.Header.Get("Fairlead-Auth-User-Id"), nil,
				nil); status != http.StatusNoContent {
				t.Fatalf("revoking: %d", status)
			}
			if again := b.visit(s.url + "/again").echo(t); again.URL != "/again" {
				t.Errorf("the login after a revoke ends at %s", again.URL)
			}
			if last := g.prompts[len(g.prompts)-1]; last != "select_account" {
				t.Errorf("after a revoke GitHub is asked with the prompt %q", last)
			}
		})
	}
}
