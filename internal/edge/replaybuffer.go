// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// maxReplayBytes bounds what is kept of a client's bytes until a target has accepted them; further
// bytes wait.
const maxReplayBytes = 64 << 10

// replayBuffer is a request's body whose beginning is kept while it may have to be sent to another
// target. Each attempt reads it through its own replayReader.
type replayBuffer struct {
	src io.Reader

	mu          sync.Mutex
	cond        *sync.Cond
	buffered    []byte
	err         error // error of src, after the buffered bytes
	filling     bool  // filling is set while fill reads src.
	passThrough bool  // passThrough is set once an attempt was accepted: its reader reads src itself.
	delivering  bool  // delivering is set once an attempt has a connection: a long body does not wait then.
	discarded   bool  // discarded is set once a part of the body is no longer buffered.
}

func newReplayBuffer(src io.Reader) *replayBuffer {
	b := &replayBuffer{src: src}
	b.cond = sync.NewCond(&b.mu)
	return b
}

// replayReader reads the body from its beginning. Only the newest one is read.
type replayReader struct {
	body *replayBuffer
	off  int
	err  error // error of every further read; nil = there is none
}

// newReader returns a reader for the next attempt.
func (b *replayBuffer) newReader() *replayReader { return &replayReader{body: b} }

// consumed reports whether part of the body is gone, so that it cannot be sent again.
func (b *replayBuffer) consumed() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.discarded
}

// deliver marks an attempt that has a connection with the upstream, which may still give the request
// back unprocessed: its body stays buffered until the answer, but does not wait once it is longer.
func (b *replayBuffer) deliver() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delivering = true
	b.cond.Broadcast()
}

// rewind makes the transport send the request again, with its body, when an HTTP/2 upstream has
// given it back unprocessed: by GOAWAY or REFUSED_STREAM (RFC 9113, section 8.7).
func (b *replayBuffer) rewind(r *http.Request) {
	r.GetBody = func() (io.ReadCloser, error) {
		if b.consumed() {
			return nil, errConsumed
		}
		return b.newReader(), nil
	}
}

var errConsumed = errors.New("part of the request's body is no longer kept")

// answered drops the buffered body, as there is an answer.
func (b *replayBuffer) answered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.passThrough = true
	b.cond.Broadcast()
}

// awaitAnswer marks the attempt as not yet accepted, so that its body stays buffered.
func (r *replayReader) awaitAnswer() {
	r.body.mu.Lock()
	defer r.body.mu.Unlock()
	r.body.passThrough = r.body.passThrough && r.body.discarded
}

// answered records whether the target accepted the attempt: with a nil err its reads no longer
// buffer, else they fail with err.
func (r *replayReader) answered(err error) {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case r.err != nil:
	case err != nil:
		r.err = err
	default:
		b.passThrough = true
	}
	b.cond.Broadcast()
}

// Close ends the attempt and leaves the client's body open.
func (r *replayReader) Close() error {
	r.answered(io.ErrClosedPipe)
	return nil
}

// Read returns the buffered bytes, then the rest of the body.
func (r *replayReader) Read(p []byte) (int, error) {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case r.err != nil:
			return 0, r.err
		case r.off < len(b.buffered):
			n := copy(p, b.buffered[r.off:])
			if r.off += n; b.passThrough && r.off == len(b.buffered) {
				b.buffered, r.off, b.discarded = nil, 0, true
			}
			return n, nil
		case b.err != nil:
			return 0, b.err
		case b.filling:
			b.cond.Wait()
		case !b.passThrough && len(b.buffered) >= maxReplayBytes && b.delivering:
			b.passThrough = true
		case !b.passThrough && len(b.buffered) >= maxReplayBytes:
			b.cond.Wait()
		case b.passThrough:
			b.discarded = true
			b.mu.Unlock()
			n, err := b.src.Read(p)
			b.mu.Lock()
			return n, err
		default:
			b.filling = true
			go b.fill()
			b.cond.Wait()
		}
	}
}

// fill buffers the next piece of src. It runs in its own goroutine, as the attempt that needs it
// may end before the client sends.
func (b *replayBuffer) fill() {
	buf := buffers.Get()
	defer buffers.Put(buf)
	b.mu.Lock()
	room := min(maxReplayBytes-len(b.buffered), len(buf))
	b.mu.Unlock()
	n, err := b.src.Read(buf[:room])
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buffered = append(b.buffered, buf[:n]...)
	b.err, b.filling = err, false
	b.cond.Broadcast()
}
