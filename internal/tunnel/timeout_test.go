// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

func TestServer_ClosesSilentPeers(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]func(t *testing.T, c *tls.Conn){
		"nothing":       func(*testing.T, *tls.Conn) {},
		"a multiplexer": func(t *testing.T, c *tls.Conn) { rawControlStream(t, c) },
		"half a hello": func(t *testing.T, c *tls.Conn) {
			_, st := rawControlStream(t, c)
			_, _ = io.WriteString(st, "\x00\x00\x00\x40{")
		},
		"a byte a second": func(t *testing.T, c *tls.Conn) {
			_, st := rawControlStream(t, c)
			var writing sync.WaitGroup
			t.Cleanup(writing.Wait)
			writing.Go(func() {
				for _, b := range []byte(encodeFrame(strings.Repeat(" ", 1000))) {
					if _, err := st.Write([]byte{b}); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newTestServer(t, overPipe, newHandler())
				began := time.Now()
				send(t, h.rawTLSConn(t))
				if err := h.serveError(t); err == nil || !strings.Contains(err.Error(), "within 10s") {
					t.Errorf("ServeConn: %v", err)
				}
				if d := time.Since(began); d > controlTimeout+10*time.Second {
					t.Errorf("cut off after %s", d)
				}
			})
		})
	}
}

func TestClient_LeavesSilentServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cert, _ := authority()
		var handshakes atomic.Int32
		h := &testServer{t: t}
		r := h.startClient(ClientConfig{DialContext: func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			if handshakes.Add(1) == 1 {
				return near, nil // does not even speak TLS
			}
			c := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{ALPN}})
			go func() { _, _ = io.Copy(io.Discard, c) }()
			return near, nil
		}})
		for _, want := range []string{"negotiating TLS", "no welcome within 10s"} {
			began := time.Now()
			err := <-r.downs
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("OnDown(%v), want %q", err, want)
			}
			if d := time.Since(began); d < 9*time.Second || d > 16*time.Second { // 5 s of a TLS close
				t.Errorf("left after %s", d)
			}
		}
	})
}

func TestServer_HangingHandlerIsAnsweredInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := newHandler()
		handler.bind = func(ctx context.Context, _ *Session, _ Bind) (Bound, error) {
			<-ctx.Done()
			return Bound{}, &Error{Code: CodeUnavailable, Msg: "the store does not answer"}
		}
		s := newTestServer(t, overPipe, handler).startClient(ClientConfig{Hello: agentHello}).awaitSession(t)
		began := time.Now()
		if _, err := s.Bind(t.Context(), Bind{URL: "http://a.b"}); err == nil {
			t.Error("bound")
		}
		if d := time.Since(began); d != controlTimeout {
			t.Errorf("answered after %s", d)
		}
	})
}

func TestServer_ResetsStreamWithoutHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		s := h.startClient(ClientConfig{}).awaitSession(t)
		s.mu.Lock()
		l := s.links.active[0]
		s.mu.Unlock()
		for name, send := range map[string]string{"nothing": "", "half": "\x01\x00\x00\x40half"} {
			st, err := l.mux.Open(t.Context(), []byte(send))
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err = st.Read(make([]byte, 1))
			var reset *mux.ResetError
			if !errors.As(err, &reset) || reset.Code != refusedFlag|uint32(RefusedHeader) ||
				time.Since(began) != controlTimeout {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
		}
		st, err := l.mux.Open(t.Context(), []byte("\x01\x00\xff\xff"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = st.Read(make([]byte, 1)); err == nil {
			t.Error("took a header of 65,535 bytes")
		}
	})
}

// blockedConn is a connection whose writes time out.
type blockedConn struct{ closed chan struct{} }

func (c blockedConn) Read([]byte) (int, error) {
	<-c.closed
	return 0, net.ErrClosed
}
func (blockedConn) WriteFrames(_, _ []byte) error    { return os.ErrDeadlineExceeded }
func (blockedConn) SetWriteDeadline(time.Time) error { return nil }
func (c blockedConn) Close() error {
	close(c.closed)
	return nil
}

func TestLink_SlowWriteIsNoUnfinishedMessage(t *testing.T) {
	t.Parallel()
	l := &link{mux: mux.New(blockedConn{make(chan struct{})}, mux.Config{}), ctx: t.Context()}
	<-l.mux.Done() // its first ping
	l.mux.Close(nil)
	_, err := l.mux.Accept()
	for _, err := range []error{nil, err, l.mux.Err()} {
		if got := l.endReason(err).Error(); !strings.Contains(got, "connection broke: writing: ") {
			t.Errorf("after %v: %s", err, got)
		}
	}
}

// blackholeConn is one end of a connection. Once it is shut, nothing gets through, not even a
// close, and nothing fails.
type blackholeConn struct {
	net.Conn
	shut chan struct{}
}

func (g blackholeConn) isShut() bool {
	select {
	case <-g.shut:
		return true
	default:
		return false
	}
}

func (g blackholeConn) Write(p []byte) (int, error) {
	if g.isShut() {
		return len(p), nil
	}
	return g.Conn.Write(p)
}

func (g blackholeConn) Close() error {
	if g.isShut() {
		return g.SetReadDeadline(time.Unix(1, 0)) // this side's reader ends all the same
	}
	return g.Conn.Close()
}

func TestSession_PingsDetectVanishedPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		shut := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		r := h.startClient(ClientConfig{Connections: 1,
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				t.Cleanup(func() { _, _ = near.Close(), far.Close() })
				h.serve(ctx, blackholeConn{far, shut})
				return blackholeConn{near, shut}, nil
			}})
		s := r.awaitSession(t)
		time.Sleep(time.Hour) // idle, but alive
		if s.Err() != nil {
			t.Fatalf("an idle session ended: %v", s.Err())
		}
		close(shut)
		began := time.Now()
		far := <-h.handler.ups
		<-far.Done()
		if d := time.Since(began); d > 50*time.Second {
			t.Errorf("the server found out after %s", d)
		}
		if err := <-h.handler.downs; err == nil || !strings.Contains(err.Error(), "ping") {
			t.Errorf("Down(%v)", err)
		}
	})
}
