// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"math/bits"
	"sync"
)

const (
	chunksAtOnce = 8        // chunks that a feed allocates together
	blockSize    = 2 << 10  // bytes that a feed allocates for the data of several chunks
	maxInBlock   = 512      // bytes of a chunk's data in a block; exchanges copy what they keep of it
	minBuffer    = 2 << 10  // bytes of a chunk's data in memory that is recycled
	maxBuffer    = 64 << 10 // what the relay reads at a time
	// buffersPerDoubling is how many sizes of buffers there are from one power of two to the next.
	buffersPerDoubling = 4
	bufferSizes        = 5*buffersPerDoubling + 1 // from minBuffer to maxBuffer
)

// bufferPools recycle the memory of chunks, which exchanges keep bodies in: at a steady rate those
// that leave the list give it to those that come.
type bufferPools [bufferSizes]sync.Pool

// buffer is memory that a chunk, and exchanges that keep a part of it, refer to.
type buffer struct {
	data []byte
	refs int // guarded by Recorder.mu once the chunk is queued
	pool *sync.Pool
}

// bufferSize returns the number and the size of the smallest buffers for n bytes, minBuffer to
// maxBuffer.
func bufferSize(n int) (number, size int) {
	doublings := bits.Len(uint(n)) - bits.Len(uint(minBuffer)) // n is in [lower, 2*lower)
	lower := minBuffer << doublings
	step := lower / buffersPerDoubling
	steps := (n - lower + step - 1) / step
	return doublings*buffersPerDoubling + steps, lower + steps*step
}

// clone returns a buffer that begins with a copy of p, with one reference.
func (b *bufferPools) clone(p []byte) *buffer {
	number, size := bufferSize(len(p))
	got, ok := b[number].Get().(*buffer)
	if !ok {
		got = &buffer{data: make([]byte, size), pool: &b[number]}
	}
	got.refs = 1
	copy(got.data, p)
	return got
}

// release gives up a reference. Recorder.mu must be held.
func (b *buffer) release() {
	if b.refs--; b.refs == 0 {
		b.pool.Put(b)
	}
}

func (f *feed) newChunk() *chunk {
	if len(f.chunks) == 0 {
		f.chunks = make([]chunk, chunksAtOnce)
	}
	ch := &f.chunks[0]
	f.chunks = f.chunks[1:]
	return ch
}

// copyFrom sets the chunk's data to a copy of p.
func (ch *chunk) copyFrom(p []byte, f *feed, pools *bufferPools) {
	n := len(p)
	switch {
	case n <= maxInBlock:
		if n > len(f.block) {
			f.block = make([]byte, blockSize)
		}
		copy(f.block, p)
		ch.data, ch.size = f.block[:n:n], blockSize
		f.block = f.block[n:]
	case n < minBuffer, n > maxBuffer:
		ch.data, ch.size = bytes.Clone(p), n
	default:
		ch.buffer = pools.clone(p)
		ch.data, ch.size = ch.buffer.data[:n:n], len(ch.buffer.data)
	}
}
