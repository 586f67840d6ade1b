// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"encoding/binary"
	"fmt"
)

// What frames of HTTP/2 are made of (RFC 9113).
const (
	h2Preface    = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	h2HeaderSize = 9

	h2Data         = 0
	h2Headers      = 1
	h2ResetStream  = 3
	h2Settings     = 4
	h2PushPromise  = 5
	h2Continuation = 9

	h2EndStream  = 0x01
	h2EndHeaders = 0x04
	h2Padded     = 0x08
	h2Priority   = 0x20
)

// h2Frame is the header of a frame.
type h2Frame struct {
	kind   byte
	flags  byte
	stream uint32
	length int64
}

func parseH2Frame(b []byte) h2Frame {
	return h2Frame{length: int64(b[0])<<16 | int64(b[1])<<8 | int64(b[2]), kind: b[3], flags: b[4],
		stream: binary.BigEndian.Uint32(b[5:]) &^ (1 << 31)}
}

func (f *h2Frame) has(flag byte) bool { return f.flags&flag != 0 }

var h2ErrorNames = []string{"NO_ERROR", "PROTOCOL_ERROR", "INTERNAL_ERROR", "FLOW_CONTROL_ERROR", "SETTINGS_TIMEOUT",
	"STREAM_CLOSED", "FRAME_SIZE_ERROR", "REFUSED_STREAM", "CANCEL", "COMPRESSION_ERROR", "CONNECT_ERROR",
	"ENHANCE_YOUR_CALM", "INADEQUATE_SECURITY", "HTTP_1_1_REQUIRED"}

func h2ErrorName(code uint32) string {
	if code < uint32(len(h2ErrorNames)) {
		return h2ErrorNames[code]
	}
	return fmt.Sprintf("error %d", code)
}

// frameTracker tells the payload of HTTP/2's DATA frames from all else.
type frameTracker struct {
	preface int // bytes of the client's preface that are to come
	header  [h2HeaderSize]byte
	have    int // bytes of header
	rest    int // bytes left of the frame's payload
	isData  bool
}

// next returns how many of p's first bytes, at least one, are payload of a DATA frame, or else are
// not.
func (t *frameTracker) next(p []byte) (n int, isData bool) {
	switch {
	case t.preface > 0:
		n = min(t.preface, len(p))
		t.preface -= n
		return n, false
	case t.rest > 0:
		n = min(t.rest, len(p))
		t.rest -= n
		return n, t.isData
	}
	n = copy(t.header[t.have:], p)
	if t.have += n; t.have == h2HeaderSize {
		t.have = 0
		t.rest = int(t.header[0])<<16 | int(t.header[1])<<8 | int(t.header[2])
		t.isData = t.header[3] == h2Data
	}
	return n, false
}

// advance passes over p.
func (t *frameTracker) advance(p []byte) {
	for len(p) > 0 {
		n, _ := t.next(p)
		p = p[n:]
	}
}
