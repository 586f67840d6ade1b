// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux_test

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// memConn is one end of a connection in memory, for sessions of ours and of go-yamux. It works in a
// synctest bubble.
type memConn struct {
	in, out *flow
}

// pipe returns both ends of a connection that holds up to limit bytes each way (0: any number).
func pipe(limit int) (a, b *memConn) {
	x, y := newFlow(limit), newFlow(limit)
	return &memConn{in: x, out: y}, &memConn{in: y, out: x}
}

// flow is one direction.
type flow struct {
	mu       sync.Mutex
	change   sync.Cond
	limit    int
	buf      []byte
	noWriter bool
	noReader bool
	read     deadline
	write    deadline
}

func newFlow(limit int) *flow {
	f := &flow{limit: limit}
	f.change.L = &f.mu
	return f
}

type deadline struct {
	timer  *time.Timer
	passed bool
	round  int
}

// set is called with the lock held.
func (f *flow) set(d *deadline, t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.round++
	d.passed = !t.IsZero() && !t.After(time.Now())
	if round := d.round; !t.IsZero() && !d.passed {
		d.timer = time.AfterFunc(time.Until(t), func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if d.round == round {
				d.passed = true
				f.change.Broadcast()
			}
		})
	}
	f.change.Broadcast()
}

func (c *memConn) Read(p []byte) (int, error) {
	f := c.in
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case f.noReader:
			return 0, net.ErrClosed
		case f.read.passed:
			return 0, os.ErrDeadlineExceeded
		case len(f.buf) > 0:
			n := copy(p, f.buf)
			if f.buf = f.buf[n:]; len(f.buf) == 0 {
				f.buf = nil
			}
			f.change.Broadcast()
			return n, nil
		case f.noWriter:
			return 0, io.EOF
		}
		f.change.Wait()
	}
}

func (c *memConn) Write(p []byte) (int, error) {
	f := c.out
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := 0; ; {
		switch {
		case f.noWriter:
			return n, net.ErrClosed
		case f.noReader:
			return n, syscall.EPIPE
		case f.write.passed:
			return n, os.ErrDeadlineExceeded
		}
		m := len(p) - n
		if f.limit > 0 {
			m = min(m, f.limit-len(f.buf))
		}
		f.buf = append(f.buf, p[n:n+m]...)
		n += m
		f.change.Broadcast()
		if n == len(p) {
			return n, nil
		}
		f.change.Wait()
	}
}

func (c *memConn) WriteFrames(head, payload []byte) error {
	if _, err := c.Write(head); err != nil || payload == nil {
		return err
	}
	_, err := c.Write(payload)
	return err
}

func (c *memConn) Close() error {
	for _, f := range []*flow{c.in, c.out} {
		f.mu.Lock()
		f.noReader = f.noReader || f == c.in
		f.noWriter = f.noWriter || f == c.out
		if f == c.in {
			f.buf = nil
			f.set(&f.read, time.Time{})
		} else {
			f.set(&f.write, time.Time{})
		}
		f.mu.Unlock()
	}
	return nil
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.set(&c.in.read, t)
	return nil
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.set(&c.out.write, t)
	return nil
}

func (c *memConn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *memConn) LocalAddr() net.Addr  { return &net.IPAddr{} }
func (c *memConn) RemoteAddr() net.Addr { return &net.IPAddr{} }

// wire makes a net.Conn what a session runs over.
type wire struct {
	net.Conn
	parts [2][]byte
	both  net.Buffers
}

func (w *wire) WriteFrames(head, payload []byte) error {
	w.parts = [2][]byte{head, payload}
	w.both = w.parts[:]
	_, err := w.both.WriteTo(w.Conn)
	return err
}

// loopback returns both ends of a TCP connection.
func loopback(t testing.TB) (a, b net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return a, b
}

// gate is a connection whose writes wait until the test releases them.
type gate struct {
	*memConn
	pass   chan struct{}
	closed chan struct{}
	once   sync.Once
	open   atomic.Bool // writes do not wait

	mu     sync.Mutex
	writes [][]byte // those that have begun
}

func newGate(c *memConn) *gate {
	return &gate{memConn: c, pass: make(chan struct{}), closed: make(chan struct{})}
}

func (g *gate) WriteFrames(head, payload []byte) error {
	g.mu.Lock()
	g.writes = append(g.writes, append(append([]byte(nil), head...), payload...))
	g.mu.Unlock()
	if g.open.Load() {
		return g.memConn.WriteFrames(head, payload)
	}
	select {
	case <-g.pass:
		return g.memConn.WriteFrames(head, payload)
	case <-g.closed:
		return net.ErrClosed
	}
}

func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.memConn.Close()
}
