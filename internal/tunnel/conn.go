// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
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
	ws      *webSocket // ws is nil on a native connection.
	trusted atomic.Bool
	busy    busyUntil
	session atomic.Pointer[Session] // session is notified when the connection becomes busy.
	losses  lossDetector            // losses is guarded by the session's mutex.

	inBulk, outBulk bulkDetector // the detectors of the reading and of the writing goroutine
	budget          int          // bytes that may still be read before trusted; for the reading goroutine only
	reads           int
}

// newMuxConn returns a connection that carries the multiplexer natively or, unless ws is nil, in the
// WebSocket's messages.
func newMuxConn(c *BatchConn, ws *webSocket) *muxConn {
	return &muxConn{BatchConn: c, ws: ws, budget: helloBudget}
}

// read reads what the peer's multiplexer has sent.
func (c *muxConn) read(p []byte) (int, error) {
	if c.ws != nil {
		return c.ws.Read(p)
	}
	return c.BatchConn.Read(p)
}

func (c *muxConn) Read(p []byte) (int, error) {
	if c.trusted.Load() {
		n, err := c.read(p)
		if c.inBulk.add(n) {
			c.markBusy()
		}
		return n, err
	}
	if c.budget <= 0 || c.reads >= helloMaxReads {
		return 0, errHelloBudget
	}
	n, err := c.read(p[:min(len(p), c.budget)])
	c.budget -= n
	c.reads++
	return n, err
}

// WriteFrames implements mux.Conn.
func (c *muxConn) WriteFrames(head, payload []byte) error {
	began := time.Now()
	err := c.BatchConn.writeFrames(c.ws, head, payload)
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

// BatchConn is a TLS connection that writes the records of one large Write, or of one WriteFrames,
// with one system call, if TuneConn made the connection below.
type BatchConn struct {
	*tls.Conn
	below *tunedConn
}

// Batch wraps c.
func Batch(c *tls.Conn) *BatchConn {
	below, _ := c.NetConn().(*tunedConn)
	return &BatchConn{Conn: c, below: below}
}

// Write writes p.
func (c *BatchConn) Write(p []byte) (int, error) {
	if c.below == nil || len(p) <= recordPayload {
		return c.Conn.Write(p)
	}
	c.below.cork()
	n, err := c.Conn.Write(p)
	if ferr := c.below.uncork(); err == nil && ferr != nil {
		return 0, ferr
	}
	return n, err
}

// WriteFrames writes head and then payload, which may be nil, without joining them first.
func (c *BatchConn) WriteFrames(head, payload []byte) error { return c.writeFrames(nil, head, payload) }

func (c *BatchConn) writeFrames(ws *webSocket, head, payload []byte) error {
	if c.below == nil || len(payload) == 0 && len(head) <= recordPayload {
		return c.writeBoth(ws, head, payload)
	}
	c.below.cork()
	err := c.writeBoth(ws, head, payload)
	return cmp.Or(err, c.below.uncork())
}

func (c *BatchConn) writeBoth(ws *webSocket, head, payload []byte) error {
	if ws != nil {
		return ws.writeFrames(head, payload)
	}
	if _, err := c.Conn.Write(head); err != nil || len(payload) == 0 {
		return err
	}
	_, err := c.Conn.Write(payload)
	return err
}

const (
	recordPayload = 16 << 10             // payload of a full TLS record
	recordSize    = recordPayload + 22   // with header, content type and tag of TLS 1.3
	flightSize    = 4*recordSize + 1<<10 // a full frame of the multiplexer: what one system call moves
	userTimeout   = 30 * time.Second     // TCP_USER_TIMEOUT
)

// flightBuffers pools the buffers of tunedConn, for both directions.
var flightBuffers = sync.Pool{New: func() any { return new([flightSize]byte) }}

// TuneConn prepares a raw connection for use below crypto/tls, on either end of either hop: it
// reads ahead, it lets a BatchConn above the TLS write four records with one system call, and on
// TCP it sets TCP_NODELAY and, on Linux, TCP_USER_TIMEOUT (30 s). It holds no buffer while the
// connection is idle.
func TuneConn(c net.Conn) net.Conn {
	t := &tunedConn{Conn: c}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(true) // Go's default; an error shows up at the first read
		tuneTCP(tcp)
		if raw, err := tcp.SyscallConn(); err == nil && connread.CanPoll {
			t.raw, t.poll = raw, t.pollRead
		}
	}
	return t
}

// tunedConn is the connection that TuneConn returns. Like crypto/tls, it allows one reader and one
// writer at a time.
type tunedConn struct {
	net.Conn
	raw  syscall.RawConn
	poll func(fd uintptr) bool // the method value of pollRead

	in           *[flightSize]byte // bytes read ahead; nil when there are none
	inPos, inEnd int
	pollErr      error

	mu       sync.Mutex // guards what follows
	corks    int        // BatchConn writes in progress
	out      *[flightSize]byte
	corked   int
	flushErr error // the error of a flush: bytes are lost, and every later write fails
}

// NetConn returns the raw connection.
func (c *tunedConn) NetConn() net.Conn { return c.Conn }

// Read returns bytes that were read ahead, or reads up to flightSize.
func (c *tunedConn) Read(p []byte) (int, error) {
	if c.release(); c.in == nil {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.in[c.inPos:c.inEnd])
	c.inPos += n
	c.release()
	return n, nil
}

// next is Read without a copy: the bytes are valid until the next call of next, Read or release.
func (c *tunedConn) next() ([]byte, error) {
	if c.release(); c.in == nil {
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
	p := c.in[c.inPos:c.inEnd]
	c.inPos = c.inEnd
	return p, nil
}

// unread returns how many bytes were read ahead.
func (c *tunedConn) unread() int { return c.inEnd - c.inPos }

// release returns a buffer whose bytes were read to the pool.
func (c *tunedConn) release() {
	if c.in != nil && c.inPos == c.inEnd {
		flightBuffers.Put(c.in)
		c.in = nil
	}
}

func (c *tunedConn) fill() error {
	if c.raw == nil {
		in := flightBuffers.Get().(*[flightSize]byte)
		n, err := c.Conn.Read(in[:])
		if n == 0 {
			flightBuffers.Put(in)
			return err
		}
		c.in, c.inPos, c.inEnd = in, 0, n // the next read returns the error again
		return nil
	}
	c.pollErr = nil
	if err := c.raw.Read(c.poll); err != nil {
		return err
	}
	if c.pollErr != nil && !connread.IsEOF(c.pollErr) {
		return &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: c.pollErr}
	}
	return c.pollErr
}

// pollRead reads the bytes that are available. It holds a buffer only when there are some, and
// returns false to wait for them.
func (c *tunedConn) pollRead(fd uintptr) (ready bool) {
	in := flightBuffers.Get().(*[flightSize]byte)
	n, ready, err := connread.Available(fd, in[:])
	c.pollErr = err
	if n == 0 {
		flightBuffers.Put(in)
		return ready
	}
	c.in, c.inPos, c.inEnd = in, 0, n
	return true
}

// Write writes p, or buffers it until uncork while a BatchConn writes.
func (c *tunedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flushErr != nil {
		return 0, c.flushErr
	}
	if c.corks == 0 {
		return c.Conn.Write(p)
	}
	if c.corked+len(p) > flightSize {
		if err := c.flush(); err != nil {
			return 0, err
		}
		if len(p) > flightSize {
			return c.Conn.Write(p)
		}
	}
	if c.out == nil {
		c.out = flightBuffers.Get().(*[flightSize]byte)
	}
	c.corked += copy(c.out[c.corked:], p)
	return len(p), nil
}

func (c *tunedConn) cork() {
	c.mu.Lock()
	c.corks++
	c.mu.Unlock()
}

// uncork writes the bytes that were buffered since cork.
func (c *tunedConn) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corks--
	return c.flush()
}

func (c *tunedConn) flush() error {
	if c.corked > 0 && c.flushErr == nil {
		_, c.flushErr = c.Conn.Write(c.out[:c.corked])
	}
	if c.out != nil {
		flightBuffers.Put(c.out)
		c.out, c.corked = nil, 0
	}
	return c.flushErr
}
