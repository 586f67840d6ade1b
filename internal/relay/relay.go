// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package relay joins two connections: bytes, half-close and aborts go both ways.
//
// What comes in: two ends of one path, from the forwarder (a pod's connection and a tunnel stream),
// the edge (two streams) and the agent (a stream and its upstream), who hand them over for good.
// What goes out: the counts and the reason of the end.
//
// An end of input becomes CloseWrite on the other side. An error, of either side and in either
// direction, becomes an abort of both: a reader must never take a torn connection for a finished
// one, not even when this process is killed. Buffers of 64 KiB, the payload of one frame of the
// tunnel, come from a pool and are held only while there is something to move, so an idle
// connection holds none; what a tunnel stream has to read is passed on as it lies there. There is
// no lock and no allocation per byte.
package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// HalfCloser is what both ends must offer: *net.TCPConn, *tls.Conn and the tunnel's Stream do.
type HalfCloser interface {
	net.Conn
	CloseWrite() error
}

// Options change how Join works. The zero value is fine.
type Options struct {
	// HalfCloseTimeout aborts a connection that is closed in one direction and has been idle in the
	// other for so long (and up to a quarter more). 0 = 1 h.
	HalfCloseTimeout time.Duration
}

// Result counts the bytes that were moved.
type Result struct{ AToB, BToA int64 }

// ErrIdle says that a half-closed connection was idle for too long.
var ErrIdle = errors.New("half-closed connection was idle for too long")

// Join copies both ways until both directions have ended or one of them failed, then closes both
// ends. It owns a and b. The error is nil after two ordinary ends, else the first thing that went
// wrong: of reading, of writing, ctx's cause, or ErrIdle.
func Join(ctx context.Context, a, b HalfCloser, opt Options) (Result, error) {
	if opt.HalfCloseTimeout <= 0 {
		opt.HalfCloseTimeout = time.Hour
	}
	j := &joint{a: a, b: b, timeout: opt.HalfCloseTimeout}
	torn(a, true)
	torn(b, true)
	stop := context.AfterFunc(ctx, func() { j.fail(context.Cause(ctx)) })
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.copy(b, a, &j.bToA)
	}()
	j.copy(a, b, &j.aToB)
	<-done
	stop()
	if j.err.Load() == nil {
		torn(a, false)
		torn(b, false)
	}
	_, _ = a.Close(), b.Close()
	res := Result{AToB: j.aToB.Load(), BToA: j.bToA.Load()}
	if err := j.err.Load(); err != nil {
		return res, *err
	}
	return res, nil
}

// torn says what a TCP connection's peer learns when the connection is closed, be it by the kernel
// because this process was killed: that it is torn, or that it has ended.
func torn(c net.Conn, yes bool) {
	if t, ok := c.(interface{ SetLinger(int) error }); ok {
		seconds := -1 // the kernel goes on sending what is left
		if yes {
			seconds = 0
		}
		_ = t.SetLinger(seconds)
	}
}

// joint is what the two directions share.
type joint struct {
	a, b       HalfCloser
	timeout    time.Duration
	aToB, bToA atomic.Int64
	err        atomic.Pointer[error] // the first

	mu    sync.Mutex // guards what follows
	ended int        // directions
	watch *time.Timer
	moved int64 // when the watch looked last
	idle  int   // how often in a row it saw no difference
}

// fail aborts both ends at the same time: the abort of a stream may have to wait for its tunnel.
// Only the first error counts.
func (j *joint) fail(err error) {
	if !j.err.CompareAndSwap(nil, &err) {
		return
	}
	var other sync.WaitGroup
	other.Go(func() { abort(j.a) })
	abort(j.b)
	other.Wait()
}

// copy moves bytes one way until the input ends or something fails.
func (j *joint) copy(from, to HalfCloser, moved *atomic.Int64) {
	if err := pump(from, to, moved); err != nil {
		j.fail(err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended++
	switch {
	case j.ended == 1 && j.err.Load() == nil:
		j.watch = time.AfterFunc(j.timeout/idleParts, j.look)
	case j.watch != nil:
		j.watch.Stop()
	}
}

// idleParts is how often a half-closed connection is looked at within its time-out.
const idleParts = 4

// look aborts a half-closed connection in which nothing has moved for the time-out.
func (j *joint) look() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended > 1 {
		return
	}
	j.idle++
	if moved := j.aToB.Load() + j.bToA.Load(); moved != j.moved {
		j.moved, j.idle = moved, 0
	}
	if j.idle >= idleParts {
		go j.fail(ErrIdle) // an abort may wait for the network
		return
	}
	j.watch.Reset(j.timeout / idleParts)
}

// pump copies until from ends, and passes the end on.
func pump(from, to HalfCloser, moved *atomic.Int64) error {
	src := NewSource(from)
	defer src.Release()
	for {
		buf, err := src.Next()
		if len(buf) > 0 {
			if _, err := to.Write(buf); err != nil {
				return failed("writing", err)
			}
			moved.Add(int64(len(buf)))
		}
		switch {
		case err == nil:
		case !isEnd(err):
			return failed("reading", err)
		default:
			return failed("closing", to.CloseWrite())
		}
	}
}

// failed is not part of pump, whose stack is that of every idle connection.
func failed(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// abort ends c so that its peer sees an error.
func abort(c net.Conn) {
	if s, ok := c.(interface{ Abort() error }); ok {
		_ = s.Abort()
		return
	}
	for below := c; ; { // a TLS connection's Close would say goodbye properly
		switch t := below.(type) {
		case interface{ SetLinger(int) error }:
			_ = t.SetLinger(0)
			_ = below.Close()
		case interface{ NetConn() net.Conn }:
			below = t.NetConn()
			continue
		}
		break
	}
	_ = c.Close()
}
