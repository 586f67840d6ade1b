// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

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
