// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"bytes"
	"math"
)

const (
	// maxChunkLine bounds a chunk's size line with its extensions, maxTrailer the trailer section,
	// in bytes.
	maxChunkLine = 256
	maxTrailer   = 8 << 10
)

// chunkScanner finds the end of a chunked body.
type chunkScanner struct {
	state      chunkState
	dataLeft   int64 // bytes left of the chunk's data
	digits     int
	lineLen    int  // bytes of the line so far
	trailerLen int  // bytes of the trailer section so far
	afterCR    bool // afterCR reports that the last byte was CR.
}

type chunkState int

const (
	chunkSize chunkState = iota
	chunkExtension
	chunkData
	chunkDataEnd
	chunkTrailer
)

// scan returns how many bytes belong to the body and whether it ends there. ok is false where
// programs may read it differently; used then counts the bytes before the fault.
func (c *chunkScanner) scan(b []byte) (used int, done, ok bool) {
	for i := 0; i < len(b); {
		if c.state == chunkData {
			n := min(int64(len(b)-i), c.dataLeft)
			if c.dataLeft -= n; c.dataLeft == 0 {
				c.state = chunkDataEnd
			}
			i += int(n)
			continue
		}
		done, ok := c.nextByte(b[i])
		if !ok {
			return i, false, false
		}
		i++
		if done {
			return i, true, true
		}
	}
	return len(b), false, true
}

// nextByte scans a byte outside of data.
func (c *chunkScanner) nextByte(b byte) (done, ok bool) {
	if c.afterCR { // the end of a line: nothing else may stand here
		c.afterCR = false
		return c.endLine(), b == '\n'
	}
	if b == '\r' {
		c.afterCR = true
		return false, c.state != chunkSize || c.digits > 0
	}
	if b < ' ' && b != '\t' || b == 0x7f {
		return false, false
	}
	switch c.lineLen++; c.state {
	case chunkSize:
		return false, c.sizeByte(b)
	case chunkExtension:
		return false, c.lineLen <= maxChunkLine
	case chunkTrailer:
		c.trailerLen++
		return false, c.trailerLen <= maxTrailer && (c.lineLen > 1 || b != ' ' && b != '\t')
	}
	return false, false // after data
}

// sizeByte scans a byte of a chunk's size.
func (c *chunkScanner) sizeByte(b byte) bool {
	var digit int64
	switch {
	case '0' <= b && b <= '9':
		digit = int64(b - '0')
	case 'a' <= b && b <= 'f':
		digit = int64(b-'a') + 10
	case 'A' <= b && b <= 'F':
		digit = int64(b-'A') + 10
	case (b == ';' || b == ' ' || b == '\t') && c.digits > 0:
		c.state = chunkExtension
		return true
	default:
		return false
	}
	c.digits++
	if c.dataLeft > math.MaxInt64>>4 || c.digits > 16 {
		return false
	}
	c.dataLeft = c.dataLeft<<4 | digit
	return true
}

// endLine starts the next part after a line. It reports whether the line was the body's last.
func (c *chunkScanner) endLine() (done bool) {
	empty := c.lineLen == 0
	c.lineLen = 0
	switch c.state {
	case chunkSize, chunkExtension:
		c.digits = 0
		if c.state = chunkData; c.dataLeft == 0 {
			c.state = chunkTrailer
		}
	case chunkDataEnd:
		c.state = chunkSize
	case chunkTrailer:
		return empty
	}
	return false
}

func (c *Conn) readChunks(p []byte) (int, error) {
	n, err := c.readBuffered(p)
	used, done, ok := c.chunks.scan(p[:n])
	switch {
	case !ok:
		c.err = errFraming
		err = nil // it comes with the next read, when there is something before it
	case done:
		c.state = stateHead
		c.unchecked = append(bytes.Clone(p[used:n]), c.unchecked...)
	}
	return used, err
}
