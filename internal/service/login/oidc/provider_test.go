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
	"github.com/fairlead-dev/fairlead/internal/service/login/oidc/oidctest"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
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
			t.Errorf("asked with %s, %v", user, r.PostForm)
		}
		return false
	}
	got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c")
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(p.URL, "http://")
	want := &login.Authentication{Key: "oidc\x00" + p.URL + "\x001078",
		Provider: account.IdentityProvider{Name: host, URL: p.URL}, Issuer: p.URL, Client: "client", Subject: "1078",
		SessionID: "sid",
		AuthTime:  time.Unix(1_700_000_000, 0).UTC(), AuthTimeRequired: true,
		Identity: account.LoginIdentity{ProviderUserID: "1078", Username: "ann", Email: "ann@example.com", Name: "Ann",
			Groups: []string{"a", "b"}, Attributes: map[string][]string{"department": {"sales"}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if n := p.Requests("/userinfo"); n != 0 {
		t.Errorf("userinfo was asked %d times for what the token says", n)
	}
}

func TestProvider_RefusesInvalidTokens(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		claims map[string]any
		sign   func(p *oidctest.Provider, claims map[string]any) string
	}{
		"another issuer":          {claims: map[string]any{"iss": "https://evil.example"}},
		"the issuer with a slash": {claims: map[string]any{"iss": "http://127.0.0.1/"}},
		"another client":          {claims: map[string]any{"aud": "other"}},
		"no client":               {claims: map[string]any{"aud": nil}},
		"two clients, no party":   {claims: map[string]any{"aud": []string{"client", "other"}}},
		"another party":           {claims: map[string]any{"aud": []string{"client", "other"}, "azp": "other"}},
		"expired":                 {claims: map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}},
		"without an end":          {claims: map[string]any{"exp": nil}},
		"issued in the future":    {claims: map[string]any{"iat": time.Now().Add(2 * time.Minute).Unix()}},
		"issued before the login": {claims: map[string]any{"iat": time.Now().Add(-2 * time.Minute).Unix()}},
		"issued at no time":       {claims: map[string]any{"iat": nil}},
		"issued at zero":          {claims: map[string]any{"iat": 0}},
		"in JSON, flattened": {sign: func(p *oidctest.Provider, claims map[string]any) string {
			return inJSON(p.Sign(claims), false)
		}},
		"in JSON, general": {sign: func(p *oidctest.Provider, claims map[string]any) string {
			return inJSON(p.Sign(claims), true)
		}},
		"not yet":              {claims: map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}},
		"another nonce":        {claims: map[string]any{"nonce": "other"}},
		"no nonce":             {claims: map[string]any{"nonce": nil}},
		"no subject":           {claims: map[string]any{"sub": nil}},
		"an empty subject":     {claims: map[string]any{"sub": ""}},
		"another access token": {claims: map[string]any{"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}},
		"none":                 {sign: func(_ *oidctest.Provider, _ map[string]any) string { return "" }},
		"no token":             {sign: func(_ *oidctest.Provider, _ map[string]any) string { return "not.a.token" }},
		"signed with another key": {sign: func(p *oidctest.Provider, claims map[string]any) string {
			return p.SignWith(jose.SigningKey{Algorithm: jose.ES256,
				Key: jose.JSONWebKey{Key: oidctest.NewKey(t), KeyID: p.KeyID}},
				claims)
		}},
		"signed with the secret": {sign: func(p *oidctest.Provider, claims map[string]any) string {
			return p.SignWith(jose.SigningKey{Algorithm: jose.HS256,
				Key: []byte(strings.Repeat(oidctest.ClientSecret, 3))},
				claims)
		}},
		"not signed": {sign: func(p *oidctest.Provider, claims map[string]any) string {
			b, _ := json.Marshal(claims)
			return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." +
				base64.RawURLEncoding.EncodeToString(b) + "."
		}},
		"with another body": {sign: func(p *oidctest.Provider, claims map[string]any) string {
			parts := strings.Split(p.Sign(claims), ".")
			claims["sub"] = "1"
			b, _ := json.Marshal(claims)
			return parts[0] + "." + base64.RawURLEncoding.EncodeToString(b) + "." + parts[2]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProvider(t)
			p.Claims = c.claims
			if c.sign != nil {
				p.SignToken = func(claims map[string]any) string { return c.sign(p, claims) }
			}
			got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c")
			if got != nil || account.CodeOf(err) != account.CodeLoginFailed || loggedCause(err) == "" ||
				strings.Contains(err.Error(), "hush") {
				t.Errorf("%+v, %v", got, err)
			}
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
		"refused with a sermon":          {p, "error=<script>alert(1)</script>", account.CodeLoginFailed},
		"nothing":                        {p, "", account.CodeLoginFailed},
		"another issuer (mix-up)":        {p, "code=c&iss=https://evil.example", account.CodeLoginFailed},
		"no issuer, although it says so": {advertises, "code=c", account.CodeLoginFailed},
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
	// What the token endpoint says: a code that was used is the person's to repeat, anything else
	// the endpoint's owner's to repair.
	for body, code := range map[string]account.Code{`{"error":"invalid_grant"}`: account.CodeLoginFailed,
		`{"error":"invalid_client","error_description":"wrong"}`: account.CodeProviderFailed,
		`hush/secret`: account.CodeProviderFailed, ``: account.CodeProviderFailed} {
		q := startProvider(t)
		q.Token = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(body))
			return true
		}
		if _, err := handleCallback(t, newTestProvider(t, q, configOf(q)), "code=c"); account.CodeOf(err) != code ||
			strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestProvider_ReadsIdentity(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxText+1)
	for name, c := range map[string]struct {
		claims, userinfo map[string]any
		want             func(id *account.LoginIdentity)
	}{
		"an address that is not verified": {map[string]any{"email_verified": false}, nil,
			func(id *account.LoginIdentity) {
				id.Email = ""
			}},
		"of which nothing is said": {map[string]any{"email_verified": nil}, nil, func(id *account.LoginIdentity) {
			id.Email = ""
		}},
		"verified in words": {map[string]any{"email_verified": "true"}, nil, func(*account.LoginIdentity) {}},
		"verified by nonsense": {map[string]any{"email_verified": []int{1}}, nil, func(id *account.LoginIdentity) {
			id.Email = ""
		}},
		"by the domain's owner": {map[string]any{"email_verified": nil, "xms_edov": true}, nil,
			func(id *account.LoginIdentity) { id.Email = "" }},
		"by it, but not by the provider": {map[string]any{"email_verified": false, "xms_edov": true}, nil,
			func(id *account.LoginIdentity) { id.Email = "" }},
		"one group": {map[string]any{"groups": "a"}, nil, func(id *account.LoginIdentity) {
			id.Groups = []string{"a"}
		}},
		"groups that are none": {map[string]any{"groups": map[string]int{"a": 1}}, nil,
			func(id *account.LoginIdentity) { id.Groups = nil }},
		"long texts": {map[string]any{"department": []string{long, "b"}, "preferred_username": long},
			nil, func(id *account.LoginIdentity) { id.Username = ""; id.Attributes = nil }},
		"the rest from userinfo": {map[string]any{"name": nil, "email": nil, "email_verified": nil},
			map[string]any{"sub": "1078", "name": "Ann", "email": "ann@example.com", "email_verified": true},
			func(*account.LoginIdentity) {}},
		"userinfo that verifies another": {map[string]any{"name": nil, "email_verified": false},
			map[string]any{"sub": "1078", "name": "Ann", "email": "eve@example.com", "email_verified": true},
			func(id *account.LoginIdentity) { id.Email = "" }},
	} {
		p := startProvider(t)
		p.Claims, p.UserInfo = c.claims, c.userinfo
		want := account.LoginIdentity{ProviderUserID: "1078", Username: "ann", Email: "ann@example.com", Name: "Ann",
			Groups: []string{"a", "b"}, Attributes: map[string][]string{"department": {"sales"}}}
		c.want(&want)
		got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c")
		if err != nil || !reflect.DeepEqual(got.Identity, want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	p := startProvider(t)
	p.Claims, p.UserInfo = map[string]any{"name": nil}, map[string]any{"sub": "666", "name": "Eve"}
	if got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c"); got != nil ||
		account.CodeOf(err) != account.CodeProviderFailed {
		t.Errorf("another's details: %+v, %v", got, err)
	}
	for _, groups := range [][]string{{"a", long}, make([]string, maxGroups+1)} {
		p := startProvider(t)
		p.Claims = map[string]any{"groups": groups}
		if got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c"); got != nil ||
			account.CodeOf(err) != account.CodeLoginFailed {
			t.Errorf("groups that are not taken: %+v, %v", got, err)
		}
	}
}

// Zero, negative and no auth_time are one: the provider does not say when it asked.
func TestProvider_ReadsAuthTime(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	for said, want := range map[any]time.Time{1_700_000_000: time.Unix(1_700_000_000, 0).UTC(), 0: {}, -1: {},
		nil: {}} {
		p.Claims = map[string]any{"auth_time": said}
		if got, err := handleCallback(t, newTestProvider(t, p, configOf(p)), "code=c"); err != nil ||
			!got.AuthTime.Equal(want) {
			t.Errorf("auth_time %v: %+v, %v", said, got, err)
		}
	}
	yes, no := true, false
	for _, c := range []struct {
		kind     trafficpolicy.LoginKind
		provider string
		set      *bool
		want     bool
	}{
		{trafficpolicy.LoginOIDC, "", nil, true},
		{trafficpolicy.LoginOIDC, "", &no, false},
		{trafficpolicy.LoginOAuth, "gitlab", nil, true},
		{trafficpolicy.LoginOAuth, "microsoft", nil, false},
		{trafficpolicy.LoginOAuth, "microsoft", &yes, true},
		{trafficpolicy.LoginOAuth, "google", nil, false},
	} {
		p := startProvider(t)
		if c.provider == "microsoft" { // whose issuers have a path
			p.Discovery, p.Claims = map[string]any{"issuer": p.URL + "/v2.0"}, map[string]any{"iss": p.URL + "/v2.0"}
		}
		config := configOf(p)
		config.Kind, config.Provider, config.RequireAuthTime = c.kind, c.provider, c.set
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
	take := func(token string) (login.LogoutToken, error) { return verifyLogout(t, provider, token) }
	if got, err := take(p.Sign(good)); err != nil || got.Issuer != p.URL || got.Client != "client" ||
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
		"an ID token":      {"events": nil, "nonce": "n"},
	} {
		if got, err := take(p.Sign(oidctest.Changed(good, change))); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got, err := take(inJSON(p.Sign(good), false)); err == nil {
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
	seen := map[string]string{}
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
		if b := p.Scope(); seen[b] != "" || strings.Contains(b, "hush") {
			t.Errorf("%s is bound as %s: %q", name, seen[b], b)
		} else {
			seen[b] = name
		}
	}
	if _, err := Factory()(&trafficpolicy.LoginConfig{Kind: trafficpolicy.LoginSAML}, http.DefaultClient); err == nil {
		t.Error("saml is made here")
	}
}
