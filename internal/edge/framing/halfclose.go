// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"io"
	"net/http"
	"os"
	"time"
)

// halfClosedIdle is how long a client that has closed its sending side may wait for the answer
// without receiving a byte. Such a client may also be gone; while its request is open only a failing
// write tells the two apart.
const halfClosedIdle = time.Minute

// halfClose is the state of a client that closes its sending side after its request. It gets its
// answer: net/http alone takes that for a client that left. Conn.mu guards it.
type halfClose struct {
	wake          chan struct{} // wake is closed to make a held EOF check its state again; nil = none is held.
	readEOF       bool          // readEOF is set once the client has closed its sending side.
	requestActive bool          // requestActive is set while a request is being answered.
	closed        bool
	lastWrite     time.Time
}

// update changes the state under the lock and wakes a held EOF.
func (c *Conn) update(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	if c.half.wake != nil {
		close(c.half.wake)
		c.half.wake = nil
	}
}

// holdEOF returns io.EOF when the answer is complete or no byte of it was written for
// halfClosedIdle, and os.ErrDeadlineExceeded at the deadline.
func (c *Conn) holdEOF() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &c.half
	if !h.readEOF {
		h.readEOF, h.lastWrite = true, time.Now()
	}
	for h.requestActive && !h.closed {
		now, until := time.Now(), h.lastWrite.Add(halfClosedIdle)
		if !now.Before(until) {
			return io.EOF
		}
		if deadline := c.readDeadlineLocked(); !deadline.IsZero() {
			if !now.Before(deadline) {
				return os.ErrDeadlineExceeded
			}
			if deadline.Before(until) {
				until = deadline
			}
		}
		if h.wake == nil {
			h.wake = make(chan struct{})
		}
		wake, timer := h.wake, time.NewTimer(until.Sub(now))
		c.mu.Unlock()
		select {
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
		c.mu.Lock()
	}
	return io.EOF
}

// SetState follows the http.Server's view of the connection: its ConnState hook has to call it.
func (c *Conn) SetState(st http.ConnState) {
	switch st {
	case http.StateHijacked:
		c.hijacked.Store(true)
	case http.StateIdle: // the upgrade was declined: what follows is a request
		c.upgradePending.Store(false)
	}
	c.update(func() { c.half.requestActive = st == http.StateActive })
}
