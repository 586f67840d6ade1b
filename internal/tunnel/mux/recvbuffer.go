// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"math/bits"
	"sync"
)

// chunk holds received bytes that were not read yet. Chunks have sizes of powers of two and are
// pooled.
type chunk struct {
	next *chunk
	buf  []byte
	r, w int // unread is buf[r:w]
}

const (
	minChunkBits = 10 // 1 KiB
	maxChunkBits = 16 // 64 KiB
)

var chunkPools [maxChunkBits + 1 - minChunkBits]sync.Pool

func chunkClass(n int) int {
	return min(max(bits.Len(uint(n-1)), minChunkBits), maxChunkBits) - minChunkBits
}

// newChunk returns a chunk of at least n bytes, or of the largest size.
func newChunk(n int) *chunk {
	class := chunkClass(n)
	if c, ok := chunkPools[class].Get().(*chunk); ok {
		return c
	}
	return &chunk{buf: make([]byte, 1<<(class+minChunkBits))}
}

func (c *chunk) free() {
	c.next, c.r, c.w = nil, 0, 0
	chunkPools[chunkClass(len(c.buf))].Put(c)
}

// recvBuffer holds the bytes that a stream has received and its owner has not read.
type recvBuffer struct {
	first, last *chunk
	unread      int
	lent        int // bytes of first that Next has returned
}

// appendChunk appends a filled chunk.
func (b *recvBuffer) appendChunk(c *chunk) {
	if b.last == nil {
		b.first = c
	} else {
		b.last.next = c
	}
	b.last = c
	b.unread += c.w - c.r
}

// appendCopy appends a copy of p. It fills the last chunk first, so that small frames cost little
// more memory than their bytes.
func (b *recvBuffer) appendCopy(p []byte) {
	if b.last != nil {
		n := copy(b.last.buf[b.last.w:], p)
		b.last.w += n
		b.unread += n
		p = p[n:]
	}
	for len(p) > 0 {
		c := newChunk(max(len(p), b.unread))
		c.w = copy(c.buf, p)
		b.appendChunk(c)
		p = p[c.w:]
	}
}

// head returns the oldest bytes.
func (b *recvBuffer) head() []byte { return b.first.buf[b.first.r:b.first.w:b.first.w] }

// discard removes n bytes of the oldest chunk.
func (b *recvBuffer) discard(n int) {
	c := b.first
	c.r += n
	b.unread -= n
	if c.r < c.w {
		return
	}
	if b.first = c.next; b.first == nil {
		b.last = nil
	}
	c.free()
}

// discardLent removes the bytes that Next has returned, and returns their number.
func (b *recvBuffer) discardLent() int {
	n := b.lent
	if n > 0 {
		b.lent = 0
		b.discard(n)
	}
	return n
}

// clear removes all bytes except those that are lent.
func (b *recvBuffer) clear() {
	for c := b.first; c != nil; {
		next := c.next
		if c != b.first || b.lent == 0 {
			c.free()
		}
		c = next
	}
	if b.lent == 0 {
		*b = recvBuffer{}
		return
	}
	b.first.next, b.last = nil, b.first
	b.first.w = b.first.r + b.lent
	b.unread = b.lent
}
