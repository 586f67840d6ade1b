// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// bindingServer is an API that lists nothing and records which bindings were asked for.
type bindingServer struct {
	mu    sync.Mutex
	knows bool // the binding clusterset
	asked []string
}

func (s *bindingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	verb, binding := "list ", r.FormValue("binding")
	if r.FormValue("watch") != "" {
		verb = "watch "
	}
	s.asked = append(s.asked, verb+binding)
	w.Header().Set("Content-Type", "application/json")
	if binding != account.BindingKubernetes && !s.knows {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(account.ErrorBody{Code: account.CodeInvalid, Status: http.StatusBadRequest,
			Msg: "binding: must be kubernetes, internal or public"}.JSON())
		return
	}
	if verb == "watch " {
		w.Header().Set("Content-Type", "application/x-ndjson")
		return
	}
	_, _ = fmt.Fprint(w, `{"endpoints":[],"uri":"x","next_page_uri":null,"resource_version":"7-3",`+
		`"account_id":"ac-1","store_id":"st-1"}`)
}

// take returns what was asked since the last call.
func (s *bindingServer) take(knows bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := s.asked
	s.asked, s.knows = nil, knows
	return asked
}

func newAccountSource(t *testing.T, s *bindingServer, clusterset bool) *AccountSource {
	t.Helper()
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	api, err := apiclient.New(apiclient.Options{BaseURL: server.URL, TLS: &tls.Config{RootCAs: roots},
		APIKey: func() (string, error) { return "flk_x", nil }})
	must.Succeed(t, err)
	t.Cleanup(api.CloseIdleConnections)
	return &AccountSource{API: api, Clusterset: clusterset}
}

func TestAccountSource_AsksForBindings(t *testing.T) {
	t.Parallel()
	for clusterset, want := range map[bool]string{false: "kubernetes", true: "kubernetes,clusterset"} {
		server := &bindingServer{knows: true}
		s := newAccountSource(t, server, clusterset)
		snapshot, err := s.List(t.Context())
		if err != nil || snapshot.WithoutClusterset {
			t.Errorf("got %+v, %v", snapshot, err)
		}
		w, err := s.Watch(t.Context(), snapshot.Version)
		must.Succeed(t, err)
		w.Close()
		if got := server.take(true); !slices.Equal(got, []string{"list " + want, "watch " + want}) {
			t.Errorf("clusterset %v: asked %q", clusterset, got)
		}
	}
}

// TestAccountSource_AsksOldServerWithoutClusterset goes through the update of two servers behind one
// address.
func TestAccountSource_AsksOldServerWithoutClusterset(t *testing.T) {
	t.Parallel()
	const both = "kubernetes,clusterset"
	server := &bindingServer{}
	s := newAccountSource(t, server, true)
	step := func(what string, without bool, watchErr account.Code, want ...string) {
		t.Helper()
		snapshot, err := s.List(t.Context())
		if err != nil || snapshot.WithoutClusterset != without {
			t.Errorf("%s: got %+v, %v", what, snapshot, err)
		}
		if watchErr != "" {
			server.take(false)
		}
		w, err := s.Watch(t.Context(), snapshot.Version)
		if account.CodeOf(err) != watchErr {
			t.Errorf("%s: watching: %v", what, err)
		}
		if err == nil {
			w.Close()
		}
		if got := server.take(true); !slices.Equal(got, want) {
			t.Errorf("%s: asked %q", what, got)
		}
	}
	step("both are old", true, "", "list "+both, "list kubernetes", "watch kubernetes")
	step("lists the new, watches the old", false, account.CodeInvalid, "watch "+both)
	step("after a refused watch", true, "", "list kubernetes", "watch kubernetes")
	step("both are new", false, "", "list "+both, "watch "+both)
}

// TestAccountSource_KeepsOtherErrors: an error that is not about the binding stays one.
func TestAccountSource_KeepsOtherErrors(t *testing.T) {
	t.Parallel()
	api, err := apiclient.New(apiclient.Options{BaseURL: "https://127.0.0.1:1",
		APIKey: func() (string, error) { return "flk_x", nil }})
	must.Succeed(t, err)
	s := &AccountSource{API: api, Clusterset: true}
	if _, err := s.List(t.Context()); account.CodeOf(err) != account.CodeUnreachable || s.withoutClusterset {
		t.Errorf("got %v, without clusterset %v", err, s.withoutClusterset)
	}
}
