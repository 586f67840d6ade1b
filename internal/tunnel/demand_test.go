// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

func TestBulkDetector_Add(t *testing.T) {
	t.Parallel()
	const part = 16 << 10
	for name, c := range map[string]struct {
		bytes int
		every time.Duration
		count int
		first int // part with which it counts as bulk; 0: none
	}{
		"fast":                   {part, 0, 1000, 2 * bulkMark / part},
		"slow, and for long":     {part, 100 * time.Millisecond, 1000, 16},
		"slow, and not for long": {part, 50 * time.Millisecond, 20, 0},
		"very slow":              {part, 300 * time.Millisecond, 1000, 0},
		"small talk":             {1 << 10, 5 * time.Millisecond, 10_000, 0},
		"pieces now and then":    {4 * part, 1100 * time.Millisecond, 100, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Hour) // the connection was idle
				var g bulkDetector
				first := 0
				for i := range c.count {
					time.Sleep(c.every)
					if g.add(c.bytes) {
						first = i + 1
						break
					}
				}
				if first != c.first {
					t.Errorf("bulk with part %d, want %d", first, c.first)
				}
			})
		})
	}
}

// TestSession_NewStreamsAvoidFullSlowConnection checks that a slow, full connection counts as busy
// on the reading side as well: new streams avoid it on both sides.
func TestSession_NewStreamsAvoidFullSlowConnection(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{RoleForwarder, RoleAgent} {
		t.Run(string(role), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				trickle := func(st *Stream) {
					_ = st.Accept()
					for range 100 { // 512 KiB/s
						_, _ = st.Write(make([]byte, 64<<10))
						time.Sleep(125 * time.Millisecond)
					}
					_ = st.CloseWrite()
				}
				handler := newHandler()
				handler.stream = func(_ context.Context, _ *Session, st *Stream) { trickle(st) }
				h := newTestServer(t, overPipe, handler)
				r := h.startClient(ClientConfig{
					Hello:    func() Hello { return Hello{Role: role, Token: "flt_x"} },
					OnStream: func(_ context.Context, _ *Session, st *Stream) { trickle(st) },
				})
				s := sessionPair{client: r.awaitSession(t), server: <-h.handler.ups}
				s.opener = s.client
				if role == RoleAgent {
					s.opener = s.server
				}
				s.awaitConnections(t, 2)
				st := open(t, s.opener)
				go func() { _, _ = io.Copy(io.Discard, struct{ io.Reader }{st}) }()
				time.Sleep(3 * time.Second)
				s.awaitConnections(t, desiredFor(1, false))
				var others []*Stream
				for range 12 {
					other := open(t, s.opener)
					if others = append(others, other); other.link == st.link {
						t.Error("a new stream has the connection that is busy")
					}
				}
				_ = st.Close() // and then it is not any more
				synctest.Wait()
				if next := open(t, s.opener); next.link != st.link {
					t.Error("a new stream avoids the connection whose streams have ended")
				}
				for _, other := range others {
					_ = other.Close()
				}
			})
		})
	}
}
