// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Buckets of durations: one below minLatency, latencySteps for each doubling up to maxLatency, and
// one for what is longer.
const (
	minLatencyBit  = 9  // 2^9 µs
	maxLatencyBit  = 31 // 2^31 µs, about 36 min
	latencySteps   = 4
	latencyBuckets = (maxLatencyBit-minLatencyBit)*latencySteps + 2
)

// latencyBucket returns the index of the bucket of a duration.
func latencyBucket(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	switch {
	case us < 1<<minLatencyBit:
		return 0
	case us >= 1<<maxLatencyBit:
		return latencyBuckets - 1
	}
	bit := bits.Len64(us) - 1
	return 1 + (bit-minLatencyBit)*latencySteps + int(us>>(bit-2)&(latencySteps-1))
}

// latencyBound returns the upper end of a bucket; of the last one its lower end.
func latencyBound(bucket int) time.Duration {
	switch bucket {
	case 0:
		return time.Microsecond << minLatencyBit
	case latencyBuckets - 1:
		return time.Microsecond << maxLatencyBit
	}
	bit, sub := (bucket-1)/latencySteps+minLatencyBit, (bucket-1)%latencySteps
	return time.Duration(latencySteps+sub+1) << (bit - 2) * time.Microsecond
}

// histogram counts durations between two steps. It is safe for concurrent use.
type histogram [latencyBuckets]atomic.Uint32

func (h *histogram) add(d time.Duration) { h[latencyBucket(d)].Add(1) }

// moveTo adds the counts to c and sets them to zero.
func (h *histogram) moveTo(c *counts) {
	for i := range h {
		if h[i].Load() != 0 {
			c.latency[i] += h[i].Swap(0)
		}
	}
}

// quantile returns the duration below which the q-th part of the durations is, 0 without any. Those
// of a bucket are taken to be spread evenly over it.
func (c *counts) quantile(q float64) time.Duration {
	var total uint64
	for _, n := range c.latency {
		total += uint64(n)
	}
	if total == 0 {
		return 0
	}
	rank := uint64(math.Ceil(q * float64(total)))
	for i, n := range c.latency {
		if rank <= uint64(n) {
			var lower time.Duration
			if i > 0 {
				lower = latencyBound(i - 1)
			}
			return lower + time.Duration(float64(latencyBound(i)-lower)*(float64(rank)-0.5)/float64(n))
		}
		rank -= uint64(n)
	}
	return latencyBound(latencyBuckets - 1)
}
