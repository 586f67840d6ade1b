// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import "sync"

const (
	// bytes of a client that are kept until its stream is open; what is read last may be more by one
	// buffer
	requestBufferLimit = 64 << 10
	requestBufferSize  = 4 << 10 // what a request usually fits in
)

// requestBuffer is what a client sent before its stream was open. It is kept so that it can be sent again
// on another session, and so that a request can be answered here.
type requestBuffer struct {
	buf    []byte
	eof    bool                     // the client has sent everything
	pooled *[requestBufferSize]byte // buf's memory until that grows; nil = none was taken
}

// requestBufferPool are what early begins with: most connections need no more.
var requestBufferPool = sync.Pool{New: func() any { return new([requestBufferSize]byte) }}

// free gives the memory back. Nothing of buf is used after it.
func (e *requestBuffer) free() {
	if e.pooled != nil {
		requestBufferPool.Put(e.pooled)
	}
	e.buf, e.pooled = nil, nil
}

// add keeps what the client has sent.
func (e *requestBuffer) add(p []byte) {
	if e.buf == nil {
		e.pooled = requestBufferPool.Get().(*[requestBufferSize]byte)
		e.buf = e.pooled[:0]
	}
	e.buf = append(e.buf, p...)
}

// full says that no more is read until it is certain where it goes.
func (e *requestBuffer) full() bool { return len(e.buf) >= requestBufferLimit }
