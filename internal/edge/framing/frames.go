// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"errors"
	"io"
	"time"
)

// http2Preface is what an HTTP/2 client sends first (RFC 9113, section 3.4).
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// maxContinuations bounds the CONTINUATION frames of a header block. MaxHeaderBytes fit into five
// of the usual size; empty ones would cost the client nothing and the server work.
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

// frameScanner follows the frames of an HTTP/2 client. Other errors in them are left to net/http.
type frameScanner struct {
	header        [frameHeaderLen]byte
	headerLen     int // bytes of header read so far
	payloadLeft   int // bytes left of the frame's payload
	continuations int
	inHeaderBlock bool // inHeaderBlock is set while a header block is incomplete.
}

// scan scans bytes in the order in which they arrive. ended reports whether they complete a frame
// other than DATA, or the header block that it belongs to, and open whether one is incomplete after
// them; ok is false when a header block has too many frames.
func (f *frameScanner) scan(b []byte) (ended, open, ok bool) {
	for len(b) > 0 {
		if f.headerLen < frameHeaderLen {
			n := copy(f.header[f.headerLen:], b)
			f.headerLen, b = f.headerLen+n, b[n:]
			if f.headerLen < frameHeaderLen {
				break
			}
			f.payloadLeft = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
			if !f.startFrame() {
				return ended, true, false
			}
		}
		n := min(f.payloadLeft, len(b))
		f.payloadLeft, b = f.payloadLeft-n, b[n:]
		if f.payloadLeft == 0 {
			ended = ended || f.header[3] != frameData && !f.inHeaderBlock
			f.headerLen = 0
		}
	}
	switch {
	case f.inHeaderBlock, f.headerLen > 0 && f.headerLen < frameHeaderLen:
		open = true
	case f.headerLen == frameHeaderLen:
		open = f.header[3] != frameData
	}
	return ended, open, true
}

// startFrame evaluates a frame's header. A header block ends with the frame that has END_HEADERS.
// It returns false when the block has too many frames.
func (f *frameScanner) startFrame() bool {
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
	f.inHeaderBlock = f.header[4]&flagEndHeaders == 0
	return true
}

// maybePreface reports whether b is the beginning of the preface of HTTP/2, or begins with it.
func maybePreface(b []byte) bool {
	n := min(len(b), len(http2Preface))
	return string(b[:n]) == http2Preface[:n]
}

// readStart reads until it is clear whether the client speaks HTTP/2, which begins with a preface.
func (c *Conn) readStart() error {
	n := len(http2Preface)
	switch preface := maybePreface(c.unchecked); {
	case !preface && c.opt.Protocol == HTTP2:
		c.err = io.EOF // no answer would be understood
	case !preface:
		c.state = stateHead
	case len(c.unchecked) >= n:
		c.checked, c.unchecked, c.state = c.unchecked[:n:n], c.unchecked[n:], stateFrames
		c.speaksHTTP2.Store(true)
		c.stopHeadTimer()
	default:
		return c.readMore()
	}
	return nil
}

// goAwayFrame is GOAWAY without an error (RFC 9113, section 6.8).
const goAwayFrame = "\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x00"

// GoAway makes the http.Server send GOAWAY on an HTTP/2 connection, and end it after its streams: the server
// reads a GOAWAY, which it answers so. It returns false when the client has not begun to speak HTTP/2.
func (c *Conn) GoAway() bool {
	if !c.speaksHTTP2.Load() {
		return false
	}
	c.update(func() {
		c.interrupted.Store(true)
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0))
	})
	return true
}

// readFrames returns what an HTTP/2 client sends. A header block has HeadTimeout.
func (c *Conn) readFrames(p []byte) (int, error) {
	if c.interrupted.Load() {
		c.update(func() {
			c.interrupted.Store(false)
			c.goesAway = true
			_ = c.Conn.SetReadDeadline(c.readDeadlineLocked())
		})
	}
	if c.goesAway && c.frames.headerLen == 0 && !c.frames.inHeaderBlock {
		c.goesAway, c.checked = false, []byte(goAwayFrame)
		return 0, nil
	}
	n, err := c.readBuffered(p)
	if n == 0 && c.interrupted.Load() {
		return 0, nil
	}
	ended, open, ok := c.frames.scan(p[:n])
	if !ok {
		c.err = errHeaderBlock
		return 0, c.err
	}
	if ended || !open {
		c.stopHeadTimer()
	}
	if open {
		c.startHeadTimer()
	}
	return n, err
}
