// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"io"
	"net/http"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// A stranger may ask for what fails as often as he likes; pods that get such answers take the child
// down.
func TestEdge_PublicErrorsTakeNoBackendDown(t *testing.T) {
	t.Parallel()
	w := startPublic(t, allowLoopback)
	f, a := w.startForwarder(), w.tenant()
	first := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/err" {
			w.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(w, "first")
	})
	order := a.backend(account.Backend{
		Kind: account.BackendFailover, HealthStatus: []int{500},
		Children: []string{a.static(first), a.answer(200, "other")},
	})
	a.cloud(account.BindingPublic, "https://shop.example.com", "", order)
	inside := a.cloud(account.BindingKubernetes, "http://shop.demo", "", order)
	for range 50 {
		if status, body := w.getPage("https://shop.example.com/err"); status != 200 || body != "other" {
			t.Fatalf("what fails: %d %s", status, body)
		}
	}
	if status, body := w.getPage("https://shop.example.com/"); status != 200 || body != "first" {
		t.Errorf("after a stranger's requests: %d %s", status, body)
	}
	res, err := w.newBrowser().Post("https://shop.example.com/err", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	if body := readAll(t, res.Body); res.StatusCode != 500 || body != "first" {
		t.Errorf("a request that may not be repeated: %d %s", res.StatusCode, body)
	}
	_ = res.Body.Close()
	tr := f.transport(inside)
	eventually(t, "pods take the child down", func() bool {
		res := f.do(tr, "GET", "http://shop.demo/err", nil, nil)
		_ = readAll(t, res.Body)
		_, body := f.get(inside)
		return body == "other"
	})
}
