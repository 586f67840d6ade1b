// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"cmp"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxHeaderBytes is the limit of a request's head, for the http.Server behind a Conn, too.
	MaxHeaderBytes = 64 << 10
	// MaxFrameSize is the largest HTTP/2 frame, in bytes, that such a server allows: what every
	// client may send without asking (RFC 9113, section 4.2). The server keeps a buffer of that
	// size for a connection.
	MaxFrameSize = 16 << 10
	// HeadTimeout is how long a request's head may take, from its first byte to its last.
	HeadTimeout = 10 * time.Second

	// minHeadBuffer is the first size of the buffer of a head that does not come as a whole.
	minHeadBuffer = 1 << 10

	lingerTime  = time.Second
	lingerBytes = 2 << 20
)

var (
	errFraming         = errors.New("the framing of the request's body is broken")
	errUpgradeDeclined = errors.New("too much came behind a request for an upgrade that was declined")
)

// Protocol is what a client may speak on a connection.
type Protocol int

// Protocols of a connection.
const (
	HTTP1        Protocol = iota
	HTTP2                 // as agreed by ALPN
	HTTP1OrHTTP2          // HTTP/2 with prior knowledge (RFC 9113, section 3.3)
)

// Options are the settings of a Conn.
type Options struct {
	Protocol     Protocol
	StartTimeout time.Duration // limit until the first byte
	HeadTimeout  time.Duration // limit for a head or an HTTP/2 header block, from its first byte to its last
	// Linger makes Close read on for a moment after a refusal: closing a connection with unread
	// input resets it, and the client might not see the answer. Not needed where the connection
	// below does that itself.
	Linger bool
}

// Conn is a connection that passes only heads and bodies whose framing every program reads alike
// (see checkHead), so that programs before and behind the edge agree with it on where each request
// ends. It buffers no more than an incomplete head. Read is for one goroutine at a time, as with
// net/http.
type Conn struct {
	net.Conn
	opt Options

	unchecked   []byte // bytes that were read and not checked yet: the beginning of a head
	checked     []byte // bytes that were checked and not returned yet
	state       readState
	bodyLeft    int64 // unread bytes of a body with a length
	chunks      chunkScanner
	frames      frameScanner
	head        headState
	skippedLine bool  // skippedLine is set after an empty line before the head.
	err         error // error of every further read
	passThrough bool  // passThrough ends the checks.
	goesAway    bool  // goesAway inserts a GOAWAY behind the current frame.

	hijacked    atomic.Bool
	speaksHTTP2 atomic.Bool
	interrupted atomic.Bool // interrupted is set, with mu held, by GoAway, which ends a read that is under way.
	// upgradePending is set until an upgrade is answered: what follows is buffered, as it may not
	// be HTTP.
	upgradePending atomic.Bool
	// refused is set while the last answer may still be in transit and the client sends.
	refused atomic.Bool

	mu           sync.Mutex
	half         halfClose
	deadline     time.Time // deadline of reads that the http.Server has set
	headDeadline time.Time // limit for the incomplete head; zero = there is none
}

// readState is what the connection is expected to carry next.
type readState int

const (
	stateStart readState = iota // nothing was read: the preface of HTTP/2 or a head follows
	stateHead
	stateLength
	stateChunks
	stateFrames
)

// headState is the progress of a head.
type headState int

const (
	headAwaited    headState = iota // the connection is new
	headIncomplete                  // HeadTimeout is running
	headComplete
)

// New returns a Conn that checks what is read from below.
func New(c net.Conn, o Options) *Conn {
	conn := &Conn{Conn: c, opt: o}
	if o.Protocol == HTTP1 {
		conn.state = stateHead
	}
	conn.setHeadDeadline(time.Now().Add(o.StartTimeout))
	return conn
}

// Read returns complete heads and bytes of bodies. It holds back EOF from the one-byte read by which
// net/http detects that a client left while its request is being answered.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.readChecked(p)
	if n > 0 || err != io.EOF || len(p) != 1 { //nolint:errorlint // a Reader returns io.EOF itself
		return n, err
	}
	return 0, c.holdEOF()
}

// readChecked returns complete heads and bytes of bodies.
func (c *Conn) readChecked(p []byte) (int, error) {
	for len(p) > 0 {
		switch {
		case len(c.checked) > 0:
			n := copy(p, c.checked)
			if c.checked = c.checked[n:]; len(c.checked) == 0 {
				c.checked = nil
			}
			return n, nil
		case c.passThrough || c.hijacked.Load():
			if len(c.unchecked) > 0 {
				c.checked, c.unchecked = c.unchecked, nil
				continue
			}
			return c.Conn.Read(p)
		case c.err != nil:
			return 0, c.err
		}
		if n, err := c.readNext(p); n > 0 || err != nil {
			return n, err
		}
	}
	return 0, nil
}

// readNext returns 0 and nil when Read can go on.
func (c *Conn) readNext(p []byte) (int, error) {
	if len(c.unchecked) == 0 && (c.state == stateStart || c.state == stateHead) {
		return c.readDirect(p)
	}
	switch c.state {
	case stateStart:
		return 0, c.readStart()
	case stateLength:
		return c.readLength(p)
	case stateChunks:
		return c.readChunks(p)
	case stateFrames:
		return c.readFrames(p)
	default:
		return 0, c.readHead()
	}
}

// readDirect reads the beginning of a head into p. Usually it comes as a whole and is not copied;
// else it goes to unchecked, and readDirect returns 0 and nil.
func (c *Conn) readDirect(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 {
		return 0, err
	}
	if c.state == stateStart && c.opt.Protocol != HTTP2 && !maybePreface(p[:n]) {
		c.state = stateHead
	}
	if c.state == stateHead {
		end, bad := headEnd(p[:n])
		if !bad && end == n && !c.upgradePending.Load() && c.acceptHead(p[:n]) {
			c.stopHeadTimer()
			return n, nil
		}
	}
	c.unchecked = append(make([]byte, 0, max(2*n, minHeadBuffer)), p[:n]...)
	return 0, nil
}

// readBuffered reads from unchecked, or else from the connection.
func (c *Conn) readBuffered(p []byte) (int, error) {
	if len(c.unchecked) > 0 {
		n := copy(p, c.unchecked)
		if c.unchecked = c.unchecked[n:]; len(c.unchecked) == 0 {
			c.unchecked = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

func (c *Conn) readLength(p []byte) (int, error) {
	n, err := c.readBuffered(p[:min(int64(len(p)), c.bodyLeft)])
	if c.bodyLeft -= int64(n); c.bodyLeft == 0 {
		c.state = stateHead
	}
	return n, err
}

func (c *Conn) readHead() error {
	end, bad := headEnd(c.unchecked)
	switch {
	case c.upgradePending.Load() && len(c.unchecked) < MaxHeaderBytes:
		return c.readMore()
	case c.upgradePending.Load():
		// net/http takes one byte and no more before the upgrade is answered. When it is declined,
		// there is no head to go on with, and the connection ends.
		c.checked, c.unchecked, c.err = c.unchecked[:1:1], c.unchecked[1:], errUpgradeDeclined
		return nil
	case end == len("\r\n") && !c.skippedLine: // RFC 9112, section 2.2
		c.unchecked, c.skippedLine = c.unchecked[end:], true
		return nil
	case cmp.Or(end, len(c.unchecked)) > MaxHeaderBytes && !bad:
		c.refuseHead(tooLargeHead)
		return nil
	case bad || end > 0 && !c.acceptHead(c.unchecked[:end]):
		c.refuseHead(malformedHead)
		return nil
	case end > 0:
		c.checked, c.unchecked = c.unchecked[:end:end], c.unchecked[end:]
		c.stopHeadTimer()
		return nil
	}
	return c.readMore()
}

// refuseHead makes the http.Server's handler answer as CheckRequest says, and end the connection.
func (c *Conn) refuseHead(as string) {
	c.checked, c.unchecked, c.err = []byte(as), nil, io.EOF
	c.refused.Store(true)
	c.state = stateHead
	c.stopHeadTimer()
}

// readMore reads more of an incomplete head, which has HeadTimeout in all, even where the
// http.Server allows more.
func (c *Conn) readMore() error {
	if len(c.unchecked) > 0 && !c.upgradePending.Load() {
		c.startHeadTimer()
	}
	if cap(c.unchecked) == len(c.unchecked) {
		c.unchecked = append(make([]byte, 0, max(2*cap(c.unchecked), minHeadBuffer)), c.unchecked...)
	}
	n, err := c.Conn.Read(c.unchecked[len(c.unchecked):cap(c.unchecked)])
	c.unchecked = c.unchecked[:len(c.unchecked)+n]
	if n > 0 {
		return nil
	}
	if err == io.EOF { //nolint:errorlint // a Reader returns io.EOF itself
		c.passThrough = true // net/http answers what there is
		return nil
	}
	return err
}

// acceptHead checks a complete head and prepares for the body that it announces.
func (c *Conn) acceptHead(head []byte) bool {
	length, chunked, ok := checkHead(head)
	c.upgradePending.Store(ok && hasUpgrade(head))
	c.skippedLine = c.skippedLine && !ok
	switch {
	case !ok:
		return false
	case chunked:
		c.state, c.chunks = stateChunks, chunkScanner{}
	case length > 0:
		c.state, c.bodyLeft = stateLength, length
	}
	return true
}

// Write sends p.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	if c.half.readEOF {
		c.half.lastWrite = time.Now()
	}
	c.mu.Unlock()
	return n, err
}

// startHeadTimer starts the deadline of a head.
func (c *Conn) startHeadTimer() {
	if c.head != headIncomplete {
		c.head = headIncomplete
		c.setHeadDeadline(time.Now().Add(c.opt.HeadTimeout))
	}
}

// stopHeadTimer ends the deadline of a head.
func (c *Conn) stopHeadTimer() {
	if c.head != headComplete {
		c.head = headComplete
		c.setHeadDeadline(time.Time{})
	}
}

func (c *Conn) setHeadDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.headDeadline = t
	_ = c.Conn.SetReadDeadline(c.readDeadlineLocked())
}

// readDeadlineLocked returns the earlier of the deadlines of reads; mu must be held.
func (c *Conn) readDeadlineLocked() time.Time {
	if c.headDeadline.IsZero() || !c.deadline.IsZero() && c.deadline.Before(c.headDeadline) {
		return c.deadline
	}
	return c.headDeadline
}

// SetReadDeadline sets the deadline of reads; an incomplete head may have an earlier one.
func (c *Conn) SetReadDeadline(t time.Time) (err error) {
	c.update(func() {
		c.deadline = t
		err = c.Conn.SetReadDeadline(c.readDeadlineLocked())
	})
	return err
}

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Close closes the connection, after a refusal as described at Options.Linger.
func (c *Conn) Close() error {
	c.update(func() { c.half.closed = true })
	if c.refused.Swap(false) && c.opt.Linger {
		_ = c.CloseWrite()
		_ = c.Conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
	}
	return c.Conn.Close()
}

// CloseWrite ends the sending side, so that the last answer is not lost with unread input.
func (c *Conn) CloseWrite() error {
	if c, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
