// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/sdk"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

func TestMain(m *testing.M) { servicetest.Main(m) }

// connection returns the options that connect to the service.
func connection(s *servicetest.Server, more ...sdk.Option) []sdk.Option {
	return append([]sdk.Option{sdk.WithServer("https://" + s.Addrs.Service.String()), sdk.WithAuthtoken(s.Authtoken),
		sdk.WithCAFingerprint(s.Addrs.CAFingerprint), sdk.WithMaxReconnectGap(100 * time.Millisecond)}, more...)
}

// listen returns a listener that the test closes at its end.
func listen(t *testing.T, s *servicetest.Server, url string, more ...sdk.Option) *sdk.Listener {
	t.Helper()
	ln, err := sdk.Listen(servicetest.Context(t), url, connection(s, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.(*sdk.Listener)
}

func bound(ln *sdk.Listener) tunnel.Bound {
	return tunnel.Bound{EndpointID: ln.EndpointID(), URL: ln.URL()}
}

// accept takes the next connection.
func accept(t *testing.T, ln net.Listener) *sdk.Conn {
	t.Helper()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*sdk.Conn)
}

// hello answers every request.
func hello(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "hello "+r.Host+" from "+r.Header.Get("X-Forwarded-For"))
}

func TestListen_ServesHTTP(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ln := listen(t, s, "http://hello.demo")
	srv := &http.Server{Handler: http.HandlerFunc(hello)}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ln) }()
	f := s.StartForwarder()
	if status, body := f.Get(bound(ln)); status != http.StatusOK || body != "hello hello.demo from 10.1.2.3" {
		t.Errorf("got %d %q", status, body)
	}
	if ln.Addr().String() != "hello.demo:80" || ln.URL() != "http://hello.demo" {
		t.Errorf("the listener is %s at %s", ln.Addr(), ln.URL())
	}
	if err := srv.Shutdown(servicetest.Context(t)); err != nil {
		t.Error(err)
	}
	if err := servicetest.Receive(t, ended, "end of Serve"); !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve ended with %v", err)
	}
	if code := f.OpenRefused(servicetest.OpenHeader(t, bound(ln))); code != tunnel.RefusedOffline {
		t.Errorf("after Shutdown a call is answered: %v", code)
	}
}

func TestListen_ServesTCP(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ln := listen(t, s, "tcp://db.demo:5432")
	h := servicetest.OpenHeader(t, bound(ln))
	h.Pod = &tunnel.PodIdentity{Namespace: "demo", Name: "client"}
	st := s.StartForwarder().Open(h)
	if _, err := io.WriteString(st, "ping"); err != nil {
		t.Fatal(err)
	}
	if err := st.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	c := accept(t, ln)
	if got := servicetest.ReadAll(t, c); got != "ping" {
		t.Errorf("read %q", got)
	}
	if c.RemoteAddr().String() != servicetest.PodAddr || c.LocalAddr().String() != "db.demo:5432" {
		t.Errorf("connection from %s to %s", c.RemoteAddr(), c.LocalAddr())
	}
	if namespace, name := c.Pod(); namespace != "demo" || name != "client" {
		t.Errorf("pod %s/%s", namespace, name)
	}
	if _, err := io.WriteString(c, "pong"); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got := servicetest.ReadAll(t, st); got != "pong" {
		t.Errorf("the caller read %q", got)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Read after Close: %v", err)
	}
}

func TestListen_ReturnsRefusals(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	listen(t, s, "http://taken.demo")
	other := s.CreateAuthtoken("bind:http://*.other").Token
	for name, c := range map[string]struct {
		url    string
		opt    []sdk.Option
		reason sdk.Reason
		code   sdk.Code
	}{
		"unknown authtoken": {"http://a.demo", []sdk.Option{sdk.WithAuthtoken("flt_unknown")},
			sdk.ReasonCredentials, sdk.CodeUnknownCredential},
		"API key": {"http://a.demo", []sdk.Option{sdk.WithAuthtoken(s.APIKey)}, sdk.ReasonCredentials, ""},
		"taken":   {"http://taken.demo", nil, sdk.ReasonURLTaken, sdk.CodeURLTaken},
		"scheme":  {"ftp://a.demo", nil, "", sdk.CodeInvalid},
		"policy": {"http://a.demo", []sdk.Option{sdk.WithTrafficPolicy("on_http_request: 7")}, sdk.ReasonRefused,
			sdk.CodeInvalid},
		"no rule": {"http://a.demo", []sdk.Option{sdk.WithAuthtoken(*other)}, sdk.ReasonCredentials, sdk.CodeForbidden},
		"roots": {"http://a.demo", []sdk.Option{sdk.WithCAFingerprint(
			"0000000000000000000000000000000000000000000000000000000000000000")}, sdk.ReasonIdentity, ""},
		"backlog": {"http://a.demo", []sdk.Option{sdk.WithBacklog(0)}, "", sdk.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ln, err := sdk.Listen(servicetest.Context(t), c.url, connection(s, c.opt...)...)
			var refused *sdk.Error
			if ln != nil || !errors.As(err, &refused) || refused.Reason != c.reason || refused.Code != c.code {
				t.Errorf("got %#v, want reason %q and code %q", err, c.reason, c.code)
			}
		})
	}
}

func TestListen_WaitsForServiceUntilTimeout(t *testing.T) {
	t.Parallel()
	nothing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = nothing.Close()
	opt := []sdk.Option{sdk.WithServer(nothing.Addr().String()), sdk.WithAuthtoken("flt_test"),
		sdk.WithConnectTimeout(50 * time.Millisecond)}
	var refused *sdk.Error
	if _, err := sdk.Listen(t.Context(), "http://a.demo", opt...); err == nil || errors.As(err, &refused) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := sdk.Listen(ctx, "http://a.demo", opt[:2]...); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestListener_EndsWithContext(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	ln, err := sdk.Listen(ctx, "tcp://db.demo:5432", connection(s)...)
	if err != nil {
		t.Fatal(err)
	}
	f, b := s.StartForwarder(), bound(ln.(*sdk.Listener))
	st := f.Open(servicetest.OpenHeader(t, b))
	c := accept(t, ln)
	cancel()
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if code := f.OpenRefused(servicetest.OpenHeader(t, b)); code != tunnel.RefusedOffline {
		t.Errorf("the ended endpoint answered %v", code)
	}
	if _, err := io.WriteString(c, "still"); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if got := servicetest.ReadAll(t, st); got != "still" {
		t.Errorf("the open connection got %q", got)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
}
