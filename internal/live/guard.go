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

// ErrCut is why a request ends that was cut: the cause of its context, and what its writer says.
var ErrSessionEnded = errors.New("the session has ended")

// Guard makes a request that can be cut. cut ends the context, makes the writer refuse everything,
// ends reads and writes that wait, calls sever, which closes the client's connection hard (nil: it
// carries other requests too, which go on), and closes the connection of an upgraded request. It
// does not block and must not be called once the handler has returned: Registry sees to both. The
// writer costs no copy and no allocation.
func Abortable(
	w http.ResponseWriter, r *http.Request, sever func(),
) (guarded http.ResponseWriter, under *http.Request, cut func()) {
	ctx, cancel := context.WithCancelCause(r.Context()) // which ends at the end of the request
	g := &writer{inner: w, cancel: cancel, sever: sever}
	if from, ok := w.(io.ReaderFrom); ok {
		return &readingWriter{g, from}, r.WithContext(ctx), g.end
	}
	return g, r.WithContext(ctx), g.end
}

// writer is a ResponseWriter through which nothing goes once the request was cut.
type writer struct {
	inner  http.ResponseWriter
	cancel context.CancelCauseFunc
	sever  func() // nil = the connection stays
	cut    atomic.Bool

	mu       sync.Mutex
	hijacked net.Conn // nil unless the request was upgraded
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// end cuts the request. The context goes first, so that its cause is ours, and the connection next,
// with all that is queued for it.
func (w *writer) end() {
	w.cut.Store(true)
	w.cancel(ErrSessionEnded)
	if w.sever != nil {
		w.sever()
	}
	rc := http.NewResponseController(w.inner)
	_ = rc.SetWriteDeadline(longAgo) // of HTTP/2: resets the stream, also where the client does not read
	_ = rc.SetReadDeadline(longAgo)  // ends a wait for the rest of an upload
	w.mu.Lock()
	c := w.hijacked
	w.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
}

// Header returns the header of the answer.
func (w *writer) Header() http.Header { return w.inner.Header() }

// WriteHeader does nothing after a cut.
func (w *writer) WriteHeader(status int) {
	if !w.cut.Load() {
		w.inner.WriteHeader(status)
	}
}

// Write fails after a cut.
func (w *writer) Write(p []byte) (int, error) {
	if w.cut.Load() {
		return 0, ErrSessionEnded
	}
	return w.inner.Write(p)
}

// WriteString fails after a cut.
func (w *writer) WriteString(s string) (int, error) {
	if w.cut.Load() {
		return 0, ErrSessionEnded
	}
	return io.WriteString(w.inner, s)
}

// Flush implements http.Flusher.
func (w *writer) Flush() { _ = w.FlushError() }

// FlushError is what http.ResponseController calls.
func (w *writer) FlushError() error {
	if w.cut.Load() {
		return ErrSessionEnded
	}
	return http.NewResponseController(w.inner).Flush()
}

// Hijack hands over the client's connection, which a cut closes.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := http.NewResponseController(w.inner).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	w.hijacked = c
	w.mu.Unlock()
	if w.cut.Load() { // it came before the connection was known
		_ = c.Close()
		return nil, nil, ErrSessionEnded
	}
	return c, buffered, nil
}

// Unwrap lets http.ResponseController reach what else the connection can do.
func (w *writer) Unwrap() http.ResponseWriter { return w.inner }

// readingWriter has the inner writer's ReadFrom, which may hand the bytes to the kernel.
type readingWriter struct {
	*writer
	from io.ReaderFrom
}

// ReadFrom fails after a cut; one that is under way then ends with the connection, or at its
// deadline.
func (w *readingWriter) ReadFrom(src io.Reader) (int64, error) {
	if w.cut.Load() {
		return 0, ErrSessionEnded
	}
	return w.from.ReadFrom(src)
}
