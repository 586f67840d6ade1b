// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// op is a provider that says whatever a test wants. What it says in answer to a code is made by
// change.
type op struct {
	t        *testing.T
	srv      *httptest.Server
	client   *http.Client
	key      *ecdsa.PrivateKey
	kid      string
	describe map[string]any // over the usual description
	claims   map[string]any // over the usual ID token; nil values leave one out
	userinfo map[string]any
	sign     func(claims map[string]any) string // nil = as it should be
	tokens   func(w http.ResponseWriter, r *http.Request) bool
	asked    map[string]*atomic.Int32
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func startOP(t *testing.T) *op {
	t.Helper()
	p, handler := newOP(t)
	p.srv = httptest.NewServer(handler)
	p.client = p.srv.Client()
	t.Cleanup(p.srv.Close)
	return p
}

// startBubbleOP is startOP without a network, for bubbles of synctest.
func startBubbleOP(t *testing.T) *op {
	t.Helper()
	p, handler := newOP(t)
	p.srv = &httptest.Server{URL: "https://idp.example.com"}
	p.client = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		if r.Body == nil {
			r.Body = http.NoBody
		}
		handler.ServeHTTP(w, r)
		return w.Result(), nil
	})}
	return p
}

func newOP(t *testing.T) (*op, http.Handler) {
	t.Helper()
	p := &op{t: t, key: newKey(t), kid: "1", asked: map[string]*atomic.Int32{}}
	mux := http.NewServeMux()
	for path, serve := range map[string]http.HandlerFunc{
		"/.well-known/openid-configuration": func(w http.ResponseWriter, _ *http.Request) {
			d := map[string]any{"issuer": p.srv.URL, "authorization_endpoint": p.srv.URL + "/authorize?x=y",
				"token_endpoint": p.srv.URL + "/token", "jwks_uri": p.srv.URL + "/keys",
				"userinfo_endpoint": p.srv.URL + "/userinfo", "id_token_signing_alg_values_supported": []string{"ES256", "HS256",
					"none"}}
			maps.Copy(d, p.describe)
			answerJSON(w, d)
		},
		"/keys": func(w http.ResponseWriter, _ *http.Request) {
			answerJSON(w,
				jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: p.key.Public(), KeyID: p.kid, Algorithm: "ES256", Use: "sig"}}})
		},
		"/token": p.token,
		"/userinfo": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer access" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			answerJSON(w, p.userinfo)
		},
	} {
		n := new(atomic.Int32)
		p.asked[path] = n
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			serve(w, r)
		})
	}
	return p, mux
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (p *op) token(w http.ResponseWriter, r *http.Request) {
	if p.tokens != nil && p.tokens(w, r) {
		return
	}
	sign := p.sign
	if sign == nil {
		sign = p.signed
	}
	answerJSON(w, map[string]any{"access_token": "access", "token_type": "Bearer", "id_token": sign(p.usual(p.claims))})
}

// usual are the claims of a good token, with changes.
func (p *op) usual(change map[string]any) map[string]any {
	claims := map[string]any{"iss": p.srv.URL, "sub": "1078", "aud": "client", "exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix(), "nonce": "nonce", "email": "ann@example.com",
		"email_verified": true, "name": "Ann", "preferred_username": "ann", "groups": []string{"a", "b"}, "sid": "sid",
		"auth_time": 1_700_000_000, "department": "sales", "level": 3}
	for k, v := range change {
		if claims[k] = v; v == nil {
			delete(claims, k)
		}
	}
	return claims
}

func (p *op) signed(claims map[string]any) string {
	return p.signedWith(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: p.kid}}, claims)
}

func (p *op) signedWith(key jose.SigningKey, claims map[string]any) string {
	signer, err := jose.NewSigner(key, nil)
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
	text, err := signed.CompactSerialize()
	if err != nil {
		p.t.Error(err)
	}
	return text
}

var here = login.Action{AccountID: "ac", EndpointURL: "https://app.example.com", AuthID: "oidc"}

func (p *op) config() trafficpolicy.LoginConfig {
	return trafficpolicy.LoginConfig{Kind: trafficpolicy.LoginOIDC, IssuerURL: p.srv.URL, ClientID: "client",
		ClientSecret: "hush/secret"}
}

func (p *op) provider(c trafficpolicy.LoginConfig) login.CallbackProvider {
	p.t.Helper()
	made, err := Factory()(&c, p.client)
	if err != nil {
		p.t.Fatal(err)
	}
	return made.(login.CallbackProvider)
}

// callback brings an answer back to the provider.
func callback(t *testing.T, p login.CallbackProvider, query string) (*login.Authentication, error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/_fairlead/oidc/callback?"+query, nil)
	return p.HandleCallback(t.Context(), r, &login.Flow{State: "state", Nonce: "nonce", Verifier: strings.Repeat("v", 43),
		StartedAt: time.Now()}, here)
}

func parsed(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// shown is what the person gets.
func shown(err error) string {
	var e *account.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Msg
}

// cause is what the log gets.
func cause(err error) string {
	var e *account.Error
	if !errors.As(err, &e) || e.Cause == nil {
		return ""
	}
	return e.Cause.Error()
}
