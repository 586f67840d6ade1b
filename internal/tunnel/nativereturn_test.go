// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/pipelistener"
)

// TestClient_ReturnsToNative checks that a session over WebSockets, chosen because a server with too many
// clients cut native connections, moves to native ones when these pass, and that no stream fails.
func TestClient_ReturnsToNative(t *testing.T) {
	t.Parallel()
	for name, replicas := range map[string]int{"a server": 0, "three replicas": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var busy atomic.Bool
				busy.Store(true)
				r, connections := startBusy(t, replicas, &busy), max(defaultConnections, replicas)
				s := r.awaitSession(t)
				over, failed := open(t, s), len(r.downs)
				time.Sleep(4 * nativeRetry)
				if n := webSockets(s); s.Carrier().Name != CarrierWebSocket || n != connections {
					t.Errorf("Carrier() = %+v, %d WebSockets while the server is busy", s.Carrier(), n)
				}
				busy.Store(false)
				for began := time.Now(); time.Since(began) < 8*nativeRetry; time.Sleep(time.Second) {
					echoBytes(t, s, 1<<10)
				}
				if n := webSockets(s); s.Carrier().Name != ALPN || n != 1 {
					t.Errorf("Carrier() = %+v, %d WebSockets; want the one that has a stream", s.Carrier(), n)
				}
				finish(t, over)
				synctest.Wait()
				s.mu.Lock()
				live, legs := s.links.live, len(s.links.byReplica())
				s.mu.Unlock()
				if webSockets(s) > 0 || live != connections || legs != max(1, replicas) {
					t.Errorf("%d WebSockets among %d connections with %d replicas", webSockets(s), live, legs)
				}
				if s != r.Session() || len(r.downs) > failed {
					t.Error("the session was lost")
				}
			})
		})
	}
}

// startBusy starts a client of a server, or of replicas, that are busy.
func startBusy(t *testing.T, replicas int, busy *atomic.Bool) *testClient {
	if replicas == 0 {
		h := newTestServer(t, overPipe, newHandler())
		serveBoth(t, h, busy)
		return h.startClient(ClientConfig{})
	}
	all := newFakeReplicas(t, replicas, roundRobin())
	for _, p := range all.live {
		serveBoth(t, p.testServer, busy)
	}
	return all.startClient(ClientConfig{})
}

// webSockets returns how many of the session's connections are WebSockets.
func webSockets(s *Session) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links.all() {
		if l.conn.ws != nil {
			n++
		}
	}
	return n
}

// serveBoth makes h serve native connections, which are cut while it is busy, and WebSockets.
func serveBoth(t *testing.T, h *testServer, busy *atomic.Bool) {
	ctx, stop := context.WithCancel(context.Background())
	overWeb := pipelistener.New()
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = h.server.ServeWebSocket(ctx, w, r)
	})}
	h.serving.Go(func() { _ = web.Serve(overWeb) })
	t.Cleanup(func() {
		stop()
		_ = web.Close()
	})
	config := h.tls.Clone()
	config.NextProtos = []string{ALPN, "http/1.1"}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if busy.Load() && slices.Contains(hello.SupportedProtos, ALPN) {
			_ = hello.Conn.Close()
		}
		return nil, nil
	}
	h.dial = func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		h.serving.Go(func() {
			c := tls.Server(TuneConn(far), config)
			if err := c.HandshakeContext(ctx); err != nil {
				_ = far.Close()
				return
			}
			if c.ConnectionState().NegotiatedProtocol == ALPN {
				_ = h.server.ServeConn(ctx, c)
			} else {
				overWeb.Offer(c)
			}
		})
		return near, nil
	}
}
