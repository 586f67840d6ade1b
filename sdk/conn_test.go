// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/sdk"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestConn_IsNetConn holds a connection through the whole service to what net.Conn promises:
// deadlines, concurrent use, closing.
func TestConn_IsNetConn(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ln := listen(t, s, "tcp://db.demo:5432")
	f := s.StartForwarder()
	var waits sync.WaitGroup
	t.Cleanup(waits.Wait)
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		caller, wait := sdk.OpenedConn(f.Open(servicetest.OpenHeader(t, bound(ln))))
		waits.Go(func() { wait(servicetest.Context(t)) })
		c, err := ln.Accept()
		if err != nil {
			return nil, nil, nil, err
		}
		return c, caller, func() { _, _ = c.Close(), caller.Close() }, nil
	})
}

func TestConn_HalfCloses(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ln := listen(t, s, "tcp://db.demo:5432")
	st := s.StartForwarder().Open(servicetest.OpenHeader(t, bound(ln)))
	c := accept(t, ln)
	if _, err := io.WriteString(c, "first"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := servicetest.ReadAll(t, st); got != "first" {
		t.Errorf("the caller read %q", got)
	}
	if _, err := io.WriteString(st, "then"); err != nil {
		t.Fatal(err)
	}
	_ = st.CloseWrite()
	if got := servicetest.ReadAll(t, c); got != "then" {
		t.Errorf("read %q after CloseWrite", got)
	}
}

func TestConn_AbortIsNoEnd(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ln := listen(t, s, "tcp://db.demo:5432")
	f := s.StartForwarder()
	st := f.Open(servicetest.OpenHeader(t, bound(ln)))
	if err := accept(t, ln).Abort(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(st); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after Abort the caller got %v", err)
	}
	st = f.Open(servicetest.OpenHeader(t, bound(ln)))
	c := accept(t, ln)
	_ = st.Abort()
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after the caller's abort Read returned %v", err)
	}
}

// TestConn_WritesWaitForReader holds that a caller who does not read stops the writer, so that
// memory stays bounded.
func TestConn_WritesWaitForReader(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ln := listen(t, s, "tcp://db.demo:5432")
	st := s.StartForwarder().Open(servicetest.OpenHeader(t, bound(ln)))
	c := accept(t, ln)
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	const huge = 256 << 20
	n, err := c.Write(make([]byte, huge))
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() || n >= huge/4 {
		t.Fatalf("wrote %d bytes to a caller that does not read: %v", n, err)
	}
	_ = c.Close()
	if got, err := io.Copy(io.Discard, struct{ io.Reader }{st}); err != nil || got != int64(n) {
		t.Errorf("the caller read %d of %d bytes: %v", got, n, err)
	}
}

func TestListener_RefusesBeyondBacklog(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	ln := listen(t, s, "tcp://db.demo:5432", sdk.WithBacklog(2))
	f, h := s.StartForwarder(), servicetest.OpenHeader(t, bound(ln))
	refused := make(chan error, 5)
	for range cap(refused) {
		go func() { refused <- f.Open(h).WaitOpened(servicetest.Context(t)) }()
	}
	for range cap(refused) - 2 { // two wait
		var why *tunnel.RefusedError
		err := servicetest.Receive(t, refused, "refusal")
		if !errors.As(err, &why) || why.Code != tunnel.RefusedUpstream {
			t.Errorf("beyond the backlog: %v", err)
		}
	}
	for range 2 {
		accept(t, ln)
		if err := servicetest.Receive(t, refused, "answer"); err != nil {
			t.Errorf("within the backlog: %v", err)
		}
	}
}

func TestListener_OutlivesRestartOfService(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	events := make(chan sdk.Event, 100)
	ln := listen(t, s, "http://hello.demo", sdk.WithEventHandler(func(e sdk.Event) { events <- e }))
	srv := &http.Server{Handler: http.HandlerFunc(hello)}
	t.Cleanup(func() { _ = srv.Close() })
	go func() { _ = srv.Serve(ln) }()
	if first := servicetest.Receive(t, events, "event").(sdk.Online); first.Reconnected {
		t.Errorf("the first event is %+v", first)
	}
	before := bound(ln)
	if err := s.StopAndWait(); err != nil {
		t.Fatal(err)
	}
	again := servicetest.Start(t, func(o *service.Options) {
		o.Addr, o.DataDir = s.Addrs.Service.String(), s.Options.DataDir
	})
	offline := false
	for online := false; !online; {
		switch e := servicetest.Receive(t, events, "event").(type) {
		case sdk.Offline:
			offline = true
		case sdk.Online:
			online = e.Reconnected
		}
	}
	if after := bound(ln); after != before || !offline {
		t.Errorf("%+v became %+v; an event said that it is offline: %t", before, after, offline)
	}
	if status, body := again.StartForwarder().Get(before); status != http.StatusOK {
		t.Errorf("after the restart: %d %q", status, body)
	}
}

func TestListener_EndsWithFinalRefusal(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	token := s.CreateAuthtoken()
	ln := listen(t, s, "http://hello.demo", sdk.WithAuthtoken(*token.Token))
	s.RequireStatus("DELETE", "/credentials/"+token.ID, nil, http.StatusNoContent)
	_, err := ln.Accept()
	var refused *sdk.Error
	if !errors.As(err, &refused) || refused.Reason != sdk.ReasonCredentials {
		t.Errorf("Accept returned %v", err)
	}
}

// TestListener_ShutdownLosesNoRequest holds that requests which arrive while http.Server shuts down
// are served, or refused before they are served, which the pool's other member answers.
func TestListener_ShutdownLosesNoRequest(t *testing.T) {
	t.Parallel()
	s := servicetest.Start(t)
	servers := make([]*http.Server, 2)
	var b tunnel.Bound
	for i := range servers {
		ln := listen(t, s, "http://hello.demo", sdk.WithPooling())
		b = bound(ln)
		servers[i] = &http.Server{Handler: http.HandlerFunc(hello)}
		t.Cleanup(func() { _ = servers[i].Close() })
		go func() { _ = servers[i].Serve(ln) }()
	}
	f := s.StartForwarder()
	var served, failed atomic.Int64
	var load sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		load.Go(func() {
			tr := f.Transport(b)
			defer tr.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := (&http.Client{Transport: tr}).Get("http://hello.demo/")
				if err != nil || res.StatusCode != http.StatusOK {
					failed.Add(1)
				}
				if err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
				served.Add(1)
			}
		})
	}
	servicetest.Eventually(t, "requests", func() bool { return served.Load() > 50 })
	if err := servers[0].Shutdown(servicetest.Context(t)); err != nil {
		t.Error(err)
	}
	until := served.Load() + 50
	servicetest.Eventually(t, "requests", func() bool { return served.Load() > until })
	close(stop)
	load.Wait()
	if n := failed.Load(); n > 0 {
		t.Errorf("%d of %d requests failed", n, served.Load())
	}
}
