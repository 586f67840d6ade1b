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
	for name, replicaID := range map[string]string{"a server": "", "a replica": "rp_1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				handler := newHandler()
				welcome := func(context.Context, Hello) (Welcome, error) {
					return Welcome{SessionID: "ts_1", AccountID: "acc_1", ReplicaID: replicaID, Replicas: 1}, nil
				}
				handler.hello, handler.join = welcome, welcome
				h := newTestServer(t, overPipe, handler)
				var busy atomic.Bool
				busy.Store(true)
				serveBoth(t, h, &busy)
				r := h.startClient(ClientConfig{Connections: 2})
				s := r.awaitSession(t)
				over, failed := open(t, s), len(r.downs)
				if s.Carrier().Name != CarrierWebSocket || over.link.conn.ws == nil {
					t.Fatalf("Carrier() = %+v, want WebSockets", s.Carrier())
				}
				time.Sleep(4 * nativeRetry)
				if s.Carrier().Name != CarrierWebSocket || len(s.Legs()) != 1 || s.Legs()[0].Connections != 2 {
					t.Errorf("Carrier() = %+v, %+v while the server is busy", s.Carrier(), s.Legs())
				}
				busy.Store(false)
				for began := time.Now(); time.Since(began) < 8*nativeRetry; time.Sleep(time.Second) {
					echoBytes(t, s, 1<<10)
				}
				if st := open(t, s); s.Carrier().Name != ALPN || st.link.conn.ws != nil {
					t.Errorf("a new stream over %+v, WebSocket: %v; want a native one", s.Carrier(), st.link.conn.ws != nil)
				}
				finish(t, over)
				synctest.Wait()
				if legs := s.Legs(); len(legs) != 1 || legs[0].Connections != 2 || s != r.Session() || len(r.downs) > failed {
					t.Errorf("legs %+v, session lost: %v; want two connections of one session", legs, s != r.Session())
				}
				for _, l := range s.links.all() {
					if l.conn.ws != nil {
						t.Error("a WebSocket is left without a stream")
					}
				}
			})
		})
	}
}

// serveBoth makes h serve native connections, which are cut while it is busy, and WebSockets.
func serveBoth(t *testing.T, h *testServer, busy *atomic.Bool) {
	ctx, stop := context.WithCancel(context.Background())
	webSockets := pipelistener.New()
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = h.server.ServeWebSocket(ctx, w, r)
	})}
	h.serving.Go(func() { _ = web.Serve(webSockets) })
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
				webSockets.Offer(c)
			}
		})
		return near, nil
	}
}
