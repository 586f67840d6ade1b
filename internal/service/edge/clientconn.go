// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/stack"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	// lingerTime and lingerBytes bound what is read from a client after the last answer, so that
	// the answer is not lost with unread input.
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// clientConn is a client's connection as the HTTP server uses it. It adds two things to Client: an
// aborted answer ends in a reset, every other in a clean end; and serverDone tells Serve when the
// HTTP server has let go.
type clientConn struct {
	Client
	ctx      context.Context // the context of Serve
	endpoint *account.Endpoint
	info     ClientInfo

	verdicts   connVerdicts
	upstreams  PrivateUpstreams
	serverDone chan struct{}
	doneOnce   sync.Once
	lastFailed atomic.Bool // the last request did not get through
	// all of the last answer was handed to the HTTP server, which writes the rest of it and closes
	// the connection
	lastWrites atomic.Bool

	mu             sync.Mutex
	readStopped    bool // nothing more is read
	hijacked       bool
	aborted        bool
	closed         bool
	deadline       time.Time // for reads
	deadlinePassed bool      // Client has a deadline in the past
	// makes reads fail at the deadline; nil = none was set yet
	readTimer *time.Timer
	// when readTimer fires, perhaps before the deadline; zero = it does not
	readTimerAt time.Time
}

func newClientConn(ctx context.Context, c Client, ep *account.Endpoint, info ClientInfo) *clientConn {
	cc := &clientConn{Client: c, ctx: ctx, endpoint: ep, info: info, serverDone: make(chan struct{})}
	cc.info.verdicts, cc.info.Upstreams = &cc.verdicts, &cc.upstreams
	return cc
}

// update changes the state under the lock.
func (c *clientConn) update(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Read reads until stopReading.
func (c *clientConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	stopped := c.readStopped
	c.mu.Unlock()
	if stopped {
		return 0, errReadStopped
	}
	return c.Client.Read(p)
}

// errReadStopped is not io.EOF: the HTTP server must not take the client's body for complete.
var errReadStopped = errors.New("the rest of the client's input is not wanted")

// stopReading makes the request that is being answered the connection's last: what the client still
// sends is not read as another request.
func (c *clientConn) stopReading() { c.update(func() { c.readStopped = true }) }

// Write sends p. The end of the last answer is sent together with the end of the connection.
func (c *clientConn) Write(p []byte) (int, error) {
	write := c.Client.Write
	if later, ok := c.Client.(interface{ WriteLater(p []byte) (int, error) }); ok && c.lastWrites.Load() {
		write = later.WriteLater
	}
	return write(p)
}

// SetDeadline sets both deadlines.
func (c *clientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.Client.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of reads. The HTTP server sets several for each request, hardly
// one of which passes, so Client gets only those that have passed, and one timer serves all. It is
// not rescheduled for a later deadline until it fires.
func (c *clientConn) SetReadDeadline(t time.Time) (err error) {
	c.update(func() { c.deadline, err = t, c.setReadDeadlineLocked(t) })
	return err
}

// setReadDeadlineLocked makes reads fail at t; mu must be held.
func (c *clientConn) setReadDeadlineLocked(t time.Time) error {
	left := time.Until(t)
	switch {
	case t.IsZero() || left > 0:
		if c.deadlinePassed {
			if err := c.Client.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
			c.deadlinePassed = false
		}
	default:
		c.deadlinePassed = true
		return c.Client.SetReadDeadline(t)
	}
	switch {
	case t.IsZero() || !c.readTimerAt.IsZero() && !t.Before(c.readTimerAt):
		return nil
	case c.readTimer == nil:
		c.readTimer = time.AfterFunc(left, c.readTimerFired)
	default:
		c.readTimer.Reset(left)
	}
	c.readTimerAt = t
	return nil
}

// readTimerFired applies the deadline when readTimer fires.
func (c *clientConn) readTimerFired() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readTimerAt = time.Time{}
	if !c.deadline.IsZero() && !c.deadlinePassed {
		_ = c.setReadDeadlineLocked(c.deadline)
	}
}

// setState follows the HTTP server's view of the connection.
func (c *clientConn) setState(st http.ConnState) {
	if st == http.StateHijacked {
		c.update(func() { c.hijacked = true })
	}
	if st == http.StateClosed {
		c.signalDone()
	}
}

// signalDone closes serverDone.
func (c *clientConn) signalDone() { c.doneOnce.Do(func() { close(c.serverDone) }) }

// abort resets the connection, so that the client does not take what it got for a whole answer.
func (c *clientConn) abort() {
	c.update(func() { c.aborted = true })
	_ = c.Client.Reset(tunnel.Aborted)
}

// abortOnClose makes Close an abort.
func (c *clientConn) abortOnClose() { c.update(func() { c.aborted = true }) }

// Close ends the connection as its state requires. An upgraded connection is closed by Client:
// clean when both directions have ended. Otherwise the answer is complete by HTTP's framing; Serve
// lingers and then closes.
func (c *clientConn) Close() error {
	var already, aborted, hijacked bool
	c.update(func() { already, aborted, hijacked, c.closed = c.closed, c.aborted, c.hijacked, true })
	switch {
	case already:
		return nil
	case aborted:
		_ = c.Client.Reset(tunnel.Aborted)
	case hijacked:
		_ = c.Client.Close()
	default:
		_ = c.CloseWrite()
		_ = c.SetReadDeadline(time.Unix(1, 0)) // ends a read that is under way
	}
	if hijacked {
		c.signalDone()
	}
	return nil
}

// linger closes what Close left half-open, after a bounded read.
func (c *clientConn) linger() {
	c.mu.Lock()
	cut := c.aborted || c.hijacked
	c.mu.Unlock()
	if !cut {
		_ = c.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Client, lingerBytes)
	}
	_ = c.Client.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline = (time.Time{}); c.readTimer != nil {
		c.readTimer.Stop()
	}
}

// RemoteAddr returns the client's address as stated. The HTTP server calls it first in the
// goroutine of the connection, so the goroutine gets its large stack here.
func (c *clientConn) RemoteAddr() net.Addr {
	stack.Grow16KiB()
	return statedAddr(c.info.ClientAddr)
}

type statedAddr string

func (statedAddr) Network() string  { return "tcp" }
func (a statedAddr) String() string { return string(a) }
