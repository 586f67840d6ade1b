// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/stack"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	// halfClosedIdle is how long a client that has closed its sending side may wait for the answer
	// without a byte of it arriving. Such a client may also be gone altogether; while its request is
	// open nothing tells the two apart but a failing write.
	halfClosedIdle = time.Minute
	// lingerTime and lingerBytes bound what is read from a client after the last answer, so that the
	// answer is not lost with unread input.
	lingerTime  = time.Second
	lingerBytes = 256 << 10
)

// clientConn is a client's connection in the hands of the HTTP server. It adds three things to
// Client. A client that has sent its request and closed its sending side gets its answer (net/http
// alone takes the half-close for a client that left). An aborted response ends in a reset, every
// other in a clean end. And finished tells Serve when the HTTP server has let go.
type clientConn struct {
	Client
	ctx      context.Context // of Serve
	endpoint *account.Endpoint
	origin   ClientInfo

	memory   connVerdicts
	finished chan struct{}
	finish   sync.Once
	failing  atomic.Bool // the last request did not get through
	ending   atomic.Bool // the HTTP server has all of the last answer: it writes the rest of it and closes the connection

	mu        sync.Mutex
	wake      chan struct{} // closed when what a held EOF waits for may have changed; nil = none is held
	eof       bool          // the client has closed its sending side
	deaf      bool          // nothing more is read
	active    bool          // a request is being answered
	hijacked  bool
	aborted   bool
	closed    bool
	lastWrite time.Time
	deadline  time.Time   // of reads
	past      bool        // Client's reads fail: the deadline is past
	alarm     *time.Timer // ends reads at the deadline; nil = there was none
	alarmAt   time.Time   // when alarm goes off, perhaps before the deadline; zero = never
}

func newClientConn(ctx context.Context, c Client, ep *account.Endpoint, o ClientInfo) *clientConn {
	cc := &clientConn{Client: c, ctx: ctx, endpoint: ep, origin: o, finished: make(chan struct{})}
	cc.origin.verdicts = &cc.memory
	return cc
}

// change alters the state under the lock and wakes a held EOF.
func (c *clientConn) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	if c.wake != nil {
		close(c.wake)
		c.wake = nil
	}
}

// Read holds back the EOF from the one-byte read by which net/http watches for a client that leaves
// while its request is being answered.
func (c *clientConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	eof, deaf := c.eof, c.deaf
	c.mu.Unlock()
	if deaf {
		return 0, errDeaf
	}
	if !eof {
		n, err := c.Client.Read(p)
		if n > 0 || err != io.EOF { //nolint:errorlint // a Reader returns io.EOF itself
			return n, err
		}
		c.change(func() { c.eof, c.lastWrite = true, time.Now() })
	}
	if len(p) != 1 {
		return 0, io.EOF
	}
	return 0, c.holdEOF()
}

// errDeaf is no io.EOF: the HTTP server must not take the client's body for complete.
var errDeaf = errors.New("the rest of the client's input is not wanted")

// readNoMore makes the request that is being answered the connection's last: what the client still
// sends is not taken for another.
func (c *clientConn) readNoMore() { c.change(func() { c.deaf = true }) }

// holdEOF returns io.EOF when the answer is complete or nothing of it has moved for halfClosedIdle,
// and the deadline's error at the deadline.
func (c *clientConn) holdEOF() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.active && !c.closed {
		now, until := time.Now(), c.lastWrite.Add(halfClosedIdle)
		if !now.Before(until) {
			return io.EOF
		}
		if !c.deadline.IsZero() {
			if !now.Before(c.deadline) {
				return os.ErrDeadlineExceeded
			}
			if c.deadline.Before(until) {
				until = c.deadline
			}
		}
		if c.wake == nil {
			c.wake = make(chan struct{})
		}
		wake, timer := c.wake, time.NewTimer(until.Sub(now))
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

// Write sends p. The last of the last answer goes out together with the connection's end.
func (c *clientConn) Write(p []byte) (int, error) {
	write := c.Client.Write
	if later, ok := c.Client.(interface{ WriteLater(p []byte) (int, error) }); ok && c.ending.Load() {
		write = later.WriteLater
	}
	n, err := write(p)
	c.mu.Lock()
	if c.eof {
		c.lastWrite = time.Now()
	}
	c.mu.Unlock()
	return n, err
}

// SetDeadline sets both deadlines.
func (c *clientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.Client.SetWriteDeadline(t))
}

// SetReadDeadline sets the deadline of reads, a held EOF included. The HTTP server sets several for
// each request, of which hardly one comes: Client hears of those that have come, and one alarm
// serves all others. It is not put off by a later deadline, only by going off.
func (c *clientConn) SetReadDeadline(t time.Time) (err error) {
	c.change(func() { c.deadline, err = t, c.minded(t) })
	return err
}

// minded sees to it that reads end at t. The caller holds mu.
func (c *clientConn) minded(t time.Time) error {
	left := time.Until(t)
	switch {
	case t.IsZero() || left > 0:
		if c.past {
			if err := c.Client.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
			c.past = false
		}
	default:
		c.past = true
		return c.Client.SetReadDeadline(t)
	}
	switch {
	case t.IsZero() || !c.alarmAt.IsZero() && !t.Before(c.alarmAt):
		return nil
	case c.alarm == nil:
		c.alarm = time.AfterFunc(left, c.expire)
	default:
		c.alarm.Reset(left)
	}
	c.alarmAt = t
	return nil
}

// expire is what the alarm does.
func (c *clientConn) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alarmAt = time.Time{}
	if !c.deadline.IsZero() && !c.past {
		_ = c.minded(c.deadline)
	}
}

// state follows the HTTP server's view of the connection.
func (c *clientConn) state(st http.ConnState) {
	c.change(func() {
		c.active = st == http.StateActive
		c.hijacked = c.hijacked || st == http.StateHijacked
	})
	if st == http.StateClosed {
		c.letGo()
	}
}

func (c *clientConn) letGo() { c.finish.Do(func() { close(c.finished) }) }

// abort cuts the connection: the client must not take what it got for an answer.
func (c *clientConn) abort() {
	c.change(func() { c.aborted = true })
	_ = c.Client.Reset(tunnel.Aborted)
}

// willAbort makes the coming Close an abort.
func (c *clientConn) willAbort() { c.change(func() { c.aborted = true }) }

// Close ends the connection in the way its state asks for. On an upgraded connection that is for
// Client to judge: clean when both directions have ended. Otherwise HTTP's framing has said that
// the answer is complete; Serve reads on for a moment and then closes.
func (c *clientConn) Close() error {
	var already, aborted, hijacked bool
	c.change(func() { already, aborted, hijacked, c.closed = c.closed, c.aborted, c.hijacked, true })
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
		c.letGo()
	}
	return nil
}

// linger ends what Close left half-open.
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
	if c.deadline = (time.Time{}); c.alarm != nil {
		c.alarm.Stop()
	}
}

// RemoteAddr returns the client's address as it was stated. The HTTP server asks for it first of
// all in the goroutine that it makes for the connection.
func (c *clientConn) RemoteAddr() net.Addr {
	stack.Grow16KiB()
	return statedAddr(c.origin.ClientAddr)
}

type statedAddr string

func (statedAddr) Network() string  { return "tcp" }
func (a statedAddr) String() string { return string(a) }
