// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// idleCut is a connection through a balancer that cuts it when no byte has passed in one of the
// directions for 60 s.
type idleCut struct {
	net.Conn
	reading, writing *time.Timer
}

const balancerIdleTime = time.Minute

func (c *idleCut) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.reading.Reset(balancerIdleTime)
	return n, err
}

func (c *idleCut) Write(p []byte) (int, error) {
	c.writing.Reset(balancerIdleTime)
	return c.Conn.Write(p)
}

func (c *idleCut) Close() error {
	c.reading.Stop()
	c.writing.Stop()
	return c.Conn.Close()
}

// TestSession_KeepsIdleConnectionsOfBalancers checks that every connection of a session without a
// stream, not only the first, carries bytes often enough for balancers, in both directions.
func TestSession_KeepsIdleConnectionsOfBalancers(t *testing.T) {
	t.Parallel()
	for name, role := range map[string]Role{"agent": RoleAgent, "forwarder": RoleForwarder} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newTestServer(t, overPipe, newHandler())
				var mu sync.Mutex
				dialed, cuts := 0, 0
				c := h.newClient(ClientConfig{Connections: 4,
					Hello: func() Hello { return Hello{Role: role, Token: "flt_x"} },
					DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
						conn, err := h.dial(ctx, network, addr)
						if err != nil {
							return nil, err
						}
						mu.Lock()
						defer mu.Unlock()
						dialed++
						cut := func() {
							mu.Lock()
							defer mu.Unlock()
							cuts++
							_ = conn.Close()
						}
						return &idleCut{Conn: conn, reading: time.AfterFunc(balancerIdleTime, cut),
							writing: time.AfterFunc(balancerIdleTime, cut)}, nil
					}})
				c.start(t)
				s := c.awaitSession(t)
				time.Sleep(time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if dialed != 4 || cuts != 0 || c.Session() != s {
					t.Errorf("%d connections were dialed and %d cut within an hour, want 4 and none", dialed, cuts)
				}
				c.stop()
			})
		})
	}
}
