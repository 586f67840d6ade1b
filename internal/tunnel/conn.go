// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"crypto/tls"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	recordPayload = 16 << 10             // the most that one TLS record carries
	recordSize    = recordPayload + 22   // with header, content type and tag of TLS 1.3
	flightSize    = 4*recordSize + 1<<10 // a full frame of the multiplexer with its header: what one system call moves
	userTimeout   = 30 * time.Second     // TCP_USER_TIMEOUT
)

// flights pools the buffers of tunedConn, both ways.
var flights = sync.Pool{New: func() any { return new([flightSize]byte) }}

// TuneConn prepares a raw connection to sit under crypto/tls, on both hops and on both ends: it
// reads ahead, it lets a BatchConn above the TLS write four records with one system call, and on
// TCP it sets TCP_NODELAY and, on Linux, TCP_USER_TIMEOUT (30 s). It costs no buffer while the
// connection is idle.
func TuneConn(c net.Conn) net.Conn {
	t := &tunedConn{Conn: c}
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetNoDelay(true) // Go's default; an error shows up at the first read
		tuneTCP(tcp)
		if raw, err := tcp.SyscallConn(); err == nil && canPoll {
			t.raw, t.poll = raw, t.pollRead
		}
	}
	return t
}

// tunedConn is what TuneConn makes. As crypto/tls does, it allows one reader and one writer at a
// time.
type tunedConn struct {
	net.Conn
	raw  syscall.RawConn
	poll func(fd uintptr) bool // pollRead, bound once

	in           *[flightSize]byte // read ahead; nil when empty
	inPos, inEnd int
	pollErr      error

	mu    sync.Mutex // guards what follows
	holds int        // BatchConn.Write calls in progress
	out   *[flightSize]byte
	held  int
	err   error // a flush failed: bytes are lost, nothing may follow
}

// NetConn returns the raw connection.
func (c *tunedConn) NetConn() net.Conn { return c.Conn }

// Read returns bytes that were read ahead, or reads up to a flight.
func (c *tunedConn) Read(p []byte) (int, error) {
	if c.in == nil {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.in[c.inPos:c.inEnd])
	c.inPos += n
	if c.inPos == c.inEnd {
		flights.Put(c.in)
		c.in = nil
	}
	return n, nil
}

func (c *tunedConn) fill() error {
	if c.raw == nil {
		in := flights.Get().(*[flightSize]byte)
		n, err := c.Conn.Read(in[:])
		if n == 0 {
			flights.Put(in)
			return err
		}
		c.in, c.inPos, c.inEnd = in, 0, n // an error comes back at the next read
		return nil
	}
	c.pollErr = nil
	if err := c.raw.Read(c.poll); err != nil {
		return err
	}
	if c.pollErr != nil && !isEnd(c.pollErr) {
		return &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: c.pollErr}
	}
	return c.pollErr
}

// Write writes p, or keeps it for the flush while a BatchConn writes.
func (c *tunedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if c.holds == 0 {
		return c.Conn.Write(p)
	}
	if c.held+len(p) > flightSize {
		if err := c.flush(); err != nil {
			return 0, err
		}
		if len(p) > flightSize {
			return c.Conn.Write(p)
		}
	}
	if c.out == nil {
		c.out = flights.Get().(*[flightSize]byte)
	}
	c.held += copy(c.out[c.held:], p)
	return len(p), nil
}

func (c *tunedConn) hold() {
	c.mu.Lock()
	c.holds++
	c.mu.Unlock()
}

// release writes what was held since hold.
func (c *tunedConn) release() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds--
	return c.flush()
}

func (c *tunedConn) flush() error {
	if c.held > 0 && c.err == nil {
		_, c.err = c.Conn.Write(c.out[:c.held])
	}
	if c.out != nil {
		flights.Put(c.out)
		c.out, c.held = nil, 0
	}
	return c.err
}

// BatchConn is a TLS connection that writes the records of one large Write, or of one WriteFrames,
// with one system call, if a conn of TuneConn is below.
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
	c.below.hold()
	n, err := c.Conn.Write(p)
	if ferr := c.below.release(); err == nil && ferr != nil {
		return 0, ferr
	}
	return n, err
}

// WriteFrames writes head and then payload, which may be nil, without joining them first.
func (c *BatchConn) WriteFrames(head, payload []byte) error {
	if c.below == nil || len(payload) == 0 && len(head) <= recordPayload {
		return c.writeBoth(head, payload)
	}
	c.below.hold()
	err := c.writeBoth(head, payload)
	return cmp.Or(err, c.below.release())
}

func (c *BatchConn) writeBoth(head, payload []byte) error {
	if _, err := c.Conn.Write(head); err != nil || len(payload) == 0 {
		return err
	}
	_, err := c.Conn.Write(payload)
	return err
}
