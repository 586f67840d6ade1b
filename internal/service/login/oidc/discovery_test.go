// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/test/support/oidctest"
)

// TestDiscovery_RetriesAndKeeps fetches a document again after discoveryRetry at the earliest, and
// uses the previous document while the next cannot be fetched.
func TestDiscovery_RetriesAndKeeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests, down := 0, true
		client := &http.Client{Transport: oidctest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			requests++
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
			if _, err := d.get(t.Context()); err == nil || requests != 1 {
				t.Fatalf("%v, %d requests", err, requests)
			}
		}
		down = false
		time.Sleep(discoveryRetry)
		first, err := d.get(t.Context())
		if err != nil || requests != 2 {
			t.Fatalf("%v, %d requests", err, requests)
		}
		down = true
		time.Sleep(discoveryMaxAge)
		for range 3 {
			if again, err := d.get(t.Context()); err != nil || again != first {
				t.Errorf("%v", err)
			}
			synctest.Wait()
		}
		if requests != 3 {
			t.Errorf("%d requests", requests)
		}
	})
}

// TestDiscovery_RefusesInvalidDocuments checks the URLs of a document, which are a tenant's input.
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
