// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service/backend"
)

// TestClient_GuardsAddresses checks addresses when it connects, and never reaches the metadata
// services of clouds.
func TestClient_GuardsAddresses(t *testing.T) {
	t.Parallel()
	everywhere := []backend.Allowed{{Prefix: netip.MustParsePrefix("0.0.0.0/0")},
		{Prefix: netip.MustParsePrefix("::/0")}}
	for name, c := range map[string]struct {
		allow []backend.Allowed
		urls  []string
	}{
		"by default": {nil, []string{
			"http://127.0.0.1:1/", "http://localhost:1/", "http://idp.localhost:1/", "http://[::1]:1/",
			"http://10.0.0.1/",
			"http://192.168.1.1/", "http://172.16.0.1/", "http://100.64.0.1/",
			"http://169.254.169.254/latest/meta-data/", "http://[fe80::1]/", "http://[fd00:ec2::254]/",
			"http://[::ffff:127.0.0.1]:1/", "http://0.0.0.0:1/", "http://[::ffff:169.254.169.254]/",
		}},
		"with everything allowed": {everywhere, []string{
			"http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/", "http://100.100.100.200/",
			"http://[::ffff:169.254.169.254]/", "http://192.0.0.192/", "http://168.63.129.16/",
			"http://[64:ff9b::a9fe:a9fe]/", "http://[2002:a9fe:a9fe::1]/", "http://[64:ff9b::6464:64c8]/",
		}},
	} {
		client := NewClient(c.allow)
		for _, target := range c.urls {
			res, err := client.Get(target) //nolint:noctx // a test
			if err == nil {
				_ = res.Body.Close()
				t.Errorf("%s: %s answers %s", name, target, res.Status)
			} else if !errors.Is(err, backend.ErrForbidden) {
				t.Errorf("%s: %s: %v", name, target, err)
			}
		}
	}
}

func TestClient_LimitsResponses(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s was asked %s with %v", r.Host, r.URL, r.Header["Authorization"])
	}))
	defer elsewhere.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/elsewhere":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/here":
			http.Redirect(w, r, "/small", http.StatusTemporaryRedirect)
		case "/large":
			_, _ = w.Write(make([]byte, maxResponse+1))
		case "/most":
			_, _ = w.Write(make([]byte, maxResponse))
		}
	}))
	defer srv.Close()
	client := NewClient([]backend.Allowed{{Prefix: netip.MustParsePrefix("127.0.0.0/8")},
		{Prefix: netip.MustParsePrefix("::1/128")}})
	defer client.CloseIdleConnections()
	for _, c := range []struct {
		method, path string
		ok           bool
	}{
		{"GET", "/small", true}, {"GET", "/here", true}, {"POST", "/here", false}, {"GET", "/elsewhere", false},
		{"POST", "/elsewhere", false}, {"GET", "/loop", false}, {"GET", "/most", true}, {"GET", "/large", false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, srv.URL+c.path,
			strings.NewReader(url.Values{"client_secret": {"x"}}.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer x")
		res, err := client.Do(r)
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		if (err == nil) != c.ok {
			t.Errorf("%s %s: %v", c.method, c.path, err)
		}
	}
	local := strings.Replace(srv.URL, "127.0.0.1", "idp.localhost", 1)
	res, err := client.Get(local + "/small") //nolint:noctx // a test
	if err != nil {
		t.Fatalf("a name below localhost: %v", err)
	}
	_ = res.Body.Close()
}
