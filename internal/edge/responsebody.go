// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"io"
	"maps"
	"net/http"
	"sync"
)

// answer lets the client have at once what has come of the upstream's answer, and in one piece: it
// goes out before more is waited for, so that a short answer is one write, head and body. (The
// proxy's own way to flush sends each head on its own, by a timer and a goroutine for every
// answer.)
func (x *exchange) answer(res *http.Response) {
	// The length of a 304 is that of what it does not carry. The HTTP/2 transport waits for it.
	if res.StatusCode == http.StatusNotModified {
		_ = res.Body.Close()
		res.Body = http.NoBody
	}
	if res.Body == http.NoBody {
		return
	}
	body := &answerBody{ReadCloser: res.Body, res: res, stream: x.stream}
	res.Body = body
	// An empty body of the HTTP/2 transport is not http.NoBody. Flushed before its end, the header
	// would not end the stream, as clients of gRPC expect of a status without a message.
	if res.ContentLength == 0 {
		return
	}
	body.out = http.NewResponseController(x.out)
	if res.ContentLength < 0 {
		res.ContentLength = 0 // read by the proxy only, which would flush after each piece
	}
}

// answerBody is the body of an upstream's answer.
type answerBody struct {
	io.ReadCloser
	res    *http.Response
	stream *upstream                // nil: what comes of the body may have to be waited for each time
	out    *http.ResponseController // nil: nothing is flushed before the end
}

// Read reads from the upstream.
func (b *answerBody) Read(p []byte) (int, error) {
	switch {
	case b.out == nil:
		return b.ReadCloser.Read(p)
	case b.stream == nil:
		_ = b.out.Flush() // a client that is gone fails the next write
		return b.ReadCloser.Read(p)
	}
	b.stream.before.set(b)
	n, err := b.ReadCloser.Read(p)
	b.stream.before.unset(b)
	return n, err
}

// Close removes from the trailers, which have come by now, what only the edge says.
func (b *answerBody) Close() error {
	err := b.ReadCloser.Close()
	maps.DeleteFunc(b.res.Trailer, isReserved)
	return err
}

// flusher flushes the answer that is being read from a stream before the stream is read.
type flusher struct {
	mu   sync.Mutex
	body *answerBody // that somebody reads; nil: nobody does
}

func (f *flusher) set(b *answerBody) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.body = b
}

// unset returns when nobody flushes b, and nobody will: its owner goes on to write.
func (f *flusher) unset(b *answerBody) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.body == b { // else it was put aside with its end, and the stream may serve another request
		f.body = nil
	}
}

func (f *flusher) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.body != nil {
		_ = f.body.out.Flush()
	}
}
