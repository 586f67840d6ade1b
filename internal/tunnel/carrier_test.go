// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// middleBox ends TLS before a server and speaks nothing but HTTP/1.1 with it.
type middleBox struct {
	front *httptest.Server

	mu    sync.Mutex
	tried []string // first protocol of each connection's ALPN, in order
	conns []net.Conn
}

// newMiddleBox starts a box before a new server with the handler. change changes the TLS at its front.
func newMiddleBox(t *testing.T, handler *testHandler, change func(*tls.Config)) (*middleBox, *testServer) {
	t.Helper()
	cert, pool := authority()
	h := newTestServer(t, overPipe, handler)
	serving, stop := context.WithCancel(context.Background())
	back := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != WebSocketPath {
			http.NotFound(w, r)
			return
		}
		h.serving.Add(1)
		defer h.serving.Done()
		_ = h.server.ServeWebSocket(serving, w, r)
	}))
	back.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	back.StartTLS()
	b := &middleBox{}
	target, _ := url.Parse(back.URL)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "server.test"}}
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	b.front = httptest.NewUnstartedServer(proxy)
	b.front.Config.ErrorLog = proxy.ErrorLog
	config := &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"http/1.1"}}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.tried = append(b.tried, strings.Join(hello.SupportedProtos, ","))
		b.conns = append(b.conns, hello.Conn)
		return nil, nil
	}
	change(config)
	b.front.Listener = tls.NewListener(b.front.Listener, config)
	b.front.Start()
	t.Cleanup(func() {
		stop()
		b.cut()
		b.front.Close()
		back.Close()
		proxy.Transport.(*http.Transport).CloseIdleConnections()
	})
	h.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", b.front.Listener.Addr().String())
	}
	return b, h
}

// cut resets the connections.
func (b *middleBox) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		resetConn(c)
	}
	b.conns = nil
}

func resetConn(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// protocols returns the protocols of the connections so far.
func (b *middleBox) protocols() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.tried)
}

func acceptAnyProtocol(c *tls.Config) { c.NextProtos = nil }

func resetNative(c *tls.Config) {
	note := c.GetConfigForClient
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if slices.Contains(hello.SupportedProtos, ALPN) {
			resetConn(hello.Conn)
		}
		return note(hello)
	}
}

func TestClient_ChoosesWebSocket(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*tls.Config)
		native int // native attempts before
		reason string
	}{
		"the protocol is refused": {func(*tls.Config) {}, 1, "fairlead/1 is refused on the way"},
		"no protocol is chosen":   {acceptAnyProtocol, 1, "TLS ends on the way"},
		"TLS 1.2 only": {func(c *tls.Config) { c.NextProtos, c.MaxVersion = nil, tls.VersionTLS12 }, 1,
			"TLS 1.3 is refused"},
		"the handshake is cut": {resetNative, 2, "native connections are cut"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, h := newMiddleBox(t, newHandler(), tt.change)
			r := h.startClient(ClientConfig{Connections: 2})
			s := r.awaitSession(t)
			if got := s.Carrier(); got.Name != CarrierWebSocket || !strings.Contains(got.Reason, tt.reason) {
				t.Errorf("Carrier() = %+v, want a WebSocket because %s", got, tt.reason)
			}
			if got := wait.Receive(t, "the server's session", h.handler.ups).Carrier().Name; got != CarrierWebSocket {
				t.Errorf("the server's session has the carrier %q", got)
			}
			wait.Until(t, "a second connection",
				func() bool { return len(s.Legs()) == 1 && s.Legs()[0].Connections == 2 })
			want := append(slices.Repeat([]string{ALPN}, tt.native), "http/1.1", "http/1.1")
			if got := b.protocols(); !slices.Equal(got, want) {
				t.Errorf("connections had the protocols %q, want %q", got, want)
			}
			echoes(t, s)
		})
	}
}

// TestClient_FollowsNoRedirect checks that a redirect in place of the WebSocket leads the client, with its
// token, to no server that has no TLS.
func TestClient_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	elsewhere := make(chan struct{}, 100)
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere <- struct{}{} }))
	t.Cleanup(plain.Close)
	cert, _ := authority()
	portal := httptest.NewUnstartedServer(http.RedirectHandler(plain.URL, http.StatusFound))
	portal.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	portal.Config.ErrorLog = log.New(io.Discard, "", 0)
	portal.StartTLS()
	t.Cleanup(portal.Close)
	h := newTestServer(t, overPipe, newHandler())
	h.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", portal.Listener.Addr().String())
	}
	err := wait.Receive(t, "a failure", h.startClient(ClientConfig{}).downs)
	if len(elsewhere) > 0 || !strings.Contains(err.Error(), "got 302") {
		t.Errorf("%d requests elsewhere, %v; want none, and the status", len(elsewhere), err)
	}
}

// echoes sends a MiB through a stream and reads it back.
func echoes(t *testing.T, s *Session) {
	t.Helper()
	st, sent := open(t, s), bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	go func() {
		_, _ = st.Write(sent)
		_ = st.CloseWrite()
	}()
	if got, err := io.ReadAll(st); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back (%v), want the %d that were sent", len(got), err, len(sent))
	}
}

// TestClient_EndOfWebSocketIsAnError checks that streams do not end in order when something cuts the
// WebSocket that carries them, and that the next session needs no native attempt.
func TestClient_EndOfWebSocketIsAnError(t *testing.T) {
	t.Parallel()
	b, h := newMiddleBox(t, newHandler(), acceptAnyProtocol)
	r := h.startClient(ClientConfig{Connections: 1})
	s := r.awaitSession(t)
	st := open(t, s)
	if _, err := st.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(st, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	b.cut()
	if n, err := st.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Read = %d, %v after the carrier was cut, want an error that is not EOF", n, err)
	}
	<-s.Done()
	wait.Until(t, "the next session", func() bool { next := r.Session(); return next != nil && next != s })
	echoes(t, r.awaitSession(t))
	if got, want := b.protocols(), []string{ALPN, "http/1.1", "http/1.1"}; !slices.Equal(got, want) {
		t.Errorf("connections had the protocols %q, want %q", got, want)
	}
}

// TestClient_KeepsNative checks that no WebSocket is tried where it would not help or must not.
func TestClient_KeepsNative(t *testing.T) {
	t.Parallel()
	untrusted := func(c *ClientConfig, _ *testServer) { c.TLS = &tls.Config{ServerName: "server.test"} }
	for name, tt := range map[string]struct {
		configure func(*ClientConfig, *testServer)
		native    bool // native is set when the server speaks the protocol.
	}{
		"an untrusted certificate": {untrusted, false},
		"a token that is refused": {func(_ *ClientConfig, h *testServer) {
			h.handler.hello = func(context.Context, Hello) (Welcome, error) {
				return Welcome{}, &Error{Code: CodeLimit, Msg: "no"}
			}
		}, true},
		"a server that is down": {func(c *ClientConfig, _ *testServer) {
			c.DialContext = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			}
		}, true},
		"a client certificate": {func(c *ClientConfig, _ *testServer) {
			cert, _ := authority()
			c.TLS = clientTrust()
			c.TLS.Certificates = []tls.Certificate{cert}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b *middleBox
			h := newTestServer(t, overTCP, newHandler())
			if !tt.native {
				b, h = newMiddleBox(t, newHandler(), acceptAnyProtocol)
			}
			var cfg ClientConfig
			tt.configure(&cfg, h)
			r := h.newClient(cfg)
			asWebSocket := make(chan struct{}, 100)
			r.webSocketTLS.GetClientCertificate = nil
			r.webSocketTLS.VerifyConnection = func(tls.ConnectionState) error { asWebSocket <- struct{}{}; return nil }
			r.start(t)
			for range 3 {
				_ = wait.Receive(t, "a failure", r.downs)
			}
			if len(asWebSocket) > 0 || b != nil && slices.Contains(b.protocols(), "http/1.1") {
				t.Error("a WebSocket was tried")
			}
		})
	}
}

func TestCarrierChoice_TriesNativeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c carrierChoice
		c.useWebSocket("native connections are cut")
		time.Sleep(webSocketTime - time.Second)
		if c.beginSession() == "" {
			t.Error("a session a second before the time tries a native connection")
		}
		time.Sleep(time.Second)
		if reason := c.beginSession(); reason != "" || c.webSocketReason() != "" {
			t.Errorf("a session after the time does not try a native connection: %q", reason)
		}
	})
}

// TestCarrierChoice_BearsMoreCutsWhereNativePassed checks that a server which cuts its clients'
// connections while it stops, or has too many, does not lead clients to WebSockets that had a native
// session with it, unless they are somewhere else by then.
func TestCarrierChoice_BearsMoreCutsWhereNativePassed(t *testing.T) {
	t.Parallel()
	cut := &cutError{reason: "native connections are cut", err: io.EOF}
	cutsToWebSocket := func(c *carrierChoice) (cuts int) {
		for cuts = 1; c.nativeBegan(cut) == ""; cuts++ {
			if cuts == 100 {
				t.Fatal("no WebSocket after 100 cuts")
			}
		}
		return cuts
	}
	var c carrierChoice
	if got := cutsToWebSocket(&c); got != 2 {
		t.Errorf("without a native session: a WebSocket after %d cuts, want 2", got)
	}
	_ = c.nativeBegan(nil)
	if got := cutsToWebSocket(&c); got != 8 {
		t.Errorf("after a native session: a WebSocket after %d cuts, want 8", got)
	}
	c.useWebSocket(cut.reason)
	c.forget()
	if reason := c.beginSession(); reason != "" {
		t.Errorf("on another way to the server, no native connection is tried: %q", reason)
	}
	if got := cutsToWebSocket(&c); got != 2 {
		t.Errorf("on another way: a WebSocket after %d cuts, want 2", got)
	}
	if reason := c.nativeBegan(&cutError{reason: "refused", clear: true, err: io.EOF}); reason == "" {
		t.Error("a clear sign does not lead to a WebSocket at once")
	}
}
