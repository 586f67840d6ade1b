// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/libp2p/go-yamux/v5"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// rawTLSConn returns a TLS connection to the server without the session protocol.
func (h *testServer) rawTLSConn(t *testing.T) *tls.Conn {
	t.Helper()
	raw, err := h.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	cfg := clientTrust()
	cfg.NextProtos = []string{ALPN}
	c := tls.Client(raw, cfg)
	if err := c.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = raw.Close() })
	return c
}

// rawControlStream opens a yamux session and its control stream.
func rawControlStream(t *testing.T, c *tls.Conn) (*yamux.Session, *yamux.Stream) {
	t.Helper()
	mux, err := yamux.Client(c, yamux.DefaultConfig(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mux.Close() })
	st, err := mux.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return mux, st
}

func encodeFrame(s string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(s)))) + s
}

// serveError waits for the end of all connections and returns the error of the first ServeConn.
func (h *testServer) serveError(t *testing.T) error {
	t.Helper()
	h.serving.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.errs) == 0 {
		t.Fatal("no connection was served")
	}
	return h.errs[0]
}

func TestClient_SendsNoHelloToUntrustedServer(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	r := h.startClient(ClientConfig{TLS: &tls.Config{MinVersion: tls.VersionTLS13}})
	if err := wait.Receive(t, "OnDown", r.downs); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("OnDown(%v)", err)
	}
	if len(h.handler.tokens()) != 0 {
		t.Error("a token went to a server that is not trusted")
	}
}

func TestClientTLS_ServerNameFromAddress(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{"a.example:443": "a.example", "[::1]:443": "::1", "bare": "bare"} {
		if got := clientTLS(ClientConfig{Address: addr}).ServerName; got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
}

// writeRaw returns a function that writes to the TLS connection.
func writeRaw(s string) func(*testing.T, *tls.Conn) {
	return func(_ *testing.T, c *tls.Conn) { _, _ = io.WriteString(c, s) }
}

// writeControl returns a function that writes to the control stream.
func writeControl(s string) func(*testing.T, *tls.Conn) {
	return func(t *testing.T, c *tls.Conn) {
		_, st := rawControlStream(t, c)
		_, _ = io.WriteString(st, s)
	}
}

// invalidStarts are what a peer may send in place of a hello.
var invalidStarts = map[string]func(*testing.T, *tls.Conn){
	"HTTP instead of a multiplexer": writeRaw("GET / HTTP/1.1\r\nHost: server.test\r\n\r\n"),
	"zeros":                         writeRaw(strings.Repeat("\x00\x07", 4096)),
	"HTTP instead of a hello":       writeControl("GET / HTTP/1.1\r\nHost: server.test\r\n\r\n"),
	"hello too long":                writeControl("\x00\x00\x40\x01"),
	"not JSON":                      writeControl(encodeFrame("hello")),
	"no hello":                      writeControl(encodeFrame(`{"type":"bind","id":1,"bind":{"url":"http://a.b"}}`)),
	"thousands of streams": func(t *testing.T, c *tls.Conn) {
		mux, _ := rawControlStream(t, c)
		for range 4000 {
			if _, err := mux.OpenStream(t.Context()); err != nil {
				return
			}
		}
	},
	"bytes for another stream": func(t *testing.T, c *tls.Conn) {
		mux, _ := rawControlStream(t, c)
		st, err := mux.OpenStream(t.Context())
		if err == nil {
			_, _ = st.Write(make([]byte, 200_000))
		}
	},
}

func TestServer_ClosesOnGarbage(t *testing.T) {
	t.Parallel()
	for name, send := range invalidStarts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTestServer(t, overTCP, newHandler())
			c := h.rawTLSConn(t)
			go func() { // the server's answers are read, else its graceful close waits for a second
				if strings.Contains(name, "instead of a multiplexer") || name == "zeros" {
					_, _ = io.Copy(io.Discard, c)
				}
			}()
			send(t, c)
			wait.Until(t, "the server to hang up", func() bool {
				h.mu.Lock()
				defer h.mu.Unlock()
				return len(h.errs) == 1
			})
			h.mu.Lock()
			err := h.errs[0]
			h.mu.Unlock()
			if strings.Contains(err.Error(), "no hello within") {
				t.Errorf("the server waited for the hello's timeout: %v", err)
			}
			if len(h.server.Sessions()) != 0 || len(h.handler.tokens()) != 0 {
				t.Error("the handler saw it")
			}
		})
	}
}

func TestServer_JoinNeedsSecretOfLiveSession(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	r := h.startClient(ClientConfig{Connections: 1})
	s := r.awaitSession(t)
	join := func(id, secret string) error {
		c := NewClient(ClientConfig{Address: testAddress, TLS: clientTrust(), DialContext: h.dial})
		l, _, err := c.dial(t.Context(), testAddress, Hello{Role: RoleForwarder, SessionID: id, JoinSecret: secret})
		if err == nil {
			l.close(net.ErrClosed)
		}
		return err
	}
	secret := s.Welcome().JoinSecret
	if err := join(s.ID(), secret); err != nil {
		t.Errorf("the right secret: %v", err)
	}
	for name, try := range map[string][2]string{
		"wrong secret": {s.ID(), secret[1:] + "A"}, "no secret": {s.ID(), ""}, "unknown session": {"ts_99", secret},
	} {
		var e *Error
		if err := join(try[0], try[1]); !errors.As(err, &e) || e.Code != CodeUnknownSession {
			t.Errorf("%s: %v", name, err)
		}
	}
	far := wait.Receive(t, "the session", h.handler.ups)
	awaitConnections(t, 1, far)
	for range maxConnections - 1 {
		c := NewClient(ClientConfig{Address: testAddress, TLS: clientTrust(), DialContext: h.dial})
		l, _, err := c.dial(t.Context(), testAddress, Hello{Role: RoleForwarder, SessionID: s.ID(), JoinSecret: secret})
		if err != nil {
			t.Fatal(err)
		}
		defer l.close(net.ErrClosed)
	}
	var e *Error
	if err := join(s.ID(), secret); !errors.As(err, &e) || e.Code != CodeLimit {
		t.Errorf("connection %d of a session: %v", maxConnections+1, err)
	}
	far.Stop(CodeStop, "enough")
	if err := join(s.ID(), secret); !errors.As(err, &e) || e.Code != CodeUnknownSession {
		t.Errorf("joined a session that ends: %v", err)
	}
	if n := len(h.handler.tokens()); n != 1 {
		t.Errorf("%d hellos reached the handler", n)
	}
}

func TestServer_LimitsPendingConnections(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	h.mu.Lock()
	h.server = NewServer(ServerConfig{Handler: h.handler, MaxPending: 2})
	h.mu.Unlock()
	for range 2 {
		h.rawTLSConn(t)
	}
	wait.Until(t, "two waiting connections", func() bool { return len(h.server.pending) == 2 })
	if _, err := h.rawTLSConn(t).Read(make([]byte, 1)); err == nil {
		t.Error("a third connection may wait")
	}
	h.closeConns(0)
	r := h.startClient(ClientConfig{})
	r.awaitSession(t) // as soon as there is room
}

// TestServer_LimitsStreamsBeforeHello checks that a peer has its control stream and a few waiting
// ones before its hello: streams cost memory.
func TestServer_LimitsStreamsBeforeHello(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, overTCP, newHandler())
	mux, _ := rawControlStream(t, h.rawTLSConn(t))
	var last *yamux.Stream
	for range 50 {
		st, err := mux.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last = st
	}
	var reset *yamux.StreamError
	if _, err := last.Read(make([]byte, 1)); !errors.As(err, &reset) || !reset.Remote { // within the time for a hello
		t.Errorf("the last of 50 streams was not refused: %v", err)
	}
}
