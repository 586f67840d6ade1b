// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/sdk"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// sealing is a service with a forwarder, and the owner of its account's sealed endpoints.
type sealing struct {
	*servicetest.Server
	t     *testing.T
	owner *sealtest.Owner
	trust *sealed.Trust
	f     *servicetest.Forwarder
}

func newSealing(t *testing.T) *sealing {
	t.Helper()
	s := servicetest.Start(t)
	f := s.StartForwarder()
	owner := sealtest.NewOwner(t, must[*tunnel.Session](t)(f.Wait(servicetest.Context(t))).Welcome().AccountID)
	return &sealing{Server: s, t: t, owner: owner, trust: owner.Trust(), f: f}
}

// folder returns a folder with a pair whose certificate names the URL.
func (s *sealing) folder(url string) string {
	s.t.Helper()
	dir := s.t.TempDir()
	sealtest.Write(s.t, dir, s.owner.Server(must[account.EndpointURL](s.t)(account.ParseEndpointURL(url))))
	return dir
}

func (s *sealing) listen(url string, more ...sdk.Option) *sdk.Listener {
	s.t.Helper()
	return listen(s.t, s.Server, url, append(more, sdk.WithSeal(s.folder(url)))...)
}

// connected is both ends of a connection.
func (s *sealing) connected(ln *sdk.Listener) (caller *sealed.Conn, own *sdk.Conn) {
	s.t.Helper()
	opened := make(chan error, 1)
	go func() {
		var err error
		caller, err = s.f.OpenSealed(bound(ln), s.trust)
		opened <- err
	}()
	own = accept(s.t, ln)
	if err := servicetest.Receive(s.t, opened, "answer"); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = caller.Abort() })
	return caller, own
}

func TestListen_SealedConnIsPlainInside(t *testing.T) {
	t.Parallel()
	s := newSealing(t)
	ln := s.listen("tcp://db.demo:5432")
	if code := s.f.OpenRefused(servicetest.OpenHeader(t, bound(ln))); code != tunnel.RefusedSealed {
		t.Errorf("a plain call: %v", code)
	}
	caller, c := s.connected(ln)
	if c.RemoteAddr().String() != servicetest.PodAddr || c.LocalAddr().String() != "db.demo:5432" {
		t.Errorf("connection from %s to %s", c.RemoteAddr(), c.LocalAddr())
	}
	if namespace, name := c.Pod(); namespace != "demo" || name != "client" {
		t.Errorf("pod %s/%s", namespace, name)
	}
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	var timeout net.Error
	if _, err := c.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("Read after its deadline: %v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	_, _ = io.WriteString(caller, "ping")
	_ = caller.CloseWrite()
	if got := servicetest.ReadAll(t, c); got != "ping" {
		t.Errorf("read %q", got)
	}
	_, _ = io.WriteString(c, "pong")
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if got := servicetest.ReadAll(t, caller); got != "pong" {
		t.Errorf("the caller read %q", got)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}
}

func TestListen_SealedAbortIsNoEnd(t *testing.T) {
	t.Parallel()
	s := newSealing(t)
	ln := s.listen("tcp://db.demo:5432")
	caller, c := s.connected(ln)
	_ = c.Abort()
	if _, err := io.ReadAll(caller); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after Abort the caller got %v", err)
	}
	caller, c = s.connected(ln)
	_ = caller.Abort()
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the caller's abort Read returned %v", err)
	}
	caller, c = s.connected(ln)
	reading := make(chan error, 1)
	go func() { _, err := c.Read(make([]byte, 1)); reading <- err }()
	_ = c.Close()
	if err := servicetest.Receive(t, reading, "end of Read"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a Read during Close returned %v", err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a Read after Close returned %v", err)
	}
	// What arrives after Close is read and dropped.
	_, err := io.WriteString(caller, strings.Repeat("x", 1<<20))
	if err := errors.Join(err, caller.CloseWrite()); err != nil {
		t.Error(err)
	}
	if got := servicetest.ReadAll(t, caller); got != "" {
		t.Errorf("after Close the caller read %q", got)
	}
}

// TestListen_SealedRefusals holds that a full backlog refuses inside the seal, where the forwarder can
// try another agent.
func TestListen_SealedRefusals(t *testing.T) {
	t.Parallel()
	s := newSealing(t)
	ln := s.listen("tcp://db.demo:5432", sdk.WithBacklog(1))
	answers := make(chan error, 2)
	for range 2 {
		go func() { _, err := s.f.OpenSealed(bound(ln), s.trust); answers <- err }()
	}
	var refused *sealed.RefusedError
	if err := servicetest.Receive(t, answers, "refusal"); !errors.As(err, &refused) || refused.Code != "UPSTREAM" {
		t.Errorf("beyond the backlog: %v", err)
	}
	accept(t, ln)
	if err := servicetest.Receive(t, answers, "answer"); err != nil {
		t.Errorf("within the backlog: %v", err)
	}
}

func TestListen_ServesSealedHTTP(t *testing.T) {
	t.Parallel()
	s := newSealing(t)
	ln := s.listen("http://hello.demo")
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Host+" "+r.RemoteAddr+" "+string(body))
	})}
	go func() { _ = srv.Serve(ln) }()
	c, err := s.f.OpenSealed(bound(ln), s.trust)
	if err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(c)
	for range 3 { // over one connection
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: hello.demo\r\nContent-Length: 4\r\n\r\nping")
		res := must[*http.Response](t)(http.ReadResponse(answers, nil))
		if got := servicetest.ReadAll(t, res.Body); got != "hello.demo "+servicetest.PodAddr+" ping" {
			t.Errorf("got %q", got)
		}
	}
	if err := srv.Shutdown(servicetest.Context(t)); err != nil {
		t.Error(err)
	}
	if got, err := io.ReadAll(answers); len(got) > 0 || err != nil {
		t.Errorf("after Shutdown: %q, %v", got, err)
	}
	_ = c.CloseWrite()
}

func TestForward_SealsTCP(t *testing.T) {
	t.Parallel()
	s := newSealing(t)
	ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	f := must[*sdk.Forwarder](t)(sdk.Forward(servicetest.Context(t), "tcp://db.demo:5432", ln.Addr().String(),
		connection(s.Server, sdk.WithSeal(s.folder("tcp://db.demo:5432")))...))
	t.Cleanup(func() { _ = f.Close() })
	c, err := s.f.OpenSealed(tunnel.Bound{EndpointID: f.EndpointID(), URL: f.URL()}, s.trust)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, "ping")
	_ = c.CloseWrite()
	if got := servicetest.ReadAll(t, c); got != "ping" {
		t.Errorf("read %q", got)
	}
}

// TestListen_SealClusters holds that a caller with a token of a cluster in the file is served, and one
// without is not.
func TestListen_SealClusters(t *testing.T) {
	t.Parallel()
	s := newSealing(t)
	cluster := s.owner.NewCluster("one")
	files := s.owner.WriteCallers(t.TempDir(), s.owner.SignClusters(0, cluster))
	ln := s.listen("tcp://db.demo:5432", sdk.WithSealCallers(files.File), sdk.WithSealClusters(files.Clusters))
	if _, err := s.f.OpenSealed(bound(ln), s.trust); err == nil {
		t.Error("a caller that proves nothing is served")
	}
	s.trust = s.owner.TokenTrust(cluster.Token(nil))
	caller, own := s.connected(ln)
	_, _ = io.WriteString(caller, "ping")
	if _, err := io.ReadFull(own, make([]byte, 4)); err != nil {
		t.Error(err)
	}
	_, _ = caller.Abort(), own.Close()
}

func TestSeal_RefusesMistakes(t *testing.T) {
	t.Parallel()
	s := newSealing(t)
	db, web := s.folder("tcp://db.demo:5432"), s.folder("http://web.demo")
	for name, c := range map[string]struct {
		url, want string
		opt       []sdk.Option
	}{
		"no pair":       {"tcp://db.demo:5432", "tls.crt", []sdk.Option{sdk.WithSeal(t.TempDir())}},
		"other URL":     {"tcp://db.demo:5433", "does not name tcp://db.demo:5433", []sdk.Option{sdk.WithSeal(db)}},
		"callers alone": {"tcp://db.demo:5432", "give WithSeal", []sdk.Option{sdk.WithSealCallers("x")}},
		"clusters alone": {"tcp://db.demo:5432", "is for WithSealCallers",
			[]sdk.Option{sdk.WithSeal(db), sdk.WithSealClusters("x")}},
		"no authorities": {"tcp://db.demo:5432", "no such file",
			[]sdk.Option{sdk.WithSeal(db), sdk.WithSealCallers("/x")}},
		"HTTP/2": {"http://web.demo", "leave out WithHTTP2", []sdk.Option{sdk.WithSeal(web), sdk.WithHTTP2()}},
		"policy": {"http://web.demo", "leave out WithHTTP2, WithHostHeader and WithTrafficPolicy", []sdk.Option{
			sdk.WithSeal(web),
			sdk.WithTrafficPolicy("on_http_request: [{actions: [{type: deny}]}]")}},
	} {
		_, err := sdk.Listen(servicetest.Context(t), c.url, connection(s.Server, c.opt...)...)
		var refused *sdk.Error
		if !errors.As(err, &refused) || len(refused.Fields) != 1 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := sdk.Forward(servicetest.Context(t), "http://web.demo", "8080",
		connection(s.Server, sdk.WithSeal(web))...)
	if err == nil || !strings.Contains(err.Error(), "tcp endpoints only") {
		t.Errorf("Forward of http: %v", err)
	}
}
