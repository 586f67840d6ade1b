// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import "sync"

const (
	// requestBufferLimit is how many bytes of a client are kept until its stream is open; the last
	// read may exceed it by one buffer.
	requestBufferLimit = 64 << 10
	requestBufferSize  = 4 << 10 // the initial size, enough for most requests
)

// requestBuffer holds what a client sent before its stream was open, so that it can be sent again
// on another session and a request can be answered by the forwarder.
type requestBuffer struct {
	buf    []byte
	eof    bool                     // the client has sent everything
	pooled *[requestBufferSize]byte // the initial memory of buf; nil: not taken from the pool
}

// requestBufferPool holds the initial memory of buffers; most connections need no more.
var requestBufferPool = sync.Pool{New: func() any { return new([requestBufferSize]byte) }}

// free returns the memory. buf must not be used afterwards.
func (e *requestBuffer) free() {
	if e.pooled != nil {
		requestBufferPool.Put(e.pooled)
	}
	e.buf, e.pooled = nil, nil
}

// add appends client input.
func (e *requestBuffer) add(p []byte) {
	if e.buf == nil {
		e.pooled = requestBufferPool.Get().(*[requestBufferSize]byte)
		e.buf = e.pooled[:0]
	}
	e.buf = append(e.buf, p...)
}

// full reports whether the limit is reached.
func (e *requestBuffer) full() bool { return len(e.buf) >= requestBufferLimit }
