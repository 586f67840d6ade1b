// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/relay"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// line is a connection to a target. The first read of one to an agent waits for its answer.
type line interface {
	relay.HalfCloser
	Next() ([]byte, error) // what is read, until the next call
	Abort() error
	opened() error // waits until the target has answered; every call returns the same
}

// opening is a client's way to a target, of which it is not decided at first which one it will be.
// What the client sends goes to the target that is tried, and is kept until one has answered: at
// most maxKept, then the client waits.
type opening struct {
	edge   *Edge
	ctx    context.Context
	cancel context.CancelFunc
	client Client
	route  *route
	header tunnel.OpenHeader // what is known of the client
	target target            // that answered

	once sync.Once
	err  error
	line atomic.Pointer[line] // that is tried, and then the one that has answered
	open atomic.Bool          // it has answered

	mu    sync.Mutex // guards what follows, and all writes until one has answered
	room  *sync.Cond
	kept  []byte
	ended bool // the client sends no more
	over  bool // nothing is kept any more
}

var _ line = (*opening)(nil)

func (e *Edge) newOpening(ctx context.Context, c Client, r *route, h tunnel.OpenHeader) *opening {
	o := &opening{edge: e, client: c, route: r, header: h}
	o.ctx, o.cancel = context.WithCancel(ctx)
	o.room = sync.NewCond(&o.mu)
	return o
}

// opened finds a target. The client is accepted when one has answered, and refused with the reason
// of the last when none has.
func (o *opening) opened() error {
	o.once.Do(func() {
		err := o.find()
		o.mu.Lock()
		o.open.Store(err == nil)
		o.over, o.kept = true, nil
		o.room.Broadcast()
		o.mu.Unlock()
		if err == nil {
			err = o.client.Accept()
		} else {
			o.edge.refuse(o.client, refuseCode(err))
		}
		o.err = err
	})
	return o.err
}

// find tries one target after the other. What a target has begun to serve is not tried again.
func (o *opening) find() error {
	var failed error
	for {
		t, err := o.route.next(o.ctx)
		if err != nil {
			return o.route.sum(err, failed)
		}
		l, err := o.edge.connect(o.ctx, &t, o.about())
		if err == nil {
			o.use(l)
			err = l.opened()
		}
		if err == nil {
			o.target = t
			t.up()
			return nil
		}
		if l := o.line.Swap(nil); l != nil {
			_ = (*l).Close() // a refused stream has to be closed, too
		}
		t.release()
		if !o.route.failed(&t, err) || o.ctx.Err() != nil {
			return err
		}
		failed = telling(failed, err)
	}
}

// about returns what a target gets to know first.
func (o *opening) about() tunnel.OpenHeader {
	o.mu.Lock()
	defer o.mu.Unlock()
	h := o.header
	h.BytesFollow = len(o.kept) > 0
	return h
}

// use sends what the client has sent so far. Whether it arrives the answer says.
func (o *opening) use(l line) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line.Store(&l)
	if len(o.kept) > 0 {
		_, _ = l.Write(o.kept)
	}
	if o.ended {
		_ = l.CloseWrite()
	}
	if o.ctx.Err() != nil { // Abort may have come before the line
		_ = l.Abort()
	}
}

// release ends what opened has begun.
func (o *opening) release() {
	o.cancel()
	o.target.release()
}

// current returns the line; nil while there is none.
func (o *opening) current() line {
	if l := o.line.Load(); l != nil {
		return *l
	}
	return nil
}

// Read waits for a target's answer first.
func (o *opening) Read(p []byte) (int, error) {
	if err := o.opened(); err != nil {
		return 0, err
	}
	return o.current().Read(p)
}

// Next is Read without a copy.
func (o *opening) Next() ([]byte, error) {
	if err := o.opened(); err != nil {
		return nil, err
	}
	return o.current().Next()
}

// Write does not wait for an answer, unless much is kept already.
func (o *opening) Write(p []byte) (int, error) {
	if o.open.Load() {
		return o.current().Write(p)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.over && len(o.kept) > 0 && len(o.kept)+len(p) > maxKept {
		o.room.Wait()
	}
	switch {
	case o.open.Load():
		return o.current().Write(p)
	case o.over:
		return 0, net.ErrClosed
	}
	o.kept = append(o.kept, p...)
	if l := o.current(); l != nil {
		_, _ = l.Write(p)
	}
	return len(p), nil
}

// CloseWrite says that the client sends no more.
func (o *opening) CloseWrite() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	if l := o.current(); l != nil {
		if err := l.CloseWrite(); err != nil && o.open.Load() {
			return err
		}
	}
	return nil
}

// Abort ends the line, or the search for one.
func (o *opening) Abort() error {
	o.cancel()
	var err error
	if l := o.current(); l != nil {
		err = l.Abort()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
	o.room.Broadcast()
	return err
}

// Close ends the line, cleanly when both directions have ended.
func (o *opening) Close() error {
	if l := o.current(); l != nil {
		return l.Close()
	}
	return nil
}

// LocalAddr names the edge.
func (o *opening) LocalAddr() net.Addr { return edgeAddr{} }

// RemoteAddr names the edge, too: the target is not known at first.
func (o *opening) RemoteAddr() net.Addr { return edgeAddr{} }

// SetDeadline is not offered: who relays has its own ways to end.
func (o *opening) SetDeadline(time.Time) error { return errors.ErrUnsupported }

// SetReadDeadline is not offered.
func (o *opening) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }

// SetWriteDeadline is not offered.
func (o *opening) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }
