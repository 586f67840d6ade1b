// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oidctest is an OpenID Connect provider for tests: discovery, keys, the authorization code
// flow with PKCE, userinfo and logout tokens. What comes in: the claims that a test wants, as
// fields of a Provider. It hands over tokens, over HTTP or from its methods, and counts what was
// requested.
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// The one client of every Provider, and what its token endpoint gives out.
const (
	ClientID     = "client"
	ClientSecret = "hush/secret"
	AccessToken  = "access-token-of-the-provider"
)

// Provider is an identity provider. Its fields may be changed between requests.
type Provider struct {
	URL    string       // its issuer
	Client *http.Client // that reaches it
	Key    *ecdsa.PrivateKey
	KeyID  string

	Discovery map[string]any // changes to the discovery document
	Person    map[string]any // claims of the person who logs in
	Claims    map[string]any // changes to the ID token; a nil value removes one
	UserInfo  map[string]any // answer of the userinfo endpoint
	AuthTime  time.Time      // when the person was asked; prompt=login sets it
	// of codes that /authorize did not issue; "" refuses them
	Nonce     string
	SignToken func(claims map[string]any) string // signs ID tokens; nil = Sign
	// answers a token request instead, if it returns true
	Token func(w http.ResponseWriter, r *http.Request) (done bool)

	t        testing.TB
	handler  http.Handler
	mu       sync.Mutex
	requests map[string]int        // by path
	auth     []url.Values          // requests to /authorize
	codes    map[string]url.Values // requests to /authorize by the code that answered them
}

// SetPerson makes p the person who logs in, also while requests are being answered.
func (p *Provider) SetPerson(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Person, p.UserInfo = claims, claims
}

// Start returns a Provider that listens on a loopback port until the test ends.
func Start(t testing.TB) *Provider {
	t.Helper()
	p := newProvider(t)
	srv := httptest.NewServer(p.handler)
	t.Cleanup(srv.Close)
	p.URL, p.Client = srv.URL, srv.Client()
	return p
}

// StartInProcess returns a Provider without a network, for bubbles of synctest: only its Client
// reaches it.
func StartInProcess(t testing.TB) *Provider {
	t.Helper()
	p := newProvider(t)
	p.URL, p.Client = "https://idp.example.com", &http.Client{Transport: RoundTripper(p.roundTrip)}
	return p
}

func newProvider(t testing.TB) *Provider {
	t.Helper()
	p := &Provider{t: t, Key: NewKey(t), KeyID: "1", AuthTime: time.Now(), requests: map[string]int{},
		codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.serveDiscovery)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		WriteJSON(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{
			{Key: p.Key.Public(), KeyID: p.KeyID, Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", p.serveAuthorize)
	mux.HandleFunc("POST /token", p.serveToken)
	mux.HandleFunc("GET /userinfo", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+AccessToken {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		p.mu.Lock()
		userInfo := p.UserInfo
		p.mu.Unlock()
		WriteJSON(w, userInfo)
	})
	p.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.requests[r.URL.Path]++
		p.mu.Unlock()
		mux.ServeHTTP(w, r)
	})
	return p
}

// NewKey returns a key for ES256.
func NewKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	return key
}

// RoundTripper is an http.RoundTripper made of a function.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (p *Provider) roundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	p.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// WriteJSON writes v with its content type.
func WriteJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client may be gone
}

func (p *Provider) serveDiscovery(w http.ResponseWriter, _ *http.Request) {
	d := map[string]any{"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize?x=y",
		"token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys", "userinfo_endpoint": p.URL + "/userinfo",
		"id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"}}
	maps.Copy(d, p.Discovery)
	WriteJSON(w, d)
}

func (p *Provider) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	p.auth = append(p.auth, q)
	code := "code-" + strconv.Itoa(len(p.auth))
	if q.Get("prompt") == "login" {
		p.AuthTime = time.Now()
	}
	p.codes[code] = q
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != ClientID || q.Get("code_challenge_method") != "S256" ||
		len(q.Get("code_challenge")) != 43 || q.Get("nonce") == "" {
		http.Error(w, "the authorization request is not valid", http.StatusBadRequest)
		return
	}
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {p.URL}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (p *Provider) serveToken(w http.ResponseWriter, r *http.Request) {
	if p.Token != nil && p.Token(w, r) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	user, password, _ := r.BasicAuth()
	code := r.PostFormValue("code")
	q, issued := p.codes[code]
	delete(p.codes, code)
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	switch challenge := base64.RawURLEncoding.EncodeToString(sum[:]); {
	case !issued && p.Nonce != "":
		q = url.Values{"nonce": {p.Nonce}}
	case !issued, user != ClientID, password != url.QueryEscape(ClientSecret), q.Get("code_challenge") != challenge,
		q.Get("redirect_uri") != r.PostFormValue("redirect_uri"):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		WriteJSON(w, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{"iss": p.URL, "aud": ClientID, "exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix(), "nonce": q.Get("nonce"), "auth_time": p.AuthTime.Unix()}
	maps.Copy(claims, p.Person)
	sign := p.SignToken
	if sign == nil {
		sign = p.Sign
	}
	WriteJSON(w, map[string]any{"access_token": AccessToken, "token_type": "Bearer",
		"id_token": sign(Changed(claims, p.Claims))})
}

// Changed returns claims with the changes made; a nil value removes a claim.
func Changed(claims, changes map[string]any) map[string]any {
	claims = maps.Clone(claims)
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// Sign returns a token that is signed with the provider's key.
func (p *Provider) Sign(claims map[string]any) string { return p.SignAs(p.KeyID, claims) }

// SignAs returns a token that is signed with the provider's key, under another name.
func (p *Provider) SignAs(keyID string, claims map[string]any) string {
	return p.SignWith(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.Key, KeyID: keyID}}, claims)
}

// SignWith returns a token that is signed with any key.
func (p *Provider) SignWith(key jose.SigningKey, claims map[string]any) string {
	token, err := sign(key, claims)
	if err != nil {
		p.t.Error(err)
	}
	return token
}

func sign(key jose.SigningKey, claims map[string]any) (string, error) {
	signer, err := jose.NewSigner(key, nil)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(b)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// LogoutClaims returns the claims of a logout token that ends the sessions of a subject.
func (p *Provider) LogoutClaims(subject string) map[string]any {
	return map[string]any{"iss": p.URL, "aud": ClientID, "jti": "jti-" + subject, "sub": subject,
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(),
		"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}}
}

// Requests returns how many requests there were to the path.
func (p *Provider) Requests(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests[path]
}

// AuthRequests returns the queries of the requests to /authorize, in order.
func (p *Provider) AuthRequests() []url.Values {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]url.Values(nil), p.auth...)
}

// SetAuthTime sets AuthTime while logins may be under way.
func (p *Provider) SetAuthTime(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.AuthTime = at
}
