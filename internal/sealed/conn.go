// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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
	// WriteLater is Write for bytes that are followed by others: they may be sent together.
	WriteLater(p []byte) (int, error)
	CloseWrite() error
	Abort() error
}

// stream is what a Conn shares with the stream below it: nothing that reads, writes or ends it cleanly,
// or bytes could pass beside the seal.
type stream interface {
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	SetDeadline(t time.Time) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
	Abort() error
}

// Conn is one end of a sealed connection: a relay.HalfCloser with Next, and with Abort, which makes
// the peer's reads and writes fail. Its owner must call Close or Abort in the end. One goroutine may
// read while another writes and a third one closes. While it waits for bytes it holds no buffer of
// its own. A read that has timed out can be repeated, a write cannot.
type Conn struct {
	stream
	tls     *tls.Conn
	records *records

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
	r := &records{Below: below}
	return &Conn{stream: below, tls: end(r, cfg), records: r}
}

// shake runs the handshake, which an abort of the stream below ends. What it sends last goes below with
// the first flight.
func (c *Conn) shake() error {
	c.records.shaking = true                            // no other goroutine writes yet
	err := c.tls.HandshakeContext(context.Background()) // a context that can end costs a goroutine
	c.records.shaking, c.records.later = false, false
	return err
}

// Peer returns the public key of the agent, on the caller's side.
func (c *Conn) Peer() trust.Pin { return keyOf(c.tls.ConnectionState().PeerCertificates[0]) }

// Read reads what the peer sent. io.EOF means that the peer called CloseWrite; every other end,
// also one that the service or the network caused, is another error.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.fill(); err != nil {
		return 0, err
	}
	n := copy(p, c.unread)
	c.unread = c.unread[n:]
	return n, nil
}

// Next is Read without a copy: it returns bytes that are valid until the next call of Next or Read.
func (c *Conn) Next() ([]byte, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	p := c.unread
	c.unread = nil
	return p, nil
}

// fill reads a record with bytes into unread unless that has some. It waits without a buffer until
// a record begins.
func (c *Conn) fill() error {
	if len(c.unread) > 0 {
		return nil
	}
	c.release()
	if c.readErr == nil {
		if err := c.records.await(); err != nil {
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
	if connread.IsEOF(c.readErr) { // close_notify: records never return io.EOF
		return c.awaitEOF()
	}
	return c.readErr
}

func (c *Conn) release() {
	if c.buf != nil {
		plaintexts.Put(c.buf)
		c.buf = nil
	}
}

// awaitEOF returns io.EOF when the stream below ends after close_notify, as the peer's CloseWrite
// ends it.
func (c *Conn) awaitEOF() error {
	n, err := c.records.Below.Read(make([]byte, 1))
	switch {
	case n > 0 || err == nil:
		return errors.New("the stream below a sealed connection goes on after close_notify")
	case connread.IsEOF(err):
		c.sawEOF.Store(true)
	}
	return err
}

// Write sends p. The records of a large one go below with one write for four of them: a frame of the
// multiplexer.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) <= len(plaintext{}) {
		return c.tls.Write(p)
	}
	c.records.cork()
	n, err := c.tls.Write(p)
	return n, cmp.Or(err, c.records.uncork())
}

// CloseWrite ends the direction towards the peer, which reads io.EOF: it ends both layers.
func (c *Conn) CloseWrite() error {
	err := c.tls.CloseWrite()
	if err == nil {
		err = c.records.Below.CloseWrite()
	}
	c.sentEOF.Store(err == nil)
	return err
}

// Close ends the connection: cleanly when both directions have ended (CloseWrite, and a Read that
// returned io.EOF), else with an abort.
func (c *Conn) Close() error {
	if c.sawEOF.Load() && c.sentEOF.Load() {
		return c.records.Below.Close()
	}
	return c.Abort()
}

// records is the stream below as crypto/tls sees it. It returns no byte beyond the record that is
// being read: crypto/tls then keeps a buffer of one record at most, and Conn can wait for the next
// record without one.
type records struct {
	Below
	header [5]byte
	filled int         // bytes of header that have arrived
	taken  int         // bytes of header that crypto/tls has read
	left   int         // bytes that follow the last header and were not read
	broken atomic.Bool // broken is set once the stream below has failed.

	mu      sync.Mutex // mu guards what follows.
	shaking bool       // shaking is set during the handshake.
	later   bool       // later is set while the handshake goes on after a first flight: another one follows each.
	corked  *flight    // corked has records that a Write keeps to send them together; nil = none does.
	kept    int        // kept counts the bytes in corked.
}

const frameSize = 64 << 10 // the payload of one frame of the multiplexer

// flight has room for four full records, which exceed a frame by what encryption adds.
type flight [frameSize + 4*22]byte

var flights = sync.Pool{New: func() any { return new(flight) }}

// errCut must not be io.ErrUnexpectedEOF itself, which crypto/tls takes for a clean end when it
// comes between two records.
var errCut = fmt.Errorf("the stream below a sealed connection ended without close_notify: %w", io.ErrUnexpectedEOF)

// await waits until a record's header has arrived, or a part of a record.
func (r *records) await() error {
	for r.left == 0 && r.filled < len(r.header) {
		n, err := r.Below.Read(r.header[r.filled:])
		if r.filled += n; err != nil && r.filled < len(r.header) {
			return r.readError(err)
		}
	}
	return nil
}

// Read reads the rest of a header, or of what follows it.
func (r *records) Read(p []byte) (int, error) {
	if err := r.await(); err != nil {
		return 0, err
	}
	if r.left > 0 {
		n, err := r.Below.Read(p[:min(len(p), r.left)])
		r.left -= n
		return n, r.readError(err)
	}
	n := copy(p, r.header[r.taken:])
	if r.taken += n; r.taken == len(r.header) {
		r.filled, r.taken, r.left = 0, 0, int(binary.BigEndian.Uint16(r.header[3:]))
	}
	return n, nil
}

func (r *records) readError(err error) error {
	if err != nil {
		r.broken.Store(true)
	}
	if connread.IsEOF(err) {
		return errCut
	}
	return err
}

func (r *records) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.later:
		return r.write(r.WriteLater, p)
	case r.corked == nil:
		r.later = r.shaking
		return r.write(r.Below.Write, p)
	case r.kept+len(p) > len(r.corked):
		if err := r.flush(); err != nil {
			return 0, err
		}
	}
	r.kept += copy(r.corked[r.kept:], p)
	return len(p), nil
}

func (r *records) write(to func([]byte) (int, error), p []byte) (int, error) {
	n, err := to(p)
	if err != nil {
		r.broken.Store(true)
	}
	return n, err
}

// cork keeps what is written until uncork.
func (r *records) cork() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.corked = flights.Get().(*flight)
}

// uncork sends what cork has kept.
func (r *records) uncork() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.flush()
	flights.Put(r.corked)
	r.corked = nil
	return err
}

// flush sends what cork has kept. mu must be held. The little that exceeds a frame of the multiplexer
// goes first, with the frame's write.
func (r *records) flush() error {
	p := r.corked[:r.kept]
	r.kept = 0
	raw, ok := r.Below.(interface{ Socket() *net.TCPConn })
	if len(p) > frameSize && (!ok || raw.Socket() == nil) {
		if _, err := r.write(r.WriteLater, p[:len(p)-frameSize]); err != nil {
			return err
		}
		p = p[len(p)-frameSize:]
	}
	_, err := r.write(r.Below.Write, p)
	return err
}

// SetWriteDeadline keeps crypto/tls from giving up close_notify after 5 s, while the peer reads what
// was written before.
func (r *records) SetWriteDeadline(time.Time) error { return nil }
