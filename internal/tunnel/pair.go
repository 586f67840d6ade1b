// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/connread"
	"github.com/fairlead-dev/fairlead/internal/tunnel/mux"
)

// pairEndTimeout is how long the raw connection of a stream that was reset, or that both sides have
// ended before their link, may deliver what was sent before.
const pairEndTimeout = time.Second

// rawEndTimeout is how long after the end of a raw connection that of its stream may come.
const rawEndTimeout = 30 * time.Second

var errCut = errors.New("something on the way has cut the connection of a sealed stream")

// pair is the raw connection that carries the bytes of a sealed stream. The header, OPENED and each
// end stay in the multiplexer: an end of the raw connection counts only once the multiplexer's stream
// has ended, too, and the end of that one, or of its link, ends the pair.
type pair struct {
	conn *tunedConn
	tcp  *net.TCPConn // tcp is what is below conn.
	st   *mux.Stream
	pool *pairPool // pool is where the connection was parked.

	rawEndTimeout time.Duration
	unread        atomic.Int64 // unread counts bytes that were read ahead.

	ended     atomic.Pointer[error] // ended is why the pair has ended; nil while it lives.
	unlink    context.CancelFunc    // unlink ends the watch of the link.
	isCutting atomic.Bool           // isCutting is set when the raw connection will be closed soon.
	isClosed  atomic.Bool           // isClosed is set when it was.
}

// newPair returns the pair of a stream of l that takes a parked connection. Until it is closed, the
// kernel resets the connection when this process is killed.
func newPair(l *link, st *mux.Stream, conn *tunedConn) *pair {
	p := &pair{conn: conn, tcp: conn.Conn.(*net.TCPConn), st: st, pool: l.pairs,
		rawEndTimeout: rawEndTimeout}
	p.pool.budget.inUse.Add(1)
	_ = p.tcp.SetLinger(0)
	allowSlowReader(p.tcp)
	broken := func() {
		//nolint:errorlint // a broken connection is not the end of a stream
		p.end(fmt.Errorf("the connection broke: %v", context.Cause(l.ctx)))
		p.closeConn()
	}
	stop := context.AfterFunc(l.ctx, func() {
		if st.HasEnded() { // what was sent before both ends may still be on the way
			time.AfterFunc(pairEndTimeout, broken)
			return
		}
		broken()
	})
	p.unlink = func() { stop() }
	st.OnReset(p)
	return p
}

// end records why the pair has ended. Only the first reason counts.
func (p *pair) end(err error) (first bool) { return p.ended.CompareAndSwap(nil, &err) }

// endError returns why the pair has ended, or nil.
func (p *pair) endError() error {
	if err := p.ended.Load(); err != nil {
		return *err
	}
	return nil
}

// Read reads what the peer sent.
func (p *pair) Read(b []byte) (int, error) {
	n, err := p.conn.Read(b)
	p.unread.Store(int64(p.conn.unread()))
	return n, p.readError(err)
}

// next is Read without a copy.
func (p *pair) next() ([]byte, error) {
	b, err := p.conn.next()
	p.unread.Store(0)
	return b, p.readError(err)
}

// readError returns the error of a read. At the end of input it waits for that of the multiplexer's
// stream, which tells an end from an abort.
func (p *pair) readError(err error) error {
	switch {
	case err == nil:
		return nil
	case !connread.IsEOF(err):
		if p.endError() == nil && errors.Is(err, syscall.ECONNRESET) {
			p.pool.recordCut()
		}
		return cmp.Or(p.endError(), err)
	}
	if ended := p.endError(); ended != nil {
		return ended
	}
	began, expiry := time.Now(), time.AfterFunc(p.rawEndTimeout, p.lose)
	defer expiry.Stop()
	n, err := p.st.Read(make([]byte, 1))
	switch {
	case n == 0 && connread.IsEOF(err):
		return err
	case n == 0:
		if time.Since(began) >= p.rawEndTimeout/2 { // or the peer has been first to notice
			p.pool.recordCut()
		}
		return cmp.Or(p.endError(), err)
	}
	return errors.New("the peer sent bytes of a stream beside its pair")
}

// Write sends b. Write(nil) returns why the pair has ended.
func (p *pair) Write(b []byte) (int, error) {
	if err := p.endError(); err != nil {
		return 0, err
	}
	n, err := p.tcp.Write(b)
	if err != nil {
		err = cmp.Or(p.endError(), err)
	}
	return n, err
}

// CloseWrite ends the direction towards the peer.
func (p *pair) CloseWrite() error { return cmp.Or(p.endError(), p.tcp.CloseWrite()) }

// HandleReset ends the pair because the peer has reset the stream. What it sent before can still be
// read for pairEndTimeout.
func (p *pair) HandleReset(err *mux.ResetError) {
	if p.end(err) {
		_ = p.tcp.SetWriteDeadline(time.Unix(1, 0))
		p.cutLater()
	}
}

// abort ends the pair. What was written before arrives, if the peer reads it within pairEndTimeout.
func (p *pair) abort() {
	if p.end(net.ErrClosed) {
		_ = p.tcp.CloseWrite()
		_ = p.tcp.SetDeadline(time.Unix(1, 0))
		p.cutLater()
	}
}

func (p *pair) cutLater() {
	if p.isCutting.CompareAndSwap(false, true) {
		time.AfterFunc(pairEndTimeout, p.cut)
	}
}

// lose ends a pair whose raw connection has ended on the way.
func (p *pair) lose() {
	if p.end(errCut) {
		_ = p.st.Reset(uint32(Aborted))
		p.cut()
	}
}

// cut closes the raw connection with a reset.
func (p *pair) cut() {
	p.unlink()
	p.closeConn()
}

func (p *pair) closeConn() {
	if p.isClosed.CompareAndSwap(false, true) {
		_ = p.conn.Close()
		p.pool.budget.inUse.Add(-1)
		p.pool.release()
	}
}

// close closes the raw connection, both of whose directions have ended. The kernel sends what is left.
func (p *pair) close() {
	if p.end(net.ErrClosed) {
		p.unlink()
		_ = p.tcp.SetLinger(-1)
		p.closeConn()
	}
}

// socket returns the raw connection, or nil while bytes that were read ahead are not taken, or once
// the pair has ended.
func (p *pair) socket() *net.TCPConn {
	if p.unread.Load() > 0 || p.ended.Load() != nil {
		return nil
	}
	return p.tcp
}
