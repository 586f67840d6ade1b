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
	"time"
)

// ErrSessionEnded is the cause of an aborted request's context, and the error of its writer.
var ErrSessionEnded = errors.New("the session has ended")

// Abortable returns a writer and a request to serve instead of w and r, and the function that
// aborts them: it ends the context, makes the writer refuse everything, ends reads and writes that
// wait, calls closeConn, and closes the connection of an upgraded request. closeConn resets the
// client's connection; it is nil where the connection carries other requests. abort does not block
// and must not be called once the handler has returned, which Registry guarantees. The writer costs
// no copy and no allocation.
func Abortable(
	w http.ResponseWriter, r *http.Request, closeConn func(),
) (abortable http.ResponseWriter, wrapped *http.Request, abort func()) {
	ctx, cancel := context.WithCancelCause(r.Context()) // the request's end cancels its parent
	aw := &abortableWriter{inner: w, cancel: cancel, closeConn: closeConn}
	if from, ok := w.(io.ReaderFrom); ok {
		return &readerFromWriter{aw, from}, r.WithContext(ctx), aw.abort
	}
	return aw, r.WithContext(ctx), aw.abort
}

// abortableWriter is a ResponseWriter that fails once the request was aborted.
type abortableWriter struct {
	inner     http.ResponseWriter
	cancel    context.CancelCauseFunc
	closeConn func() // nil = the connection stays
	aborted   atomic.Bool

	mu       sync.Mutex
	hijacked net.Conn // nil unless the request was upgraded
}

var pastDeadline = time.Unix(1, 0)

// abort ends the context first, so that its cause is ErrSessionEnded, and then the connection with
// everything that is queued for it.
func (w *abortableWriter) abort() {
	w.aborted.Store(true)
	w.cancel(ErrSessionEnded)
	if w.closeConn != nil {
		w.closeConn()
	}
	rc := http.NewResponseController(w.inner)
	_ = rc.SetWriteDeadline(pastDeadline) // HTTP/2: resets the stream even if the client does not read
	_ = rc.SetReadDeadline(pastDeadline)  // ends a read of the request's body
	w.mu.Lock()
	c := w.hijacked
	w.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
}

// Header returns the response's header.
func (w *abortableWriter) Header() http.Header { return w.inner.Header() }

// WriteHeader does nothing after an abort.
func (w *abortableWriter) WriteHeader(status int) {
	if !w.aborted.Load() {
		w.inner.WriteHeader(status)
	}
}

// Write fails after an abort.
func (w *abortableWriter) Write(p []byte) (int, error) {
	if w.aborted.Load() {
		return 0, ErrSessionEnded
	}
	return w.inner.Write(p)
}

// WriteString fails after an abort.
func (w *abortableWriter) WriteString(s string) (int, error) {
	if w.aborted.Load() {
		return 0, ErrSessionEnded
	}
	return io.WriteString(w.inner, s)
}

// Flush implements http.Flusher.
func (w *abortableWriter) Flush() { _ = w.FlushError() }

// FlushError is what http.ResponseController calls.
func (w *abortableWriter) FlushError() error {
	if w.aborted.Load() {
		return ErrSessionEnded
	}
	return http.NewResponseController(w.inner).Flush()
}

// Hijack returns the client's connection, which an abort closes.
func (w *abortableWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := http.NewResponseController(w.inner).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	w.hijacked = c
	w.mu.Unlock()
	if w.aborted.Load() { // before abort could see the connection
		_ = c.Close()
		return nil, nil, ErrSessionEnded
	}
	return c, buffered, nil
}

// Unwrap implements the interface that http.ResponseController looks for.
func (w *abortableWriter) Unwrap() http.ResponseWriter { return w.inner }

// readerFromWriter adds the inner writer's ReadFrom, which may let the kernel copy the bytes.
type readerFromWriter struct {
	*abortableWriter
	from io.ReaderFrom
}

// ReadFrom fails after an abort. One that is in progress then ends with the connection, or at its
// deadline.
func (w *readerFromWriter) ReadFrom(src io.Reader) (int64, error) {
	if w.aborted.Load() {
		return 0, ErrSessionEnded
	}
	return w.from.ReadFrom(src)
}
