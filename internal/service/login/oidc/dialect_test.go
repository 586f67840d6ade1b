// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/service/login/oidc/oidctest"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

const tenant = "72f988bf-86f1-41af-91ab-2d7cd011db47"

// Microsoft's issuer is a template: the tenant in the token fills it in.
func TestProvider_ChecksTenantOfIssuer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		issuer string // of the description, after the provider's URL
		claims map[string]any
		ok     bool
	}{
		"a tenant": {"/{tenantid}/v2.0", map[string]any{"tid": tenant, "iss": "/" + tenant + "/v2.0"}, true},
		"another tenant": {"/{tenantid}/v2.0",
			map[string]any{"tid": strings.Replace(tenant, "7", "8", 1), "iss": "/" + tenant + "/v2.0"}, false},
		"no tenant":    {"/{tenantid}/v2.0", map[string]any{"iss": "/{tenantid}/v2.0"}, false},
		"the template": {"/{tenantid}/v2.0", map[string]any{"tid": "{tenantid}", "iss": "/{tenantid}/v2.0"}, false},
		"a tenant of one's own": {"/" + tenant + "/v2.0", map[string]any{"tid": tenant, "iss": "/" + tenant + "/v2.0"},
			true},
		"not of one's own": {"/" + tenant + "/v2.0", map[string]any{"tid": tenant, "iss": "/{tenantid}/v2.0"},
			false},
		"an issuer of elsewhere": {"https://evil.example/{tenantid}", map[string]any{"tid": tenant, "iss": "/x"},
			false},
	} {
		p := startProvider(t)
		p.Discovery = map[string]any{"issuer": p.URL + c.issuer}
		if strings.HasPrefix(c.issuer, "https:") {
			p.Discovery["issuer"] = c.issuer
		}
		p.Claims = map[string]any{"tid": c.claims["tid"], "iss": p.URL + c.claims["iss"].(string),
			"email_verified": nil}
		config := configOf(p)
		config.Kind, config.Provider = trafficpolicy.LoginOAuth, "microsoft"
		got, err := handleCallback(t, newTestProvider(t, p, config), "code=c")
		if (err == nil) != c.ok {
			t.Errorf("%s: %+v, %v", name, got, err)
		} else if c.ok && (got.Provider.Name != "Microsoft" || got.Identity.Email != "" ||
			!strings.Contains(got.Key, tenant)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDialectOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, issuer, want, at, prompt string }{
		{"google", "", "Google", google, "select_account"},
		{"", google, "Google", google, "select_account"},
		{"gitlab", "", "GitLab", gitlab, "login"},
		{"gitlab", "https://git.example.com", "GitLab", "https://git.example.com", "login"},
		{"microsoft", "", "Microsoft", microsoft, "login"},
		{"", "https://idp.example.com/realms/a", "idp.example.com", "https://idp.example.com/realms/a", "login"},
	} {
		if d := dialectOf(c.name, c.issuer); d.name != c.want || d.issuer != c.at || d.prompt != c.prompt ||
			d.url != d.issuer {
			t.Errorf("%s %s: %+v", c.name, c.issuer, d)
		}
	}
	p := startProvider(t)
	p.Claims = map[string]any{"groups": nil, "groups_direct": []string{"x/y"}}
	config := configOf(p)
	config.Kind, config.Provider = trafficpolicy.LoginOAuth, "gitlab"
	if got, err := handleCallback(t, newTestProvider(t, p, config), "code=c"); err != nil ||
		!reflect.DeepEqual(got.Identity.Groups,
			[]string{"x/y"}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestGitHub_LogsIn(t *testing.T) {
	t.Parallel()
	user := `{"id": 1078, "login": "ann", "name": "Ann", "email": "public@example.com"}`
	emails, status := `[{"email": "old@example.com", "primary": false, "verified": true}, `+
		`{"email": "ann@example.com", "primary": true, "verified": true}]`, http.StatusOK
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login/oauth/access_token", func(w http.ResponseWriter, r *http.Request) {
		if r.PostFormValue("client_secret") != "hush" || r.PostFormValue("code_verifier") == "" {
			t.Errorf("asked with %v", r.PostForm)
		}
		w.Header().Set("Content-Type", "application/x-www-form-urlencoded")
		if r.PostFormValue("code") != "c" {
			_, _ = w.Write([]byte("error=bad_verification_code&error_description=expired"))
			return
		}
		_, _ = w.Write([]byte("access_token=gho&scope=read%3Auser&token_type=bearer"))
	})
	mux.HandleFunc("GET /api/v3/user", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer gho" {
			t.Errorf("asked with %v", r.Header)
		}
		_, _ = w.Write([]byte(user))
	})
	mux.HandleFunc("GET /api/v3/user/emails", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(emails))
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	made, err := Factory()(&trafficpolicy.LoginConfig{Kind: trafficpolicy.LoginOAuth, Provider: "github",
		IssuerURL: srv.URL + "/", ClientID: "client", ClientSecret: "hush"}, srv.Client())
	if err != nil {
		t.Fatal(err)
	}
	p := made.(login.CallbackProvider)
	start, err := p.StartFlow(t.Context(), &login.Flow{State: "s", Verifier: "v", ForceReauth: true}, testAction)
	if q := parseURL(t, start.URL).Query(); err != nil || q.Get("prompt") != "select_account" ||
		q.Get("code_challenge_method") != "S256" || q.Get("scope") != "read:user user:email" ||
		!strings.HasPrefix(start.URL, srv.URL+"/login/oauth/authorize?") {
		t.Errorf("%s %v", start.URL, err)
	}
	got, err := handleCallback(t, p, "code=c")
	if err != nil || got.Key != "github\x00"+srv.URL+"\x001078" || got.Issuer != "" || !got.AuthTime.IsZero() ||
		!reflect.DeepEqual(got.Identity, account.LoginIdentity{ProviderUserID: "1078", Username: "ann",
			Email: "ann@example.com", Name: "Ann"}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := handleCallback(t, p, "code=d"); account.CodeOf(err) != account.CodeLoginFailed {
		t.Errorf("a bad code: %v", err)
	}
	for what, change := range map[string]func(){
		"not verified":  func() { emails = `[{"email": "ann@example.com", "primary": true, "verified": false}]` },
		"not permitted": func() { status = http.StatusNotFound },
	} {
		change()
		if got, err := handleCallback(t, p, "code=c"); err != nil || got.Identity.Email != "" {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	user = `{"login": "ann"}`
	if got, err := handleCallback(t, p, "code=c"); got != nil || account.CodeOf(err) != account.CodeProviderFailed {
		t.Errorf("a user without an id: %+v, %v", got, err)
	}
}

// A document that cannot be read is fetched again, but not by every caller at once; one that was
// read counts on while it cannot be read again.
func TestDiscovery_RetriesAndKeeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, down := 0, true
		client := &http.Client{Transport: oidctest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			asked++
			w := httptest.NewRecorder()
			if down {
				w.WriteHeader(http.StatusServiceUnavailable)
			} else {
				oidctest.WriteJSON(w, map[string]any{"issuer": "https://idp.example.com",
					"authorization_endpoint": "https://idp.example.com/a",
					"token_endpoint":         "https://idp.example.com/t",
					"jwks_uri":               "https://idp.example.com/k"})
			}
			return w.Result(), nil
		})}
		d := &discovery{dialect: dialectOf("", "https://idp.example.com"), client: client, keys: newKeySets()}
		for range 3 {
			if _, err := d.get(t.Context()); err == nil || asked != 1 {
				t.Fatalf("%v, asked %d times", err, asked)
			}
		}
		down = false
		time.Sleep(discoveryRetry)
		first, err := d.get(t.Context())
		if err != nil || asked != 2 {
			t.Fatalf("%v, asked %d times", err, asked)
		}
		down = true
		time.Sleep(discoveryFresh)
		for range 3 {
			if again, err := d.get(t.Context()); err != nil || again != first {
				t.Errorf("%v", err)
			}
			synctest.Wait()
		}
		if asked != 3 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// The URLs of a discovery document are the tenant's input, too.
func TestDiscovery_RefusesInvalidDocuments(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]map[string]any{
		"another issuer": {"issuer": "https://evil.example"}, "no keys": {"jwks_uri": ""},
		"no token endpoint": {"token_endpoint": ""},
		"a script":          {"authorization_endpoint": "javascript:alert(1)"},
		"no URL":            {"authorization_endpoint": "/authorize"},
		"with a user":       {"authorization_endpoint": "https://a:b@c"},
	} {
		p := startProvider(t)
		p.Discovery = change
		if start, err := newTestProvider(t, p, configOf(p)).StartFlow(t.Context(), &login.Flow{State: "s"},
			testAction); account.CodeOf(err) != account.CodeProviderFailed {
			t.Errorf("%s: %+v, %v", name, start, err)
		}
	}
}
