// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
)

// joinedPair is a Join between two connections: client <-> a, b <-> upstream.
type joinedPair struct {
	client, upstream HalfCloser
	result           chan outcome
	cancel           context.CancelCauseFunc
}

type outcome struct {
	Result
	err error
}

func start(t *testing.T, client, a, b, upstream HalfCloser, opt Options) *joinedPair {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &joinedPair{client: client, upstream: upstream, result: make(chan outcome, 1), cancel: cancel}
	go func() {
		res, err := Join(ctx, a, b, opt)
		r.result <- outcome{res, err}
		close(r.result)
	}()
	t.Cleanup(func() {
		cancel(nil)
		_ = client.Close()
		_ = upstream.Close()
		for range r.result { // until Join has returned
		}
	})
	return r
}

// overTCP joins two TCP connections on loopback.
func overTCP(t *testing.T, opt Options) *joinedPair {
	client, a := tcpPair(t)
	b, upstream := tcpPair(t)
	return start(t, client, a, b, upstream, opt)
}

// overPipes joins two connections in memory.
func overPipes(t *testing.T, opt Options) *joinedPair {
	client, a := memoryPair()
	b, upstream := memoryPair()
	return start(t, client, a, b, upstream, opt)
}

func tcpPair(t *testing.T) (*net.TCPConn, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	dialed, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

// memoryConn is a connection in memory with half-close and abort.
type memoryConn struct {
	net.Conn // nil: deadlines and addresses are not used
	in       *io.PipeReader
	out      *io.PipeWriter
}

var errAborted = errors.New("torn")

func memoryPair() (*memoryConn, *memoryConn) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return &memoryConn{in: r1, out: w2}, &memoryConn{in: r2, out: w1}
}

func (c *memoryConn) Read(p []byte) (int, error)  { return c.in.Read(p) }
func (c *memoryConn) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c *memoryConn) CloseWrite() error           { return c.out.Close() }
func (c *memoryConn) Close() error                { return errors.Join(c.in.Close(), c.out.Close()) }
func (c *memoryConn) Abort() error {
	return errors.Join(c.in.CloseWithError(errAborted), c.out.CloseWithError(errAborted))
}

type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

func random(seed uint64, n int64) io.Reader {
	var s [32]byte
	s[0] = byte(seed)
	return io.LimitReader(rand.NewChaCha8(s), n)
}

func send(t *testing.T, c io.Writer, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func mustClose(t *testing.T, c HalfCloser) {
	t.Helper()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, c io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(onlyReader{c})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
