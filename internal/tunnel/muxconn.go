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

var errHelloBudget = errors.New("the peer sent too much before it was welcome")

// muxConn is the connection below the multiplexer. It detects bulk traffic, and limits the bytes
// and reads of a peer whose hello was not accepted, so that it cannot fill the receive windows of
// thousands of streams.
type muxConn struct {
	*BatchConn
	trusted atomic.Bool
	busy    busyUntil
	session atomic.Pointer[Session] // notified when the connection becomes busy
	losses  lossDetector            // guarded by the session's mutex

	inBulk, outBulk bulkDetector // for the reading and the writing goroutine
	budget          int          // bytes left until trusted; used by the reading goroutine only
	reads           int
}

func newMuxConn(c *tls.Conn) *muxConn { return &muxConn{BatchConn: Batch(c), budget: helloBudget} }

func (c *muxConn) Read(p []byte) (int, error) {
	if c.trusted.Load() {
		n, err := c.BatchConn.Read(p)
		if c.inBulk.add(n) {
			c.markBusy()
		}
		return n, err
	}
	if c.budget <= 0 || c.reads >= helloMaxReads {
		return 0, errHelloBudget
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
	bulk := c.outBulk.add(len(head) + len(payload))
	if bulk || len(payload) > 0 && time.Since(began) >= slowWrite {
		c.markBusy()
	}
	return err
}

func (c *muxConn) markBusy() {
	now := time.Now()
	if s := c.session.Load(); c.busy.set(now) && s != nil {
		s.updateDesiredConns(now)
	}
}
