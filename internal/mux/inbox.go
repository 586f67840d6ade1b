// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"math/bits"
	"sync"
)

// chunk holds bytes that arrived and were not read yet. Chunks come in powers of two, from a pool.
type chunk struct {
	next *chunk
	buf  []byte
	r, w int // unread is buf[r:w]
}

const (
	leastChunk = 10 // 1 KiB
	mostChunk  = 16 // 64 KiB
)

var chunks [mostChunk + 1 - leastChunk]sync.Pool

func chunkClass(n int) int { return min(max(bits.Len(uint(n-1)), leastChunk), mostChunk) - leastChunk }

// newChunk returns a chunk for n bytes, or for as many as fit in the largest.
func newChunk(n int) *chunk {
	class := chunkClass(n)
	if c, ok := chunks[class].Get().(*chunk); ok {
		return c
	}
	return &chunk{buf: make([]byte, 1<<(class+leastChunk))}
}

func (c *chunk) free() {
	c.next, c.r, c.w = nil, 0, 0
	chunks[chunkClass(len(c.buf))].Put(c)
}

// inbox is what a stream has to read.
type inbox struct {
	first, last *chunk
	unread      int
	lent        int // bytes of first that Next has handed out
}

// add appends a chunk that was filled.
func (b *inbox) add(c *chunk) {
	if b.last == nil {
		b.first = c
	} else {
		b.last.next = c
	}
	b.last = c
	b.unread += c.w - c.r
}

// copyIn appends bytes. They fill up what is there first: small frames must not cost more memory
// than their bytes, but for the last chunk.
func (b *inbox) copyIn(p []byte) {
	if b.last != nil {
		n := copy(b.last.buf[b.last.w:], p)
		b.last.w += n
		b.unread += n
		p = p[n:]
	}
	for len(p) > 0 {
		c := newChunk(max(len(p), b.unread))
		c.w = copy(c.buf, p)
		b.add(c)
		p = p[c.w:]
	}
}

// head returns the oldest bytes.
func (b *inbox) head() []byte { return b.first.buf[b.first.r:b.first.w:b.first.w] }

// take removes n bytes of the oldest chunk.
func (b *inbox) take(n int) {
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

// giveBack takes what was lent for read. It returns how much that was.
func (b *inbox) giveBack() int {
	n := b.lent
	if n > 0 {
		b.lent = 0
		b.take(n)
	}
	return n
}

// clear forgets everything but what is lent.
func (b *inbox) clear() {
	for c := b.first; c != nil; {
		next := c.next
		if c != b.first || b.lent == 0 {
			c.free()
		}
		c = next
	}
	if b.lent == 0 {
		*b = inbox{}
		return
	}
	b.first.next, b.last = nil, b.first
	b.first.w = b.first.r + b.lent
	b.unread = b.lent
}
