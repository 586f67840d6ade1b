// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import "sync"

const (
	// bytes of a client that are kept until its stream is open; what is read last may be more by one
	// buffer
	earlyLimit = 64 << 10
	earlyRead  = 4 << 10 // what a request usually fits in
)

// early is what a client sent before its stream was open. It is kept so that it can be sent again
// on another session, and so that a request can be answered here.
type early struct {
	buf   []byte
	eof   bool             // the client has sent everything
	first *[earlyRead]byte // buf's memory until that grows; nil = none was taken
}

// firstBuffers are what early begins with: most connections need no more.
var firstBuffers = sync.Pool{New: func() any { return new([earlyRead]byte) }}

// forget gives the memory back. Nothing of buf is used after it.
func (e *early) forget() {
	if e.first != nil {
		firstBuffers.Put(e.first)
	}
	e.buf, e.first = nil, nil
}

// add keeps what the client has sent.
func (e *early) add(p []byte) {
	if e.buf == nil {
		e.first = firstBuffers.Get().(*[earlyRead]byte)
		e.buf = e.first[:0]
	}
	e.buf = append(e.buf, p...)
}

// full says that no more is read until it is certain where it goes.
func (e *early) full() bool { return len(e.buf) >= earlyLimit }
