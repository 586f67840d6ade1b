// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
)

// inJSON returns a token in the JSON serialization.
func inJSON(token string, general bool) string {
	parts := strings.Split(token, ".")
	if general {
		return fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q}]}`, parts[1], parts[0],
			parts[2])
	}
	return fmt.Sprintf(`{"payload":%q,"protected":%q,"signature":%q}`, parts[1], parts[0], parts[2])
}

// logoutToken returns a valid logout token that names the key.
func logoutToken(p *oidctest.Provider, keyID string) string {
	return p.SignAs(keyID, p.LogoutClaims("1078"))
}

// TestKeySet_FollowsRotation verifies tokens with keys that the provider has just created: a login
// waits for the next fetch, a logout token causes one.
func TestKeySet_FollowsRotation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := prepare(oidctest.StartInProcess(t))
		provider := newTestProvider(t, p, configOf(p))
		for kid := range 3 {
			time.Sleep(time.Millisecond)
			p.Key, p.KeyID = oidctest.NewKey(t), string(rune('a'+kid))
			began := time.Now()
			if _, err := handleCallback(t, provider, "code=c"); err != nil || time.Since(began) > keysInterval {
				t.Errorf("with the key %s, after %s: %v", p.KeyID, time.Since(began), err)
			}
		}
		time.Sleep(time.Millisecond)
		p.Key = oidctest.NewKey(t) // under the old name
		if _, err := handleCallback(t, provider, "code=c"); err != nil {
			t.Errorf("with another key of the same name: %v", err)
		}
		if n := p.Requests("/.well-known/openid-configuration"); n != 1 {
			t.Errorf("%d requests for the discovery document", n)
		}
		time.Sleep(keysInterval)
		p.Key, p.KeyID = oidctest.NewKey(t), "rotated"
		if _, err := verifyLogout(t, provider, logoutToken(p, p.KeyID)); err != nil {
			t.Errorf("a logout token with a new key: %v", err)
		}
		other := newTestProvider(t, p, configOf(p)) // which has just fetched the keys for the first time
		if _, err := verifyLogout(t, other, logoutToken(p, p.KeyID)); err != nil {
			t.Errorf("a logout token: %v", err)
		}
		time.Sleep(time.Millisecond)
		p.Key, p.KeyID = oidctest.NewKey(t), "rotated again"
		if _, err := verifyLogout(t, other, logoutToken(p, p.KeyID)); err != nil {
			t.Errorf("a logout token with a new key right after that: %v", err)
		}
	})
}

// TestKeySet_FetchesOnceForUnknownKeys fetches once in keysInterval for logout tokens with unknown
// keys, for all actions together.
func TestKeySet_FetchesOnceForUnknownKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := prepare(oidctest.StartInProcess(t))
		factory := Factory()
		var providers []login.Provider
		for range 3 {
			c := configOf(p)
			provider, err := factory(&c, p.Client)
			if err != nil {
				t.Fatal(err)
			}
			providers = append(providers, provider)
		}
		if _, err := verifyLogout(t, providers[0], logoutToken(p, "1")); err != nil || p.Requests("/keys") != 1 {
			t.Fatalf("%v, %d fetches", err, p.Requests("/keys"))
		}
		time.Sleep(time.Millisecond)
		var all sync.WaitGroup
		began := time.Now()
		for i := range 60 {
			token := logoutToken(p, fmt.Sprint("unknown-", i))
			all.Go(func() {
				if _, err := verifyLogout(t, providers[i%3], token); err == nil ||
					account.CodeOf(err) == account.CodeProviderFailed {
					t.Errorf("an unknown key: %v", err)
				}
			})
		}
		all.Wait()
		if n := p.Requests("/keys"); n != 2 || time.Since(began) != 0 {
			t.Errorf("60 unknown keys: %d fetches, %s", n-1, time.Since(began))
		}
		if _, err := verifyLogout(t, providers[1], logoutToken(p, "1")); err != nil || p.Requests("/keys") != 2 {
			t.Errorf("a known key meanwhile: %v, %d fetches", err, p.Requests("/keys"))
		}
		time.Sleep(keysMaxAge + 1)
		if _, err := verifyLogout(t, providers[2], logoutToken(p, "1")); err != nil || p.Requests("/keys") != 3 {
			t.Errorf("keys that are old: %v, %d fetches", err, p.Requests("/keys"))
		}
	})
}

// TestKeySet_OutlivesProviderOutage uses cached keys while no new ones can be fetched, and fails
// without any.
func TestKeySet_OutlivesProviderOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := prepare(oidctest.StartInProcess(t))
		var refused atomic.Int32
		up, down := p.Client.Transport, false
		p.Client.Transport = oidctest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			if down && r.URL.Path == "/keys" {
				refused.Add(1)
				return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody}, nil
			}
			return up.RoundTrip(r)
		})
		down = true
		provider := newTestProvider(t, p, configOf(p))
		for range 3 {
			_, err := verifyLogout(t, provider, logoutToken(p, "1"))
			if account.CodeOf(err) != account.CodeProviderFailed || refused.Load() != 1 {
				t.Errorf("without keys: %v, %d fetches", err, refused.Load())
			}
		}
		down = false
		if _, err := handleCallback(t, provider, "code=c"); err != nil {
			t.Errorf("a login waits until they are fetched again: %v", err)
		}
		down = true
		time.Sleep(2 * keysMaxAge)
		began := time.Now()
		if _, err := verifyLogout(t, provider, logoutToken(p, "1")); err != nil {
			t.Errorf("with old keys: %v", err)
		}
		if _, err := handleCallback(t, provider, "code=c"); err != nil || time.Since(began) != 0 {
			t.Errorf("a login with old keys, after %s: %v", time.Since(began), err)
		}
		if _, err := verifyLogout(t, provider, logoutToken(p, "2")); account.CodeOf(err) != account.CodeProviderFailed {
			t.Errorf("an unknown key: %v", err)
		}
	})
}

// TestKeySet_SkipsUnsupportedKeys skips keys of unsupported types, symmetric ones included.
func TestKeySet_SkipsUnsupportedKeys(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	const foreign = `{"kty":"OKP","crv":"Ed448","x":"AA"}, {"kty":"oct","k":"c2VjcmV0","kid":"1"},
		{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}, 17`
	keys := foreign
	p.Client.Transport = overridePath(p.Client.Transport, "/keys", func() string { return `{"keys":[` + keys + `]}` })
	provider := newTestProvider(t, p, configOf(p))
	if _, err := verifyLogout(t, provider, logoutToken(p, "1")); account.CodeOf(err) != account.CodeProviderFailed {
		t.Errorf("foreign keys alone: %v", err)
	}
	own, err := jose.JSONWebKey{Key: p.Key.Public(), KeyID: "1"}.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	keys += "," + string(own)
	if _, err := verifyLogout(t, newTestProvider(t, p, configOf(p)), logoutToken(p, "1")); err != nil {
		t.Errorf("with one of its own: %v", err)
	}
}

// overridePath answers requests for the path with body, and passes all others to next.
func overridePath(next http.RoundTripper, path string, body func() string) http.RoundTripper {
	return oidctest.RoundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != path {
			return next.RoundTrip(r)
		}
		w := httptest.NewRecorder()
		_, _ = w.WriteString(body())
		return w.Result(), nil
	})
}
