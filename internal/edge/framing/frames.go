// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import "errors"

// preface is what an HTTP/2 client sends first (RFC 9113, section 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// maxContinuations is how many CONTINUATION frames a header block may have. MaxHeaderBytes fit into
// five of the usual size; empty ones would cost a client nothing and the server work.
const maxContinuations = 64

var errHeaderBlock = errors.New("a header block of more CONTINUATION frames than are allowed")

// Frames of HTTP/2 that matter here (RFC 9113, section 6), and a flag.
const (
	frameHeaderLen    = 9
	frameData         = 0x0
	frameHeaders      = 0x1
	frameContinuation = 0x9
	flagEndHeaders    = 0x4
)

// frames follows the frames of an HTTP/2 client. What is wrong with them otherwise, net/http finds.
type frames struct {
	header        [frameHeaderLen]byte
	have          int // bytes of header
	left          int // of the frame's payload
	continuations int
	block         bool // a header block has begun and its last frame not come
}

// scan takes bytes in the order in which they arrive. ended reports whether a frame other than
// DATA, or the header block that it belongs to, was completed by them, and open whether one is
// incomplete after them; ok is false when a header block has too many frames.
func (f *frames) scan(b []byte) (ended, open, ok bool) {
	for len(b) > 0 {
		if f.have < frameHeaderLen {
			n := copy(f.header[f.have:], b)
			f.have, b = f.have+n, b[n:]
			if f.have < frameHeaderLen {
				break
			}
			f.left = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
			if !f.begin() {
				return ended, true, false
			}
		}
		n := min(f.left, len(b))
		f.left, b = f.left-n, b[n:]
		if f.left == 0 {
			ended = ended || f.header[3] != frameData && !f.block
			f.have = 0
		}
	}
	switch {
	case f.block, f.have > 0 && f.have < frameHeaderLen:
		open = true
	case f.have == frameHeaderLen:
		open = f.header[3] != frameData
	}
	return ended, open, true
}

// begin notes what a frame's header announces. The block ends with the frame that has END_HEADERS,
// when that is complete.
func (f *frames) begin() bool {
	switch f.header[3] {
	case frameHeaders:
		f.continuations = 0
	case frameContinuation:
		if f.continuations++; f.continuations > maxContinuations {
			return false
		}
	default:
		return true
	}
	f.block = f.header[4]&flagEndHeaders == 0
	return true
}
