// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/sdk"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestForward_RelaysToUpstream(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	f := s.StartForwarder()
	upstream := servicetest.ServeHTTP(t, hello)
	web, err := sdk.Forward(servicetest.Context(t), "http://web.demo", upstream, connection(s)...)
	if err != nil {
		t.Fatal(err)
	}
	b := tunnel.Bound{EndpointID: web.EndpointID(), URL: web.URL()}
	if status, body := f.Get(b); status != http.StatusOK || body != "hello web.demo from 10.1.2.3" {
		t.Errorf("got %d %q", status, body)
	}
	if err := errors.Join(web.Close(), web.Wait()); err != nil {
		t.Error(err)
	}
	if code := f.OpenRefused(servicetest.OpenHeader(t, b)); code != tunnel.RefusedOffline {
		t.Errorf("after Close a call is answered: %v", code)
	}
	ctx, cancel := context.WithCancel(t.Context())
	db, err := sdk.Forward(ctx, "tcp://db.demo:5432", servicetest.ServeTCP(t, servicetest.Echo), connection(s)...)
	if err != nil {
		t.Fatal(err)
	}
	st := f.OpenEcho(tunnel.Bound{EndpointID: db.EndpointID(), URL: db.URL()})
	_ = st.CloseWrite()
	if rest := servicetest.ReadAll(t, st); rest != "" {
		t.Errorf("the rest is %q", rest)
	}
	cancel()
	<-db.Done()
}

func TestForward_ReportsUpstream(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	events := make(chan sdk.Event, 100)
	web, err := sdk.Forward(servicetest.Context(t), "http://web.demo", "127.0.0.1:1",
		connection(s, sdk.WithEventHandler(func(e sdk.Event) { events <- e }))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = web.Close() }()
	b := tunnel.Bound{EndpointID: web.EndpointID(), URL: web.URL()}
	if status, body := s.StartForwarder().Get(b); status != http.StatusBadGateway {
		t.Errorf("got %d %q", status, body)
	}
	seen := map[string]bool{}
	for !seen["down"] || !seen["request"] {
		switch e := servicetest.Receive(t, events, "event").(type) {
		case sdk.UpstreamDown:
			seen["down"] = e.Cause != ""
		case sdk.Request:
			seen["request"] = e.Method == "GET" && e.Path == "/x" && e.Status == http.StatusBadGateway
		}
	}
}

func TestForward_RefusesUpstream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, upstream string }{
		{"http://a.demo", "ftp://x"}, {"tcp://a.demo:1", "http://x"}, {"http://a.demo", "http://x/path"},
		{"http://a.demo", ""},
	} {
		var refused *sdk.Error
		_, err := sdk.Forward(t.Context(), c.url, c.upstream)
		if !errors.As(err, &refused) || refused.Code != sdk.CodeInvalid || refused.Fields[0].Field != "upstream" {
			t.Errorf("%s to %q: %v", c.url, c.upstream, err)
		}
	}
}

// TestListen_SpeaksHTTP2 holds that gRPC servers can serve the listener.
func TestListen_SpeaksHTTP2(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ln := listen(t, s, "http://grpc.demo", sdk.WithHTTP2())
	srv := &http.Server{Protocols: new(http.Protocols), Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) })}
	srv.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(func() { _ = srv.Close() })
	go func() { _ = srv.Serve(ln) }()
	if status, body := s.StartForwarder().Get(bound(ln)); status != http.StatusOK || body != "HTTP/2.0" {
		t.Errorf("got %d %q", status, body)
	}
}

func TestForward_VerifiesHTTPSUpstream(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	f := s.StartForwarder()
	upstream := httptest.NewTLSServer(http.HandlerFunc(hello))
	defer upstream.Close()
	pin := trust.Fingerprint(upstream.Certificate())
	web, err := sdk.Forward(servicetest.Context(t), "http://web.demo", upstream.URL, connection(s,
		sdk.WithUpstreamCAFingerprint(pin), sdk.WithUpstreamServerName("example.com"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = web.Close() }()
	b := tunnel.Bound{EndpointID: web.EndpointID(), URL: web.URL()}
	if status, body := f.Get(b); status != http.StatusOK || body != "hello web.demo from 10.1.2.3" {
		t.Errorf("got %d %q", status, body)
	}
	var invalid *sdk.Error
	_, err = sdk.Forward(t.Context(), "http://other.demo", upstream.URL,
		connection(s, sdk.WithUpstreamCAFile("/nowhere"))...)
	if !errors.As(err, &invalid) || len(invalid.Fields) != 1 || invalid.Fields[0].Field != "upstream_ca_file" {
		t.Errorf("got %v", err)
	}
}
