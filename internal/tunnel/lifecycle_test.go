// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestClient_RereadsTokenAndResumesTLS(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	var n atomic.Int32
	r := h.startClient(ClientConfig{Connections: 1, Hello: func() Hello {
		return Hello{Role: RoleForwarder, Token: fmt.Sprintf("flt_%d", n.Add(1))}
	}})
	first := r.awaitSession(t)
	_, _ = io.WriteString(open(t, first), "x") // the ticket comes with the server's first bytes
	h.closeConns(0)
	wait.Receive(t, "the end", first.Done())
	wait.Receive(t, "the first session", h.handler.ups)
	wait.Receive(t, "a second session", h.handler.ups)
	if d := cmp.Diff([]string{"flt_1", "flt_2"}, h.handler.tokens()); d != "" {
		t.Error(d)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if d := cmp.Diff([]bool{false, true}, h.resumed); d != "" {
		t.Errorf("TLS sessions resumed: %s", d)
	}
}

func TestServer_DrainMovesClientToNewSession(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	r := h.startClient(ClientConfig{})
	old := r.awaitSession(t)
	far := wait.Receive(t, "the session", h.handler.ups)
	st := open(t, old)
	if err := st.WaitOpened(timeoutContext(t)); err != nil {
		t.Fatal(err)
	}
	if err := far.Drain(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	wait.Receive(t, "DRAIN", old.PeerDraining())
	var e *Error
	if err := wait.Receive(t, "OnDown", r.downs); !errors.As(err, &e) || e.Code != CodeDraining {
		t.Errorf("OnDown(%v)", err)
	}
	for _, s := range []*Session{old, far} {
		if _, err := s.Open(t.Context(), fullHeader()); !errors.As(err, &e) || e.Code != CodeDraining {
			t.Errorf("opened a stream while the server drains: %v", err)
		}
	}
	if s := r.awaitSession(t); s == old {
		t.Error("the client did not make a new session")
	}
	_, _ = io.WriteString(st, "still alive")
	_ = st.CloseWrite()
	if b, err := io.ReadAll(st); err != nil || string(b) != "still alive" {
		t.Errorf("a live stream received %q, %v", b, err)
	}
	if old.Err() != nil {
		t.Errorf("the old session ended before its stream: %v", old.Err())
	}
	_ = st.Close()
	wait.Receive(t, "the old session's end", old.Done())
	wait.Receive(t, "Down", h.handler.downs)
}

func TestSession_DrainingForwarderOpensStreams(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overPipe, newHandler())
	r := h.startClient(ClientConfig{})
	s := r.awaitSession(t)
	far := wait.Receive(t, "the session", h.handler.ups)
	for range 2 {
		if err := s.Drain(time.Second); err != nil {
			t.Fatal(err)
		}
	}
	wait.Receive(t, "DRAIN", far.PeerDraining())
	if err := open(t, s).WaitOpened(timeoutContext(t)); err != nil {
		t.Error(err)
	}
	var e *Error
	if _, err := far.Open(t.Context(), fullHeader()); !errors.As(err, &e) || e.Code != CodeDraining {
		t.Errorf("opened a stream towards a peer that drains: %v", err)
	}
	if r.Session() != s {
		t.Error("the session is gone")
	}
}

func TestClient_StopEndsRunWithItsCode(t *testing.T) {
	t.Parallel()
	forEachTransport(t, func(t *testing.T, transport string) {
		for _, code := range []Code{CodeStop, CodeTokenRevoked} {
			h := newTestServer(t, transport, newHandler())
			r := h.startClient(ClientConfig{})
			s := r.awaitSession(t)
			far := wait.Receive(t, "the session", h.handler.ups)
			st := open(t, s)
			far.Stop(code, "the token was deleted")
			far.Stop(CodeInternal, "the first reason counts")
			err := wait.Receive(t, "Run", r.result)
			var e *Error
			if !errors.As(err, &e) || e.Code != code || e.Msg != "the token was deleted" {
				t.Errorf("Run returned %v", err)
			}
			if _, err := st.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("a stream of a stopped session read %v", err)
			}
			if err := wait.Receive(t, "Down", h.handler.downs); !errors.As(err, &e) || e.Code != code {
				t.Errorf("Down(%v)", err)
			}
			if _, err := r.Wait(t.Context()); !errors.As(err, &e) || e.Code != code {
				t.Errorf("Wait after the end: %v", err)
			}
			if _, err := far.Open(t.Context(), fullHeader()); err == nil {
				t.Error("opened a stream in a stopped session")
			}
		}
	})
}

func TestClient_ReconnectsAfterTemporaryStop(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overPipe, newHandler())
	r := h.startClient(ClientConfig{})
	r.awaitSession(t)
	wait.Receive(t, "the session", h.handler.ups).Stop(CodeUnavailable, "the store is away")
	wait.Receive(t, "a new session", h.handler.ups)
}

func TestServer_RefusesHello(t *testing.T) {
	t.Parallel()
	for _, code := range []Code{CodeBadToken, CodeForbidden, CodeVersion} {
		handler := newHandler()
		handler.hello = func(context.Context, Hello) (Welcome, error) {
			return Welcome{}, &Error{Code: code, Msg: "no"}
		}
		r := newTestServer(t, overTCP, handler).startClient(ClientConfig{})
		var e *Error
		if err := wait.Receive(t, "Run", r.result); !errors.As(err, &e) || e.Code != code || e.Msg != "no" {
			t.Errorf("Run returned %v", err)
		}
	}
	handler := newHandler()
	var n atomic.Int32
	handler.hello = func(context.Context, Hello) (Welcome, error) {
		if n.Add(1) <= 2 {
			return Welcome{}, errors.New("a secret cause")
		}
		return Welcome{}, nil
	}
	r := newTestServer(t, overTCP, handler).startClient(ClientConfig{})
	r.awaitSession(t)
	for range 2 {
		if err := wait.Receive(t, "OnDown", r.downs); err == nil || strings.Contains(err.Error(), "a secret cause") {
			t.Errorf("OnDown(%v)", err)
		}
	}
}

func TestClient_OnUpErrorEndsSession(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overPipe, newHandler())
	var n atomic.Int32
	r := h.startClient(ClientConfig{Hello: agentHello, OnUp: func(ctx context.Context, s *Session) error {
		if n.Add(1) == 1 {
			return &Error{Code: CodeURLTaken, Msg: "taken"}
		}
		_, err := s.Bind(ctx, Bind{URL: "http://a.b"})
		return err
	}})
	s := r.awaitSession(t)
	if wait.Receive(t, "the first session", h.handler.ups).ID() == s.ID() || n.Load() != 2 {
		t.Error("a session counted as up although OnUp failed")
	}
	wait.Receive(t, "the first session's end", h.handler.downs)
	fatal := h.startClient(ClientConfig{Hello: agentHello, OnUp: func(context.Context, *Session) error {
		return fmt.Errorf("binding: %w", &Error{Code: CodeForbidden, Msg: "no rule"})
	}})
	var e *Error
	if err := wait.Receive(t, "Run", fatal.result); !errors.As(err, &e) || e.Code != CodeForbidden {
		t.Errorf("Run returned %v", err)
	}
}

func TestClient_RunEndsWithContext(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	ended := make(chan struct{})
	r := h.startClient(ClientConfig{Hello: agentHello, OnStream: func(ctx context.Context, _ *Session, st *Stream) {
		_ = st.Accept()
		<-ctx.Done()
		close(ended)
	}})
	r.awaitSession(t)
	st := open(t, wait.Receive(t, "the session", h.handler.ups))
	if err := st.WaitOpened(timeoutContext(t)); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := wait.Receive(t, "Run", r.result); err != nil {
		t.Errorf("Run returned %v", err)
	}
	select {
	case <-ended:
	default:
		t.Error("Run returned before a stream handler did")
	}
	if _, err := r.Wait(t.Context()); !errors.Is(err, net.ErrClosed) || r.Session() != nil {
		t.Errorf("Wait after the end: %v", err)
	}
	wait.Receive(t, "Down", h.handler.downs)
}

func TestBackoff_HasFullJitter(t *testing.T) {
	t.Parallel()
	for attempt, most := range map[int]time.Duration{0: 200 * time.Millisecond, 1: 400 * time.Millisecond,
		5: 6400 * time.Millisecond, 6: 10 * time.Second, 1 << 30: 10 * time.Second} {
		low, high := time.Hour, time.Duration(0)
		for range 1000 {
			d := backoff(attempt, defaultMaxBackoff)
			low, high = min(low, d), max(high, d)
		}
		if low < 0 || low > most/10 || high >= most || high < most*9/10 {
			t.Errorf("attempt %d: %s to %s, want 0 to %s", attempt, low, high, most)
		}
	}
}

const unread = 200 << 10 // of a window of 256 KiB

func TestClient_DeliversWrittenBytesBeforeClose(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h *testServer, r *testClient, far *Session){
		"client's context": func(_ *testServer, r *testClient, _ *Session) { r.stop() },
		"client's close":   func(_ *testServer, r *testClient, _ *Session) { _ = r.Session().Close() },
		"after the drain":  func(_ *testServer, _ *testClient, far *Session) { _ = far.Drain(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forEachTransport(t, func(t *testing.T, transport string) {
				h := newTestServer(t, transport, newHandler())
				written := make(chan struct{})
				r := h.startClient(ClientConfig{Hello: agentHello, Connections: 1,
					OnStream: func(_ context.Context, _ *Session, st *Stream) {
						_ = st.Accept()
						_, _ = io.Copy(io.Discard, onlyReader{st})
						_, _ = st.Write(make([]byte, unread))
						_ = st.CloseWrite()
						_ = st.Close()
						close(written)
					}})
				r.awaitSession(t)
				far := wait.Receive(t, "the session", h.handler.ups)
				st := open(t, far)
				_ = st.CloseWrite()
				<-written
				end(h, r, far)
				wait.Receive(t, "the end", far.Done())
				if b, err := io.ReadAll(st); err != nil || len(b) != unread {
					t.Errorf("received %d bytes of %d, %v", len(b), unread, err)
				}
			})
		})
	}
}

func TestServer_DeliversWrittenBytesBeforeClose(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(h *testServer, far *Session){
		"server's context": func(h *testServer, _ *Session) { h.stop() },
		"server's close":   func(_ *testServer, far *Session) { _ = far.Close() },
		"server's stop":    func(_ *testServer, far *Session) { far.Stop(CodeStop, "enough") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := newHandler()
			written := make(chan struct{})
			handler.stream = func(_ context.Context, _ *Session, st *Stream) {
				_ = st.Accept()
				_, _ = io.Copy(io.Discard, onlyReader{st})
				_, _ = st.Write(make([]byte, unread))
				_ = st.CloseWrite()
				_ = st.Close()
				close(written)
			}
			h := newTestServer(t, overTCP, handler)
			s := h.startClient(ClientConfig{Connections: 1}).awaitSession(t)
			far := wait.Receive(t, "the session", handler.ups)
			st := open(t, s)
			_ = st.CloseWrite()
			<-written
			end(h, far)
			wait.Receive(t, "the end", s.Done())
			if b, err := io.ReadAll(st); err != nil || len(b) != unread {
				t.Errorf("received %d bytes of %d, %v", len(b), unread, err)
			}
		})
	}
}
