// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
)

func TestProvider_StartsFlow(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	c := configOf(p)
	c.AuthzURLParams = map[string]string{"hd": "example.com", "prompt": "consent"}
	provider := newTestProvider(t, p, c)
	for fresh, want := range map[bool]map[string]string{
		false: {"prompt": "consent", "max_age": "", "hd": "example.com", "x": "y", "scope": "openid profile email",
			"state": "state", "nonce": "nonce", "response_type": "code", "client_id": "client",
			"redirect_uri": "https://app.example.com/_fairlead/oidc/callback", "code_challenge_method": "S256"},
		true: {"prompt": "login", "max_age": "0"},
	} {
		start, err := provider.StartFlow(t.Context(), &login.Flow{State: "state", Nonce: "nonce", Verifier: "verifier",
			ForceReauth: fresh}, testAction)
		if err != nil {
			t.Fatal(err)
		}
		q := parseURL(t, start.URL).Query()
		for name, value := range want {
			if q.Get(name) != value {
				t.Errorf("fresh %v: %s=%q, want %q", fresh, name, q.Get(name), value)
			}
		}
		if len(q.Get("code_challenge")) != 43 || strings.Contains(start.URL, "verifier") ||
			strings.Contains(start.URL, "hush") {
			t.Errorf("to %s", start.URL)
		}
	}
	c = configOf(p)
	c.Scopes = []string{"groups"}
	start, err := newTestProvider(t, p, c).StartFlow(t.Context(), &login.Flow{State: "s"}, testAction)
	if err != nil || parseURL(t, start.URL).Query().Get("scope") != "openid groups" {
		t.Errorf("%s %v", start.URL, err)
	}
}

func TestProvider_HandlesCallback(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	p.Token = func(_ http.ResponseWriter, r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		if user != "client" || password != url.QueryEscape(oidctest.ClientSecret) || r.PostFormValue("code") != "c" ||
			r.PostFormValue("code_verifier") != strings.Repeat("v", 43) {
			t.Errorf("the token endpoint got %s, %v", user, r.PostForm)
		}
		return false
	}
	got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c")
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(p.URL, "http://")
	want := &login.Authentication{AuthTimeRequired: true, Authentication: account.Authentication{
		Key:      "oidc\x00" + p.URL + "\x001078",
		Provider: account.IdentityProvider{Name: host, URL: p.URL}, Issuer: p.URL, Client: "client", Subject: "1078",
		SessionID: "sid",
		AuthTime:  time.Unix(1_700_000_000, 0).UTC(), Identity: preparedIdentity()}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if n := p.Requests("/userinfo"); n != 0 {
		t.Errorf("%d requests to userinfo for claims that the token has", n)
	}
}

// expectTokenRefused logs in with p, and checks that its ID token is refused, and the cause logged
// without the client's secret.
func expectTokenRefused(t *testing.T, p *oidctest.Provider) {
	t.Helper()
	got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c")
	if got != nil || account.CodeOf(err) != account.CodeLoginFailed || loggedCause(err) == "" ||
		strings.Contains(err.Error(), "hush") {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestProvider_RefusesInvalidClaims(t *testing.T) {
	t.Parallel()
	for name, claims := range map[string]map[string]any{
		"another issuer":          {"iss": "https://evil.example"},
		"the issuer with a slash": {"iss": "http://127.0.0.1/"},
		"another client":          {"aud": "other"},
		"no client":               {"aud": nil},
		"two clients, no party":   {"aud": []string{"client", "other"}},
		"another party":           {"aud": []string{"client", "other"}, "azp": "other"},
		"expired":                 {"exp": time.Now().Add(-time.Hour).Unix()},
		"without an end":          {"exp": nil},
		"issued in the future":    {"iat": time.Now().Add(2 * time.Minute).Unix()},
		"issued before the login": {"iat": time.Now().Add(-2 * time.Minute).Unix()},
		"issued at no time":       {"iat": nil},
		"issued at zero":          {"iat": 0},
		"not yet":                 {"nbf": time.Now().Add(time.Hour).Unix()},
		"another nonce":           {"nonce": "other"},
		"no nonce":                {"nonce": nil},
		"no subject":              {"sub": nil},
		"an empty subject":        {"sub": ""},
		"another access token":    {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProvider(t)
			p.Claims = claims
			expectTokenRefused(t, p)
		})
	}
}

func TestProvider_RefusesInvalidSignatures(t *testing.T) {
	t.Parallel()
	encode := func(claims map[string]any) string {
		b, _ := json.Marshal(claims)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	for name, sign := range map[string]func(p *oidctest.Provider, claims map[string]any) string{
		"in JSON, flattened": func(p *oidctest.Provider, c map[string]any) string { return inJSON(p.Sign(c), false) },
		"in JSON, general":   func(p *oidctest.Provider, c map[string]any) string { return inJSON(p.Sign(c), true) },
		"none":               func(*oidctest.Provider, map[string]any) string { return "" },
		"no token":           func(*oidctest.Provider, map[string]any) string { return "not.a.token" },
		"signed with another key": func(p *oidctest.Provider, claims map[string]any) string {
			return p.SignWith(jose.SigningKey{Algorithm: jose.ES256,
				Key: jose.JSONWebKey{Key: oidctest.NewKey(t), KeyID: p.KeyID}}, claims)
		},
		"signed with the secret": func(p *oidctest.Provider, claims map[string]any) string {
			return p.SignWith(jose.SigningKey{Algorithm: jose.HS256,
				Key: []byte(strings.Repeat(oidctest.ClientSecret, 3))}, claims)
		},
		"not signed": func(_ *oidctest.Provider, claims map[string]any) string {
			return encode(map[string]any{"alg": "none"}) + "." + encode(claims) + "."
		},
		"with another body": func(p *oidctest.Provider, claims map[string]any) string {
			parts := strings.Split(p.Sign(claims), ".")
			claims["sub"] = "1"
			return parts[0] + "." + encode(claims) + "." + parts[2]
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProvider(t)
			p.SignToken = func(claims map[string]any) string { return sign(p, claims) }
			expectTokenRefused(t, p)
		})
	}
}

func TestProvider_RefusesInvalidCallbacks(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	advertises := startProvider(t)
	advertises.Discovery = map[string]any{"authorization_response_iss_parameter_supported": true}
	for name, c := range map[string]struct {
		p     *oidctest.Provider
		query string
		code  account.Code
	}{
		"refused":                        {p, "error=access_denied&code=c", account.CodeLoginFailed},
		"refused with a script":          {p, "error=<script>alert(1)</script>", account.CodeLoginFailed},
		"nothing":                        {p, "", account.CodeLoginFailed},
		"another issuer (mix-up)":        {p, "code=c&iss=https://evil.example", account.CodeLoginFailed},
		"no issuer, although advertised": {advertises, "code=c", account.CodeLoginFailed},
	} {
		got, err := handleCallback(t, newTestProvider(t, c.p, configOf(c.p)), c.query)
		if got != nil || account.CodeOf(err) != c.code || strings.Contains(userMessage(err), "<") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := handleCallback(t, newTestProvider(t, advertises, configOf(advertises)),
		"code=c&iss="+url.QueryEscape(advertises.URL)); err != nil {
		t.Errorf("with its issuer: %v", err)
	}
}

// TestProvider_ClassifiesExchangeErrors fails the login for an authorization code that was used,
// and the provider for any other error of the token endpoint. The error never has the client's
// secret.
func TestProvider_ClassifiesExchangeErrors(t *testing.T) {
	t.Parallel()
	for body, code := range map[string]account.Code{`{"error":"invalid_grant"}`: account.CodeLoginFailed,
		`{"error":"invalid_client","error_description":"wrong"}`: account.CodeProviderFailed,
		`hush/secret`: account.CodeProviderFailed, ``: account.CodeProviderFailed} {
		p := startProvider(t)
		p.Token = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(body))
			return true
		}
		if _, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c"); account.CodeOf(err) != code ||
			strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// longText is one byte longer than a text that is kept of a person.
var longText = strings.Repeat("x", maxText+1)

// identityCases are claims and userinfo that differ from those of prepare.
var identityCases = map[string]struct {
	claims, userinfo map[string]any
	change           func(id *account.LoginIdentity) // from preparedIdentity
}{
	"email not verified":             {claims: map[string]any{"email_verified": false}, change: withoutEmail},
	"no email_verified":              {claims: map[string]any{"email_verified": nil}, change: withoutEmail},
	"email_verified as a text":       {claims: map[string]any{"email_verified": "true"}},
	"email_verified of another type": {claims: map[string]any{"email_verified": []int{1}}, change: withoutEmail},
	"xms_edov of another provider": {claims: map[string]any{"email_verified": nil, "xms_edov": true},
		change: withoutEmail},
	"xms_edov, and email not verified": {claims: map[string]any{"email_verified": false, "xms_edov": true},
		change: withoutEmail},
	"one group": {claims: map[string]any{"groups": "a"},
		change: func(id *account.LoginIdentity) { id.Groups = []string{"a"} }},
	"groups of another type": {claims: map[string]any{"groups": map[string]int{"a": 1}},
		change: func(id *account.LoginIdentity) { id.Groups = nil }},
	"long texts": {claims: map[string]any{"department": []string{longText, "b"}, "preferred_username": longText},
		change: func(id *account.LoginIdentity) { id.Username = ""; delete(id.Attributes, "department") }},
	"name and email from userinfo": {claims: map[string]any{"name": nil, "email": nil, "email_verified": nil},
		userinfo: map[string]any{"sub": "1078", "name": "Ann", "email": "ann@example.com", "email_verified": true}},
	"userinfo that verifies another email": {claims: map[string]any{"name": nil, "email_verified": false},
		userinfo: map[string]any{"sub": "1078", "name": "Ann", "email": "eve@example.com", "email_verified": true},
		change:   withoutEmail},
}

func withoutEmail(id *account.LoginIdentity) { id.Email = "" }

func TestProvider_ReadsIdentity(t *testing.T) {
	t.Parallel()
	for name, c := range identityCases {
		p := startProvider(t)
		p.Claims, p.UserInfo = c.claims, c.userinfo
		want := preparedIdentity()
		if c.change != nil {
			c.change(&want)
		}
		got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c")
		if err != nil || !reflect.DeepEqual(got.Identity, want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
}

// TestProvider_RefusesIdentity refuses userinfo of another person, and too many or too long groups.
func TestProvider_RefusesIdentity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		claims, userinfo map[string]any
		want             account.Code
	}{
		"userinfo of another person": {map[string]any{"name": nil}, map[string]any{"sub": "666", "name": "Eve"},
			account.CodeProviderFailed},
		"a long group": {map[string]any{"groups": []string{"a", longText}}, nil, account.CodeLoginFailed},
		"many groups":  {map[string]any{"groups": make([]string, maxGroups+1)}, nil, account.CodeLoginFailed},
	} {
		p := startProvider(t)
		p.Claims, p.UserInfo = c.claims, c.userinfo
		got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c")
		if got != nil || account.CodeOf(err) != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestProvider_ReadsAuthTime reads an auth_time of zero or less like none.
func TestProvider_ReadsAuthTime(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	for claim, want := range map[any]time.Time{1_700_000_000: time.Unix(1_700_000_000, 0).UTC(), 0: {}, -1: {},
		nil: {}} {
		p.Claims = map[string]any{"auth_time": claim}
		if got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c"); err != nil ||
			!got.AuthTime.Equal(want) {
			t.Errorf("auth_time %v: %+v, %v", claim, got, err)
		}
	}
}

// TestProvider_RequiresAuthTime requires auth_time of providers known to send it, unless the config
// sets require_auth_time.
func TestProvider_RequiresAuthTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind       trafficpolicy.LoginKind
		provider   string
		configured *bool
		want       bool
	}{
		{trafficpolicy.LoginOIDC, "", nil, true},
		{trafficpolicy.LoginOIDC, "", new(false), false},
		{trafficpolicy.LoginOAuth, "gitlab", nil, true},
		{trafficpolicy.LoginOAuth, "microsoft", nil, false},
		{trafficpolicy.LoginOAuth, "microsoft", new(true), true},
		{trafficpolicy.LoginOAuth, "google", nil, false},
	} {
		p := startProvider(t)
		if c.provider == "microsoft" { // its issuers have a path
			p.Discovery, p.Claims = map[string]any{"issuer": p.URL + "/v2.0"}, map[string]any{"iss": p.URL + "/v2.0"}
		}
		config := configOf(p)
		config.Kind, config.Provider, config.RequireAuthTime = c.kind, c.provider, c.configured
		if got, err := handleCallback(t, newTestProvider(t, p, config), "code=c"); err != nil ||
			got.AuthTimeRequired != c.want {
			t.Errorf("%s %s: %+v, %v", c.kind, c.provider, got, err)
		}
	}
}

func TestProvider_VerifiesLogoutTokens(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	provider := newTestProvider(t, p, configOf(p))
	good := p.LogoutClaims("1078")
	good["sid"] = "s"
	verify := func(token string) (login.LogoutToken, error) { return verifyLogout(t, provider, token) }
	if got, err := verify(p.Sign(good)); err != nil || got.Issuer != p.URL || got.Client != "client" ||
		got.Subject != "1078" || got.SessionID != "s" || got.ID != "jti-1078" || got.Expires.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	for name, change := range map[string]map[string]any{
		"issued at no time": {"iat": nil}, "issued at zero": {"iat": 0},
		"issued in the future": {"iat": time.Now().Add(2 * time.Minute).Unix()},
		"of another issuer":    {"iss": "https://evil.example"}, "for another client": {"aud": "other"},
		"expired": {"exp": time.Now().Add(-time.Hour).Unix()}, "without an end": {"exp": nil},
		"without an id": {"jti": nil}, "without session and subject": {"sid": nil, "sub": nil},
		"with a nonce":     {"nonce": "n"},
		"of another event": {"events": map[string]any{"x": map[string]any{}}},
		"of no event":      {"events": map[string]any{logoutEvent: nil}},
		"of a list":        {"events": map[string]any{logoutEvent: []any{}}},
		"of a text":        {"events": map[string]any{logoutEvent: "{}"}},
		"an ID token":      {"events": nil, "nonce": "n"},
	} {
		if got, err := verify(p.Sign(oidctest.Changed(good, change))); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got, err := verify(inJSON(p.Sign(good), false)); err == nil {
		t.Errorf("in JSON: %+v", got)
	}
	p.Claims = map[string]any{"nonce": nil} // a logout token in the place of an ID token
	p.SignToken = func(map[string]any) string { return p.Sign(good) }
	if got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c"); err == nil {
		t.Errorf("a logout token logs in %+v", got)
	}
}

func TestProvider_ScopeDiffers(t *testing.T) {
	t.Parallel()
	names := map[string]string{} // by scope
	for name, c := range map[string]trafficpolicy.LoginConfig{
		"one": {Kind: trafficpolicy.LoginOIDC, IssuerURL: "https://a.example", ClientID: "c",
			ClientSecret: "hush"},
		"another issuer": {Kind: trafficpolicy.LoginOIDC, IssuerURL: "https://b.example", ClientID: "c",
			ClientSecret: "hush"},
		"another client": {Kind: trafficpolicy.LoginOIDC, IssuerURL: "https://a.example", ClientID: "d",
			ClientSecret: "hush"},
		"github": {Kind: trafficpolicy.LoginOAuth, Provider: "github", ClientID: "c", ClientSecret: "hush"},
		"google": {Kind: trafficpolicy.LoginOAuth, Provider: "google", ClientID: "c", ClientSecret: "hush"},
	} {
		p, err := Factory()(&c, http.DefaultClient)
		if err != nil {
			t.Fatal(err)
		}
		scope := p.Scope()
		if names[scope] != "" || strings.Contains(scope, "hush") {
			t.Errorf("%s has the scope of %s: %q", name, names[scope], scope)
		}
		names[scope] = name
	}
	if _, err := Factory()(&trafficpolicy.LoginConfig{Kind: trafficpolicy.LoginSAML}, http.DefaultClient); err == nil {
		t.Error("the factory makes a saml provider")
	}
}
