// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"io"
	"maps"
	"net/http"
	"sync"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficerror"
)

// checkAnswer checks what net/http reads, but does not write.
func checkAnswer(res *http.Response) error {
	if res.StatusCode < 100 || res.StatusCode > 999 {
		return trafficerror.AnswerErrorf("has the status %03d, which HTTP does not know", res.StatusCode)
	}
	for name := range res.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return trafficerror.AnswerErrorf("has a header whose name HTTP does not allow, %q", account.Shorten(name))
		}
	}
	return nil
}

// prepareBody makes the proxy flush what has come of the answer before it waits for more, so that a
// short answer is one write, head and body. The proxy's own flushing sends each head on its own,
// with a timer and a goroutine for every answer.
func prepareBody(res *http.Response, client http.ResponseWriter, flusher *flusher) {
	// The Content-Length of a 304 is not that of its body. The HTTP/2 transport would wait for one.
	if res.StatusCode == http.StatusNotModified {
		_ = res.Body.Close()
		res.Body = http.NoBody
	}
	if res.Body == http.NoBody {
		return
	}
	body := &responseBody{ReadCloser: res.Body, res: res, flusher: flusher}
	res.Body = body
	// An empty body of the HTTP/2 transport is not http.NoBody. Flushed before its end, the header
	// would not end the stream, as clients of gRPC expect of a status without a message.
	if res.ContentLength == 0 {
		return
	}
	body.client = http.NewResponseController(client)
	if res.ContentLength < 0 {
		res.ContentLength = 0 // read by the proxy only, which would flush after each piece
	}
}

// responseBody is the body of an upstream's answer.
type responseBody struct {
	io.ReadCloser
	res     *http.Response
	flusher *flusher                 // flusher of the answer's connection; nil: every read may have to wait
	client  *http.ResponseController // controller of the client's answer; nil: nothing is flushed before the end
}

// Read reads from the upstream.
func (b *responseBody) Read(p []byte) (int, error) {
	switch {
	case b.client == nil:
		return b.ReadCloser.Read(p)
	case b.flusher == nil:
		_ = b.client.Flush() // a client that is gone fails the next write
		return b.ReadCloser.Read(p)
	}
	b.flusher.set(b)
	n, err := b.ReadCloser.Read(p)
	b.flusher.unset(b)
	return n, err
}

// Close removes reserved headers from the trailers, which are complete by now.
func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	maps.DeleteFunc(b.res.Trailer, isReservedHeader)
	return err
}

// flusher flushes the answer that is being read from a connection before that is read.
type flusher struct {
	mu   sync.Mutex
	body *responseBody // body that is being read; nil: none
}

// set makes b the body that flush flushes; nil = none.
func (f *flusher) set(b *responseBody) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.body = b
}

// unset ends the flushing of b. It returns when no flush of b is in progress: its owner writes
// next.
func (f *flusher) unset(b *responseBody) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.body == b { // else b has ended, and the connection may serve another request
		f.body = nil
	}
}

// flush flushes the body that was set.
func (f *flusher) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.body != nil {
		_ = f.body.client.Flush()
	}
}
