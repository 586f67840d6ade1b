// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/lease"
)

// Aborter ends a client's connection or its request at once.
type Aborter interface{ Abort() }

// Abortable returns a writer and a request to serve instead of w and r, and what aborts them: it
// cancels the context, fails the writer and pending reads and writes, aborts client, and closes the
// connection of an upgraded request. It does not block, and must not be called once the handler has
// returned, which Registry guarantees. client is the client's connection, which may be aborted more
// than once; it is nil if the connection carries other requests. Reads and writes check for an abort
// and for a valid lease at least every 64 KiB: after an abort at most one write that had passed the
// check goes out. An invalid lease aborts the request; nil is always valid. The checks copy and
// allocate nothing.
func Abortable(
	w http.ResponseWriter, r *http.Request, client Aborter, l *lease.Lease,
) (abortable http.ResponseWriter, wrapped *http.Request, aborter Aborter) {
	ctx, cancel := context.WithCancelCause(r.Context()) // the request's end cancels its parent
	aw := &abortableWriter{guard{inner: w, cancel: cancel, client: client, lease: l}}
	wrapped = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		wrapped.Body = &guardedBody{r.Body, &aw.guard}
	}
	if from, ok := w.(io.ReaderFrom); ok {
		return &readerFromWriter{aw, from}, wrapped, aw
	}
	return aw, wrapped, aw
}

// abortableWriter is a ResponseWriter that fails once the session may not be served any more.
type abortableWriter struct{ guard }

// Header returns the response's header.
func (w *abortableWriter) Header() http.Header { return w.inner.Header() }

// WriteHeader does nothing after the session's end.
func (w *abortableWriter) WriteHeader(status int) {
	if w.check() == nil {
		w.inner.WriteHeader(status)
	}
}

// Write fails after the session's end.
func (w *abortableWriter) Write(p []byte) (int, error) { return w.write(w.inner, p) }

// WriteString fails after the session's end.
func (w *abortableWriter) WriteString(s string) (int, error) {
	if len(s) > maxUnchecked {
		return w.Write([]byte(s))
	}
	if err := w.check(); err != nil {
		return 0, err
	}
	return io.WriteString(w.inner, s)
}

// Flush implements http.Flusher.
func (w *abortableWriter) Flush() { _ = w.FlushError() }

// FlushError is what http.ResponseController calls.
func (w *abortableWriter) FlushError() error {
	if err := w.check(); err != nil {
		return err
	}
	return http.NewResponseController(w.inner).Flush()
}

// Hijack returns the client's connection, which an abort closes. Its reads and writes, also those
// of the buffers, check the session.
func (w *abortableWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := http.NewResponseController(w.inner).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	w.hijacked = c
	w.mu.Unlock()
	if err := w.check(); err != nil { // abort may not have seen the connection
		_ = c.Close()
		return nil, nil, err
	}
	up := newUpgradedConn(c, &w.guard)
	return up, guardBuffers(buffered, up), nil
}

// Unwrap implements the interface that http.ResponseController looks for.
func (w *abortableWriter) Unwrap() http.ResponseWriter { return w.inner }

// readerFromWriter adds the inner writer's ReadFrom, which may let the kernel copy the bytes.
type readerFromWriter struct {
	*abortableWriter
	from io.ReaderFrom
}

// ReadFrom fails after the session's end, at the latest after maxUnchecked more bytes. A source
// with a file descriptor is passed to the inner writer as it is, a piece at a time, so that the
// kernel can copy it; any other is checked at each read.
func (w *readerFromWriter) ReadFrom(src io.Reader) (n int64, err error) {
	limited, ok := src.(*io.LimitedReader)
	if !ok {
		limited = &io.LimitedReader{R: src, N: 1<<63 - 1}
	}
	if _, ok := limited.R.(syscall.Conn); ok {
		return w.readPieces(limited)
	}
	if err := w.check(); err != nil {
		return 0, err
	}
	checked := &io.LimitedReader{R: &guardedReader{&w.guard, limited.R}, N: limited.N}
	n, err = w.from.ReadFrom(checked)
	limited.N = checked.N
	if err == nil {
		return n, nil
	}
	if ended := w.check(); ended != nil {
		return n, ended
	}
	return n, err
}

// readPieces passes src on in pieces of maxUnchecked bytes. The kernel copies only from an
// io.LimitedReader that has the descriptor's reader directly in it.
func (w *readerFromWriter) readPieces(src *io.LimitedReader) (n int64, err error) {
	piece := &io.LimitedReader{R: src.R}
	for src.N > 0 {
		if err := w.check(); err != nil {
			return n, err
		}
		size := min(src.N, maxUnchecked)
		piece.N = size
		copied, err := w.from.ReadFrom(piece)
		n += copied
		src.N -= size - piece.N
		if err != nil || copied < size {
			return n, err
		}
	}
	return n, nil
}

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
	client    Aborter      // client is the client's connection; nil = it carries other requests, too.
	lease     *lease.Lease // lease bounds the serving of sessions; nil = it is always valid.
	aborted   atomic.Bool
	abortOnce sync.Once

	mu       sync.Mutex
	hijacked net.Conn // hijacked is the connection of an upgraded request; else nil.
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
