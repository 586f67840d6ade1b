// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/frozen"
)

// TestSession_FrozenPeerIsUnresponsiveOnAllConnections checks that all connections of a session are
// probed when a stream of one of them gets no answer.
func TestSession_FrozenPeerIsUnresponsiveOnAllConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		var changes atomic.Int32
		h.handler.responsiveness = func() { changes.Add(1) }
		var process frozen.Process
		defer process.Continue()
		h.startClient(ClientConfig{Hello: agentHello, Connections: 3,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := h.dial(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return process.Conn(c), nil
			},
			OnStream: func(ctx context.Context, _ *Session, st *Stream) {
				if st.Accept() == nil {
					<-ctx.Done()
				}
			},
		}).awaitSession(t)
		s := <-h.handler.ups
		time.Sleep(time.Minute)
		st := open(t, s)
		if err := st.WaitOpened(t.Context()); err != nil {
			t.Fatal(err)
		}
		process.Stop()
		notified := make(chan struct{})
		st.OnUnresponsive(func() { close(notified) })
		began := time.Now()
		<-notified
		time.Sleep(time.Millisecond)
		if _, yes := s.Unresponsive(); !yes || time.Since(began) > 1600*time.Millisecond {
			t.Errorf("unresponsive: %v after %v", yes, time.Since(began))
		}
		if _, err := s.Open(t.Context(), fullHeader()); !errors.Is(err, ErrUnresponsive) {
			t.Errorf("a stream to a frozen peer: %v", err)
		}
		time.Sleep(10 * time.Second)
		process.Continue()
		time.Sleep(time.Millisecond)
		if _, yes := s.Unresponsive(); yes || changes.Load() != 6 {
			t.Errorf("unresponsive: %v, after %d changes", yes, changes.Load())
		}
		if err := open(t, s).WaitOpened(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestSession_OpensOnConnectionsThatRespond checks that new streams avoid an unresponsive
// connection.
func TestSession_OpensOnConnectionsThatRespond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newTestServer(t, overPipe, newHandler())
		var process frozen.Process
		defer process.Continue()
		var dials atomic.Int32
		h.startClient(ClientConfig{Hello: agentHello, Connections: 2,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := h.dial(ctx, network, addr)
				if dials.Add(1) == 1 && err == nil {
					c = process.Conn(c)
				}
				return c, err
			},
			OnStream: func(_ context.Context, _ *Session, st *Stream) { echo(st) },
		}).awaitSession(t)
		s := <-h.handler.ups
		time.Sleep(time.Minute)
		process.Stop()
		s.mu.Lock()
		dead, lives := s.links.active[0], s.links.active[1]
		s.mu.Unlock()
		dead.mux.Probe()
		time.Sleep(2 * time.Second)
		if _, yes := s.Unresponsive(); yes {
			t.Error("the session counts as unresponsive while one connection responds")
		}
		for range 4 {
			if st := open(t, s); st.link != lives {
				t.Error("a stream on the dead connection")
			}
		}
	})
}
