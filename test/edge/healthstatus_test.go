// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestEdge_PublicErrorsTakeNoBackendDown checks that public clients may ask for what fails as often
// as they like, and that the child goes down when pods get such answers.
func TestEdge_PublicErrorsTakeNoBackendDown(t *testing.T) {
	t.Parallel()
	w := servicetest.StartPublic(t, servicetest.AllowLoopback)
	f, a := w.StartForwarder(), w.Tenant()
	first := servicetest.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/err" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "first")
	})
	order := a.Backend(account.Backend{
		Kind: account.BackendFailover, HealthStatus: []int{500},
		Children: []string{a.Static(first), a.Answer(200, "other")},
	})
	a.Cloud(account.BindingPublic, "https://shop.example.com", "", order)
	inside := a.Cloud(account.BindingKubernetes, "http://shop.demo", "", order)
	for range 50 {
		if status, body := w.GetPage("https://shop.example.com/err"); status != 200 || body != "other" {
			t.Fatalf("what fails: %d %s", status, body)
		}
	}
	if status, body := w.GetPage("https://shop.example.com/"); status != 200 || body != "first" {
		t.Errorf("after a stranger's requests: %d %s", status, body)
	}
	res, err := w.NewBrowser().Post("https://shop.example.com/err", "text/plain", nil)
	must.Succeed(t, err)
	if body := servicetest.ReadAll(t, res.Body); res.StatusCode != 500 || body != "first" {
		t.Errorf("a request that may not be repeated: %d %s", res.StatusCode, body)
	}
	_ = res.Body.Close()
	tr := f.Transport(inside)
	servicetest.Eventually(t, "pods take the child down", func() bool {
		res := f.Do(tr, "GET", "http://shop.demo/err", nil, nil)
		_ = servicetest.ReadAll(t, res.Body)
		_, body := f.Get(inside)
		return body == "other"
	})
}
