// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import "slices"

// Steps are numbered from the Unix epoch: number n of the length d begins n*d after it.

// series has the points of a window's steps, as appendPoint writes them. Steps without traffic take
// no memory. It has no lock of its own.
type series struct {
	blocks []block // the oldest first
}

// block has the points of consecutive steps.
type block struct {
	first int64 // first step
	last  int64 // the last step with a point
	data  []byte
}

// blockSteps is the number of steps of a block: points are dropped by blocks.
const blockSteps = 30

// blockOverhead is what a block takes in memory beside its points, in bytes.
const blockOverhead = 48

// append adds the point of a step, which is later than those before, and drops those that are older
// than steps steps.
func (s *series) append(step int64, c *counts, steps int) {
	s.expire(step-int64(steps), false)
	if n := len(s.blocks); n == 0 || step-s.blocks[n-1].first >= blockSteps {
		if n > 0 {
			s.blocks[n-1].data = slices.Clone(s.blocks[n-1].data)
		}
		s.blocks = append(s.blocks, block{first: step})
	}
	b := &s.blocks[len(s.blocks)-1]
	b.data, b.last = appendPoint(b.data, uint64(step-b.first), c), step
}

// expire drops the blocks that end with the step last or before. compact also returns the memory of
// the list.
func (s *series) expire(last int64, compact bool) {
	n := 0
	for n < len(s.blocks) && s.blocks[n].last <= last {
		n++
	}
	if n > 0 {
		s.blocks = slices.Delete(s.blocks, 0, n)
	}
	if compact && len(s.blocks) == 0 {
		s.blocks = nil
	}
}

// each calls f with the points of the steps from first to last. f must not keep c.
func (s *series) each(first, last int64, f func(step int64, c *counts)) {
	var c counts
	for i := range s.blocks {
		b := &s.blocks[i]
		if b.last < first || b.first > last {
			continue
		}
		for data := b.data; len(data) > 0; {
			offset, rest, err := readPoint(data, &c)
			if err != nil {
				return // not reached: appendPoint has written it
			}
			data = rest
			if step := b.first + int64(offset); step >= first && step <= last {
				f(step, &c)
			}
		}
	}
}

// size returns the memory of the series in bytes.
func (s *series) size() (n int64) {
	n = int64(cap(s.blocks)-len(s.blocks)) * blockOverhead
	for i := range s.blocks {
		n += int64(cap(s.blocks[i].data)) + blockOverhead
	}
	return n
}
