// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/login"
)

// inJSON returns a token in the JSON serialization.
func inJSON(token string, general bool) string {
	parts := strings.Split(token, ".")
	if general {
		return fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q}]}`, parts[1], parts[0], parts[2])
	}
	return fmt.Sprintf(`{"payload":%q,"protected":%q,"signature":%q}`, parts[1], parts[0], parts[2])
}

// logoutToken returns a good logout token that names the key.
func (p *op) logoutToken(kid string) string {
	key := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.key, KeyID: kid}}
	return p.signedWith(key, map[string]any{
		"iss": p.srv.URL, "aud": "client", "jti": kid, "sub": "1078",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Minute).Unix(),
		"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}},
	})
}

func takeLogout(t *testing.T, provider login.Provider, token string) error {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/_fairlead/oidc/logout", nil)
	r.PostForm = url.Values{"logout_token": {token}}
	_, err := provider.(login.LogoutVerifier).VerifyLogout(t.Context(), r)
	return err
}

func (p *op) keyFetches() int32 { return p.asked["/keys"].Load() }

// At a login the token comes from the provider: one with a new key waits for the next fetch.
func TestKeySet_FollowsRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startBubbleOP(t)
		provider := p.provider(p.config())
		for kid := range 3 {
			time.Sleep(time.Millisecond)
			p.key, p.kid = newKey(t), string(rune('a'+kid))
			began := time.Now()
			if _, err := callback(t, provider, "code=c"); err != nil || time.Since(began) > keysInterval {
				t.Errorf("with the key %s, after %s: %v", p.kid, time.Since(began), err)
			}
		}
		time.Sleep(time.Millisecond)
		p.key = newKey(t) // under the old name
		if _, err := callback(t, provider, "code=c"); err != nil {
			t.Errorf("with another key of the same name: %v", err)
		}
		if n := p.asked["/.well-known/openid-configuration"].Load(); n != 1 {
			t.Errorf("the description was read %d times", n)
		}
		time.Sleep(keysInterval)
		p.key, p.kid = newKey(t), "rotated"
		if err := takeLogout(t, provider, p.logoutToken(p.kid)); err != nil {
			t.Errorf("a logout token with a new key: %v", err)
		}
		other := p.provider(p.config()) // which has just fetched the keys for the first time
		if err := takeLogout(t, other, p.logoutToken(p.kid)); err != nil {
			t.Errorf("a logout token: %v", err)
		}
		time.Sleep(time.Millisecond)
		p.key, p.kid = newKey(t), "rotated again"
		if err := takeLogout(t, other, p.logoutToken(p.kid)); err != nil {
			t.Errorf("a logout token with a new key right after that: %v", err)
		}
	})
}

// Whatever strangers send to any action, the provider is asked for its keys once in an interval.
func TestKeySet_FetchesOnceForUnknownKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startBubbleOP(t)
		factory := Factory()
		var providers []login.Provider
		for range 3 {
			c := p.config()
			provider, err := factory(&c, p.client)
			if err != nil {
				t.Fatal(err)
			}
			providers = append(providers, provider)
		}
		if err := takeLogout(t, providers[0], p.logoutToken("1")); err != nil || p.keyFetches() != 1 {
			t.Fatalf("%v, %d fetches", err, p.keyFetches())
		}
		time.Sleep(time.Millisecond)
		var all sync.WaitGroup
		began := time.Now()
		for i := range 60 {
			token := p.logoutToken(fmt.Sprint("unknown-", i))
			all.Go(func() {
				if err := takeLogout(t, providers[i%3], token); err == nil || account.CodeOf(err) == account.CodeProviderFailed {
					t.Errorf("an unknown key: %v", err)
				}
			})
		}
		all.Wait()
		if n := p.keyFetches(); n != 2 || time.Since(began) != 0 {
			t.Errorf("60 unknown keys: %d fetches, %s", n-1, time.Since(began))
		}
		if err := takeLogout(t, providers[1], p.logoutToken("1")); err != nil || p.keyFetches() != 2 {
			t.Errorf("a known key meanwhile: %v, %d fetches", err, p.keyFetches())
		}
		time.Sleep(keysMaxAge + 1)
		if err := takeLogout(t, providers[2], p.logoutToken("1")); err != nil || p.keyFetches() != 3 {
			t.Errorf("keys that are old: %v, %d fetches", err, p.keyFetches())
		}
	})
}

// While the keys cannot be fetched again the old ones count; without any, the provider has failed.
func TestKeySet_OutlivesAProviderThatIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startBubbleOP(t)
		up, down := p.client.Transport, false
		p.client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			if down && r.URL.Path == "/keys" {
				p.asked["/keys"].Add(1)
				return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
			}
			return up.RoundTrip(r)
		})
		down = true
		provider := p.provider(p.config())
		for range 3 {
			err := takeLogout(t, provider, p.logoutToken("1"))
			if account.CodeOf(err) != account.CodeProviderFailed || p.keyFetches() != 1 {
				t.Errorf("without keys: %v, %d fetches", err, p.keyFetches())
			}
		}
		down = false
		if _, err := callback(t, provider, "code=c"); err != nil {
			t.Errorf("a login waits until they are fetched again: %v", err)
		}
		down = true
		time.Sleep(2 * keysMaxAge)
		began := time.Now()
		if err := takeLogout(t, provider, p.logoutToken("1")); err != nil {
			t.Errorf("with old keys: %v", err)
		}
		if _, err := callback(t, provider, "code=c"); err != nil || time.Since(began) != 0 {
			t.Errorf("a login with old keys, after %s: %v", time.Since(began), err)
		}
		if err := takeLogout(t, provider, p.logoutToken("2")); account.CodeOf(err) != account.CodeProviderFailed {
			t.Errorf("an unknown key: %v", err)
		}
	})
}

// Kinds of keys that are not supported are no error, and symmetric ones are no keys.
func TestKeySet_LeavesOutForeignKeys(t *testing.T) {
	t.Parallel()
	p := startOP(t)
	const foreign = `{"kty":"OKP","crv":"Ed448","x":"AA"}, {"kty":"oct","k":"c2VjcmV0","kid":"1"},
		{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}, 17`
	keys := foreign
	p.client.Transport = answering(p.client.Transport, "/keys", func() string { return `{"keys":[` + keys + `]}` })
	provider := p.provider(p.config())
	if err := takeLogout(t, provider, p.logoutToken("1")); account.CodeOf(err) != account.CodeProviderFailed {
		t.Errorf("foreign keys alone: %v", err)
	}
	own, err := jose.JSONWebKey{Key: p.key.Public(), KeyID: "1"}.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	keys += "," + string(own)
	if err := takeLogout(t, p.provider(p.config()), p.logoutToken("1")); err != nil {
		t.Errorf("with one of its own: %v", err)
	}
}

// answering answers requests for a path in the place of a provider.
func answering(next http.RoundTripper, path string, body func() string) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != path {
			return next.RoundTrip(r)
		}
		w := httptest.NewRecorder()
		_, _ = w.WriteString(body())
		return w.Result(), nil
	})
}
