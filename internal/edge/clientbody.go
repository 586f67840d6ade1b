// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// watchedBody is a client's body that remembers how far it was read, and why reading failed, so
// that the upstream is not blamed for it.
type watchedBody struct {
	io.ReadCloser
	seen    *RequestRecord
	trailer http.Header // filled in when the body has ended

	mu    sync.Mutex
	begun bool
	ended bool
	err   error
}

// Read reads the client's body.
func (b *watchedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	b.begun = true
	b.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	b.seen.moved(n, 0)
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == io.EOF { //nolint:errorlint // a Reader returns io.EOF itself
			b.ended = true
			dropFromTrailer(b.trailer)
		} else {
			b.err = err
		}
	}
	return n, err
}

// complete says whether all of the body was read; that there is none counts as well.
func (b *watchedBody) complete() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ended
}

func (b *watchedBody) broken() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil
}

// finishBody reads what is left of the client's body after an early answer, so that the connection
// can carry the next request; when that is much or does not come, the connection ends after the
// answer. Left to net/http, a body that ends after a full-duplex handler has returned is read by
// two at once, and the connection breaks without a word.
func (x *exchange) finishBody() {
	if x.body.complete() {
		return
	}
	x.body.mu.Lock()
	begun := x.body.begun
	x.body.mu.Unlock()
	answer := http.NewResponseController(x.w)
	if answer.Flush() != nil || !begun && httpguts.HeaderValuesContainsToken(x.r.Header["Expect"], "100-continue") {
		x.readNoMore() // such a client need not send its body any more
		return
	}
	_ = answer.SetReadDeadline(time.Now().Add(lingerTime))
	if _, err := io.CopyN(io.Discard, x.body, lingerBytes); err != io.EOF { //nolint:errorlint // likewise
		x.readNoMore()
		return
	}
	_ = answer.SetReadDeadline(time.Time{})
}

// readNoMore makes the request the connection's last. One that is not ours was told by keepOrClose.
func (x *exchange) readNoMore() {
	if x.conn != nil {
		x.conn.readNoMore()
	}
}

// buffers are what bodies are copied through.
var buffers = bufferPool{}

type bufferPool struct{}

var bufferStore = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// Get takes a buffer.
func (bufferPool) Get() []byte { return bufferStore.Get().(*[32 << 10]byte)[:] }

// Put gives a buffer back.
func (bufferPool) Put(b []byte) { bufferStore.Put((*[32 << 10]byte)(b)) }
