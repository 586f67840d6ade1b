// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"io"
	"sync"
)

// maxKept is how much of what a client sends is kept until somebody has taken it; more waits.
const maxKept = 64 << 10

// replay is a request's body, of which the beginning is kept while it may have to be sent to
// somebody else. Each attempt reads it through a reader of its own.
type replay struct {
	src io.Reader

	mu      sync.Mutex
	change  *sync.Cond
	kept    []byte
	err     error // of src, after what is kept
	reading bool  // somebody reads src
	direct  bool  // an attempt was taken, and reads src itself
	lost    bool  // what it has read is not kept
}

func newReplay(src io.Reader) *replay {
	b := &replay{src: src}
	b.change = sync.NewCond(&b.mu)
	return b
}

// attempt reads the body from its beginning. Only the newest one is read.
type attempt struct {
	body *replay
	off  int
	err  error // why it is over
}

func (b *replay) attempt() *attempt { return &attempt{body: b} }

// begun says that a part of the body is gone: it cannot be sent again.
func (b *replay) begun() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost
}

// begin says that the attempt goes to somebody who has not taken it yet, whatever was before.
func (a *attempt) begin() {
	a.body.mu.Lock()
	defer a.body.mu.Unlock()
	a.body.direct = a.body.direct && a.body.lost
}

// settle says whether somebody has taken the attempt: then it reads on without keeping anything.
// Otherwise its reads fail with err.
func (a *attempt) settle(err error) {
	b := a.body
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case a.err != nil:
	case err != nil:
		a.err = err
	default:
		b.direct = true
	}
	b.change.Broadcast()
}

// Close ends the attempt and leaves the client's body alone.
func (a *attempt) Close() error {
	a.settle(io.ErrClosedPipe)
	return nil
}

// Read returns what is kept, and then what comes.
func (a *attempt) Read(p []byte) (int, error) {
	b := a.body
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case a.err != nil:
			return 0, a.err
		case a.off < len(b.kept):
			n := copy(p, b.kept[a.off:])
			if a.off += n; b.direct && a.off == len(b.kept) {
				b.kept, a.off, b.lost = nil, 0, true
			}
			return n, nil
		case b.err != nil:
			return 0, b.err
		case b.reading || !b.direct && len(b.kept) >= maxKept:
			b.change.Wait()
		case b.direct:
			b.lost = true
			b.mu.Unlock()
			n, err := b.src.Read(p)
			b.mu.Lock()
			return n, err
		default:
			b.reading = true
			go b.fill()
			b.change.Wait()
		}
	}
}

// fill reads a piece to keep. It is not the attempt that reads: that one may be over before the
// client sends.
func (b *replay) fill() {
	buf := buffers.Get()
	defer buffers.Put(buf)
	b.mu.Lock()
	room := min(maxKept-len(b.kept), len(buf))
	b.mu.Unlock()
	n, err := b.src.Read(buf[:room])
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = append(b.kept, buf[:n]...)
	b.err, b.reading = err, false
	b.change.Broadcast()
}
