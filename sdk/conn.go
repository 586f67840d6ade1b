// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// lingerTimeout is how long a closed connection waits for its peer to close, too, before it is
// aborted.
const lingerTimeout = 10 * time.Second

// sealCloseTimeout bounds how long Close of a sealed connection waits while the caller does not read.
const sealCloseTimeout = 5 * time.Second

// Conn is a connection to an endpoint. It is a net.Conn with half-close: a Read returns io.EOF only
// if the caller has ended its side; a connection that broke is another error.
type Conn struct {
	stream        agent.Incoming
	header        tunnel.OpenHeader
	local, remote net.Addr

	reading sync.Mutex // held by Read
	mu      sync.Mutex // guards closed and, with it, the deadlines
	closed  bool
	done    chan struct{} // closed by Close and Abort
	aborted bool
}

var _ net.Conn = (*Conn)(nil)

func newConn(st agent.Incoming, local net.Addr) *Conn {
	c := &Conn{stream: st, header: st.Header(), local: local, remote: st.RemoteAddr(), done: make(chan struct{})}
	if at, err := netip.ParseAddrPort(c.header.ClientAddr); err == nil {
		c.remote = net.TCPAddrFromAddrPort(at)
	}
	return c
}

// waitClosed returns when the connection was closed and its peer has got everything, or when ctx,
// which is the stream's, is done.
func (c *Conn) waitClosed(ctx context.Context) {
	select {
	case <-c.done:
	case <-ctx.Done():
		return
	}
	if c.aborted {
		return
	}
	c.reading.Lock()             // a Read that was interrupted has returned, and later ones find it closed
	err := c.stream.CloseWrite() // as Close did
	c.reading.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = c.stream.Abort() })
	defer stop()
	if err == nil && c.stream.SetReadDeadline(time.Now().Add(lingerTimeout)) == nil {
		_, _ = io.Copy(io.Discard, struct{ io.Reader }{c.stream})
	}
	_ = c.stream.Close()
}

// Read reads what the caller sent.
func (c *Conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.isClosed() {
		return 0, c.opError("read", net.ErrClosed)
	}
	n, err := c.stream.Read(p)
	return n, c.opError("read", err)
}

// Write sends p to the caller. It blocks while the caller does not read.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.stream.Write(p)
	return n, c.opError("write", err)
}

// opError describes an error of the stream as package net does. io.EOF and nil stay as they are.
func (c *Conn) opError(op string, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // io.EOF is never wrapped
		return err
	}
	if c.isClosed() {
		err = net.ErrClosed
	}
	return &net.OpError{Op: op, Net: "fairlead", Source: c.local, Addr: c.remote, Err: err}
}

func (c *Conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// CloseWrite ends the direction to the caller, which reads io.EOF after what was written.
func (c *Conn) CloseWrite() error { return c.opError("close", c.stream.CloseWrite()) }

// Close ends the connection. What was written is still delivered; a caller that goes on sending for
// more than 10 s is cut off.
func (c *Conn) Close() error { return c.close(false) }

// Abort ends the connection so that the caller sees an error and not an end.
func (c *Conn) Abort() error { return c.close(true) }

func (c *Conn) close(abort bool) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", net.ErrClosed)
	}
	c.closed, c.aborted = true, abort
	interrupted := time.Unix(1, 0)
	_ = c.stream.SetReadDeadline(interrupted) // Read returns
	if _, plain := c.stream.(*tunnel.Stream); !plain && !abort {
		interrupted = time.Now().Add(sealCloseTimeout) // as the end of a seal is written, too
	}
	_ = c.stream.SetWriteDeadline(interrupted)
	c.mu.Unlock()
	defer close(c.done)
	if abort {
		_ = c.stream.Abort()
		return nil
	}
	_ = c.stream.CloseWrite() // sent before Close returns
	return nil
}

// LocalAddr returns host:port of the endpoint.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the caller's address: of a tcp endpoint that of the pod, as its forwarder states
// it. A connection of an http or https endpoint carries the requests of many callers, whose address
// is in the header X-Forwarded-For; its remote address is that of the service.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// Pod returns the namespace and name of the pod that calls a tcp endpoint, as its forwarder states
// them; "" when they are unknown.
func (c *Conn) Pod() (namespace, name string) {
	if p := c.header.Pod; p != nil {
		return p.Namespace, p.Name
	}
	return "", ""
}

// SetDeadline sets the deadlines of reads and writes.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(c.stream.SetDeadline, t) }

// SetReadDeadline sets the deadline of reads, also of one that waits.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(c.stream.SetReadDeadline, t) }

// SetWriteDeadline sets the deadline of writes, also of one that waits.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(c.stream.SetWriteDeadline, t)
}

func (c *Conn) setDeadline(set func(time.Time) error, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &net.OpError{Op: "set", Net: "fairlead", Source: c.local, Addr: c.remote, Err: net.ErrClosed}
	}
	return set(t)
}
