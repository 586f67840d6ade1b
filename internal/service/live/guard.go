// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/lease"
)

// ErrSessionEnded is the cause of an aborted request's context, and the error of its writer, its
// body and its upgraded connection.
var ErrSessionEnded = errors.New("the session has ended")

// maxUnchecked is how many bytes are passed on at most, in either direction, between two checks of
// the session.
const maxUnchecked = 64 << 10

// guard stops the bytes of one request once its session may not be served any more. It is safe for
// concurrent use.
type guard struct {
	inner     http.ResponseWriter
	cancel    context.CancelCauseFunc
	client    Aborter      // nil = the connection stays
	lease     *lease.Lease // nil = always valid
	aborted   atomic.Bool
	abortOnce sync.Once

	mu       sync.Mutex
	hijacked net.Conn // nil unless the request was upgraded
}

// mayServe reports whether the request's session may be served now. It alone decides that, for all
// that is passed on in either direction, so a process that was paused between two pieces asks it
// before the next one. It takes no lock and does not allocate.
func (g *guard) mayServe() bool { return !g.aborted.Load() && g.lease.Valid() }

// check aborts the request and returns ErrSessionEnded if its session may not be served. It must
// not be called once the handler has returned, except for an upgraded connection.
func (g *guard) check() error {
	if g.mayServe() {
		return nil
	}
	g.Abort()
	return ErrSessionEnded
}

var pastDeadline = time.Unix(1, 0)

// Abort ends the request. It returns when that is done, also where another goroutine does it.
func (g *guard) Abort() {
	g.aborted.Store(true)
	g.abortOnce.Do(g.breakOff)
}

// breakOff ends the context first, so that its cause is ErrSessionEnded, and then the connection
// with everything that is queued for it.
func (g *guard) breakOff() {
	g.cancel(ErrSessionEnded)
	if g.client != nil {
		g.client.Abort()
	}
	rc := http.NewResponseController(g.inner)
	_ = rc.SetWriteDeadline(pastDeadline) // HTTP/2: resets the stream even if the client does not read
	_ = rc.SetReadDeadline(pastDeadline)  // ends a read of the request's body
	g.mu.Lock()
	c := g.hijacked
	g.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
}

// write writes p to the client and checks the session before each maxUnchecked bytes.
func (g *guard) write(to io.Writer, p []byte) (n int, err error) {
	for {
		if err := g.check(); err != nil {
			return n, err
		}
		piece := p[n:min(len(p), n+maxUnchecked)]
		written, err := to.Write(piece)
		n += written
		if err != nil || written < len(piece) || n == len(p) {
			return n, err
		}
	}
}

// read reads at most maxUnchecked bytes, and drops what comes when the session may not be served
// any more: it may have ended while the read waited. It ends the request's context then, and does
// not abort: a body may be read when the handler has returned, and its connection carries another
// request.
func (g *guard) read(from io.Reader, p []byte) (n int, err error) {
	if g.mayServe() {
		n, err = from.Read(p[:min(len(p), maxUnchecked)])
	}
	if !g.mayServe() {
		g.cancel(ErrSessionEnded)
		return 0, ErrSessionEnded
	}
	return n, err
}

// guardedReader checks the session before and after each read.
type guardedReader struct {
	guard *guard
	from  io.Reader
}

// Read fails after the session's end.
func (r *guardedReader) Read(p []byte) (int, error) { return r.guard.read(r.from, p) }

// guardedBody is the body of a request.
type guardedBody struct {
	io.ReadCloser
	guard *guard
}

// Read fails after the session's end.
func (b *guardedBody) Read(p []byte) (int, error) { return b.guard.read(b.ReadCloser, p) }
