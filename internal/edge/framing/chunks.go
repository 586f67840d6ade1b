// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import "math"

// maxChunkLine bounds the line before a chunk, with its extensions, and maxTrailer all that follows
// the last.
const (
	maxChunkLine = 256
	maxTrailer   = 8 << 10
)

// chunks follows a chunked body to its end.
type chunks struct {
	at     chunkPart
	left   int64 // of the chunk's data
	digits int
	line   int  // bytes of the line so far
	total  int  // bytes of the trailer so far
	cr     bool // the last byte was CR
}

type chunkPart int

const (
	chunkSize chunkPart = iota
	chunkExtension
	chunkData
	chunkDataEnd
	chunkTrailer
)

// scan returns how many bytes belong to the body, whether it has ended there, and whether every
// program reads them alike; used is then what came before the fault.
func (c *chunks) scan(b []byte) (used int, done, ok bool) {
	for i := 0; i < len(b); {
		if c.at == chunkData {
			n := min(int64(len(b)-i), c.left)
			if c.left -= n; c.left == 0 {
				c.at = chunkDataEnd
			}
			i += int(n)
			continue
		}
		done, ok := c.next(b[i])
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

// next takes a byte outside of data.
func (c *chunks) next(b byte) (done, ok bool) {
	if c.cr { // the end of a line: nothing else may stand here
		c.cr = false
		return c.endLine(), b == '\n'
	}
	if b == '\r' {
		c.cr = true
		return false, c.at != chunkSize || c.digits > 0
	}
	if b < ' ' && b != '\t' || b == 0x7f {
		return false, false
	}
	switch c.line++; c.at {
	case chunkSize:
		return false, c.size(b)
	case chunkExtension:
		return false, c.line <= maxChunkLine
	case chunkTrailer:
		c.total++
		return false, c.total <= maxTrailer && (c.line > 1 || b != ' ' && b != '\t')
	}
	return false, false // after data
}

func (c *chunks) size(b byte) bool {
	var digit int64
	switch {
	case '0' <= b && b <= '9':
		digit = int64(b - '0')
	case 'a' <= b && b <= 'f':
		digit = int64(b-'a') + 10
	case 'A' <= b && b <= 'F':
		digit = int64(b-'A') + 10
	case (b == ';' || b == ' ' || b == '\t') && c.digits > 0:
		c.at = chunkExtension
		return true
	default:
		return false
	}
	c.digits++
	if c.left > math.MaxInt64>>4 || c.digits > 16 {
		return false
	}
	c.left = c.left<<4 | digit
	return true
}

// endLine begins what follows a line, and says whether that was the body's last.
func (c *chunks) endLine() (done bool) {
	empty := c.line == 0
	c.line = 0
	switch c.at {
	case chunkSize, chunkExtension:
		c.digits = 0
		if c.at = chunkData; c.left == 0 {
			c.at = chunkTrailer
		}
	case chunkDataEnd:
		c.at = chunkSize
	case chunkTrailer:
		return empty
	}
	return false
}
