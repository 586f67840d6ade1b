// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// identityProvider is an OpenID Connect provider as small as can be: whoever comes is logged in as
// the person it holds at the moment.
type identityProvider struct {
	t   *testing.T
	srv *httptest.Server
	key *ecdsa.PrivateKey

	fetches atomic.Int32 // of its keys

	mu       sync.Mutex
	person   map[string]any // claims
	authTime time.Time      // when it asked the person
	asked    []url.Values   // requests to authorize
	codes    map[string]url.Values
	serial   int
}

const (
	clientID     = "fairlead"
	clientSecret = "the-secret-of-the-client"
)

func startProvider(t *testing.T) *identityProvider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &identityProvider{t: t, key: key, codes: map[string]url.Values{}, authTime: time.Now()}
	p.is("alice", map[string]any{"email": "alice@example.com", "email_verified": true, "name": "Alice Ä",
		"groups": []string{"staff", "a,b"}})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.json(w, map[string]any{"issuer": p.srv.URL, "authorization_endpoint": p.srv.URL + "/authorize",
			"token_endpoint": p.srv.URL + "/token", "jwks_uri": p.srv.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"}, "authorization_response_iss_parameter_supported": true})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.fetches.Add(1)
		p.json(w,
			jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.srv = httptest.NewServer(mux)
	t.Cleanup(p.srv.Close)
	return p
}

// is makes it log in somebody from now on.
func (p *identityProvider) is(subject string, claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.person = map[string]any{"sub": subject, "sid": "sid-" + subject}
	for k, v := range claims {
		p.person[k] = v
	}
}

func (p *identityProvider) json(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (p *identityProvider) authorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := r.URL.Query()
	p.asked = append(p.asked, q)
	p.serial++
	code := "code-" + strconv.Itoa(p.serial)
	if q.Get("prompt") == "login" {
		p.authTime = time.Now()
	}
	p.codes[code] = q
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("client_id") != clientID || q.Get("code_challenge_method") != "S256" ||
		len(q.Get("code_challenge")) != 43 || q.Get("nonce") == "" {
		http.Error(w, "not a request that it takes", http.StatusBadRequest)
		return
	}
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {p.srv.URL}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (p *identityProvider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	user, password, _ := r.BasicAuth()
	q, known := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !known || user != clientID || password != clientSecret ||
		q.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
		q.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		p.json(w, map[string]string{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{"iss": p.srv.URL, "aud": clientID, "exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix(), "nonce": q.Get("nonce"), "auth_time": p.authTime.Unix()}
	for k, v := range p.person {
		claims[k] = v
	}
	p.json(w, map[string]any{"access_token": "access-token-of-the-provider", "token_type": "Bearer",
		"id_token": p.sign(claims)})
}

// sign makes a token.
func (p *identityProvider) sign(claims map[string]any) string { return p.signAs("1", claims) }

// signAs makes a token that names another key.
func (p *identityProvider) signAs(kid string, claims map[string]any) string {
	key := jose.JSONWebKey{Key: p.key, KeyID: kid}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	b, err := json.Marshal(claims)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	signed, err := signer.Sign(b)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		p.t.Error(err)
	}
	return token
}

// logoutToken returns the claims of a logout token that ends the sessions of a subject.
func (p *identityProvider) logoutToken(subject string) map[string]any {
	return map[string]any{
		"iss": p.srv.URL, "aud": clientID, "jti": "jti-" + subject, "sub": subject,
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(),
		"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}},
	}
}

// lastAsked is the last request to authorize, and how many there were.
func (p *identityProvider) lastAsked() (url.Values, int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) == 0 {
		return nil, 0
	}
	return p.asked[len(p.asked)-1], len(p.asked)
}
