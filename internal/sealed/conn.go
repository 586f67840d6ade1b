// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
)

// Below is what a sealed connection runs over: a *tunnel.Stream.
type Below interface {
	net.Conn
	CloseWrite() error
	Abort() error
}

// Conn is one end of a sealed connection: a relay.HalfCloser with Next and Abort. Its owner must
// call Close or Abort in the end. One goroutine may read while another writes and a third one
// closes. While it waits for bytes it holds no buffer of its own. A write that has timed out cannot
// be repeated.
type Conn struct {
	tls   *tls.Conn
	below *recordReader
	peer  trust.Pin

	buf     *plaintext // buf holds unread, and bytes that Next has returned; nil = none.
	unread  []byte
	readErr error // readErr is the last of crypto/tls: io.EOF after close_notify.

	sawEOF, sentEOF atomic.Bool
}

// plaintext has room for what one record holds.
type plaintext [16 << 10]byte

var plaintexts = sync.Pool{New: func() any { return new(plaintext) }}

// newConn returns the end of a connection that tls.Client or tls.Server makes.
func newConn(below Below, end func(net.Conn, *tls.Config) *tls.Conn, cfg *tls.Config) *Conn {
	records := &recordReader{Below: below}
	return &Conn{tls: end(records, cfg), below: records}
}

// Peer returns the public key of the other end; the zero value is that of a caller without a
// certificate.
func (c *Conn) Peer() trust.Pin { return c.peer }

// Read reads what the peer sent. io.EOF means that the peer called CloseWrite; every other end,
// also one that the service or the network caused, is another error.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.unread) == 0 {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.unread)
	if c.unread = c.unread[n:]; len(c.unread) == 0 {
		c.release()
	}
	return n, nil
}

// Next is Read without a copy: it returns bytes that are valid until the next call of Next or Read.
func (c *Conn) Next() ([]byte, error) {
	if len(c.unread) == 0 {
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
	p := c.unread
	c.unread = nil
	return p, nil
}

// fill reads one record with bytes into unread. It waits without a buffer until one begins.
func (c *Conn) fill() error {
	c.release()
	if c.readErr == nil {
		if err := c.below.awaitRecord(); err != nil {
			return err
		}
		c.buf = plaintexts.Get().(*plaintext)
		n, err := c.tls.Read(c.buf[:])
		if n > 0 { // crypto/tls keeps the error, if there is one
			c.unread = c.buf[:n]
			return nil
		}
		c.release()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		c.readErr = err
	}
	if connread.IsEOF(c.readErr) { // after close_notify: recordReader never returns io.EOF
		return c.awaitEOF()
	}
	return c.readErr
}

// awaitEOF returns io.EOF when the stream below ends after close_notify, as the peer's CloseWrite
// ends it.
func (c *Conn) awaitEOF() error {
	var b [1]byte
	n, err := c.below.Below.Read(b[:])
	switch {
	case n > 0 || err == nil:
		return errAfterEnd
	case connread.IsEOF(err):
		c.sawEOF.Store(true)
	}
	return err
}

func (c *Conn) release() {
	if c.buf != nil {
		plaintexts.Put(c.buf)
		c.buf, c.unread = nil, nil
	}
}

// Write sends p.
func (c *Conn) Write(p []byte) (int, error) { return c.tls.Write(p) }

// CloseWrite ends the direction towards the peer, which reads io.EOF: it ends both layers.
func (c *Conn) CloseWrite() error {
	if err := c.tls.CloseWrite(); err != nil {
		return err
	}
	err := c.below.CloseWrite()
	c.sentEOF.Store(err == nil)
	return err
}

// Abort ends both directions: the peer's reads and writes fail.
func (c *Conn) Abort() error { return c.below.Abort() }

// Close ends the connection: cleanly when both directions have ended (CloseWrite, and a Read that
// returned io.EOF), else with an abort.
func (c *Conn) Close() error {
	if c.sawEOF.Load() && c.sentEOF.Load() {
		return c.below.Below.Close()
	}
	return c.Abort()
}

// LocalAddr returns the local address of the stream below.
func (c *Conn) LocalAddr() net.Addr { return c.below.LocalAddr() }

// RemoteAddr returns the remote address of the stream below. The caller's own is in the Header.
func (c *Conn) RemoteAddr() net.Addr { return c.below.RemoteAddr() }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error { return c.below.SetDeadline(t) }

// SetReadDeadline sets the deadline of reads. One that has timed out can be repeated.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.below.SetReadDeadline(t) }

// SetWriteDeadline sets the deadline of writes and of CloseWrite.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.below.Below.SetWriteDeadline(t) }
