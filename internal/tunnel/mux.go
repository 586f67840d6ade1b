// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
	"time"
)

const (
	helloBudget   = helloLimit + 4<<10
	helloMaxReads = 128
)

var errTooEager = errors.New("the peer sent too much before it was welcome")

// muxConn is the connection under the multiplexer. It sees how busy the connection is, and it holds
// a peer that has not said who it is to a budget of bytes and reads, so that it cannot fill the
// receive windows of thousands of streams.
type muxConn struct {
	*BatchConn
	trusted atomic.Bool
	busy    busyMark
	session atomic.Pointer[Session] // that learns when the connection becomes busy

	in, out gauge // of who reads, of who writes
	budget  int   // bytes left until trusted; only who reads uses budget and reads
	reads   int
}

func newMuxConn(c *tls.Conn) *muxConn { return &muxConn{BatchConn: Batch(c), budget: helloBudget} }

func (c *muxConn) Read(p []byte) (int, error) {
	if c.trusted.Load() {
		n, err := c.BatchConn.Read(p)
		if c.in.add(n) {
			c.becameBusy()
		}
		return n, err
	}
	if c.budget <= 0 || c.reads >= helloMaxReads {
		return 0, errTooEager
	}
	n, err := c.BatchConn.Read(p[:min(len(p), c.budget)])
	c.budget -= n
	c.reads++
	return n, err
}

// WriteFrames implements mux.Conn.
func (c *muxConn) WriteFrames(head, payload []byte) error {
	began := time.Now()
	err := c.BatchConn.WriteFrames(head, payload)
	bulk := c.out.add(len(head) + len(payload))
	if bulk || len(payload) > 0 && time.Since(began) >= slowWrite {
		c.becameBusy()
	}
	return err
}

func (c *muxConn) becameBusy() {
	now := time.Now()
	if s := c.session.Load(); c.busy.set(now) && s != nil {
		s.becameBusy(now)
	}
}
