// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// clientBody is a client's body that records how far it was read and whether reading failed, so
// that the upstream is not blamed for it.
type clientBody struct {
	io.ReadCloser
	record   *RequestRecord
	received *http.Request // the HTTP server's request, whose trailers are set at the end of the body
	trailer  http.Header   // the trailer that is sent on; filled in at the end of the body

	mu        sync.Mutex
	readBegan bool
	eof       bool
	err       error
}

// Read reads the client's body.
func (b *clientBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.readBegan = true
	b.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	b.record.addBytes(n, 0)
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == io.EOF { //nolint:errorlint // a Reader returns io.EOF itself
			b.eof = true
			maps.Copy(b.trailer, b.received.Trailer)
			sanitizeTrailer(b.trailer)
		} else {
			b.err = err
		}
	}
	return n, err
}

// complete reports whether all of the body was read. A nil body is complete.
func (b *clientBody) complete() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.eof
}

// readFailed reports whether reading the body failed.
func (b *clientBody) readFailed() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil
}

// drain reads the rest of the client's body after an early answer, so that the connection can carry
// the next request. It returns false when that is too much or too slow, or the client need not send
// its body any more: the connection is to end after the answer. net/http would read such a body
// concurrently with a full-duplex handler's last read and break the connection.
func (b *clientBody) drain(w http.ResponseWriter) bool {
	if b.complete() {
		return true
	}
	b.mu.Lock()
	readBegan := b.readBegan
	b.mu.Unlock()
	answer := http.NewResponseController(w)
	if answer.Flush() != nil ||
		!readBegan && httpguts.HeaderValuesContainsToken(b.received.Header["Expect"], "100-continue") {
		return false
	}
	_ = answer.SetReadDeadline(time.Now().Add(lingerTime))
	if _, err := io.CopyN(io.Discard, b, lingerBytes); err != io.EOF { //nolint:errorlint // likewise
		return false
	}
	_ = answer.SetReadDeadline(time.Time{})
	return true
}

// buffers are the copy buffers of bodies.
var buffers = bufferPool{}

type bufferPool struct{}

var bufferStore = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Get returns a buffer.
func (bufferPool) Get() []byte { return bufferStore.Get().(*[32 << 10]byte)[:] }

// Put returns a buffer to the pool.
func (bufferPool) Put(b []byte) { bufferStore.Put((*[32 << 10]byte)(b)) }
