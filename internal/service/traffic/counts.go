// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// numCounts is the number of counts beside the durations.
const numCounts = 11

// Indexes of counts.value; those of requests by class are 0 to 5.
const (
	countConnections = 6 + iota
	countFailed
	countBytesIn
	countBytesOut
	countOpen
)

// counts is the traffic of a step, or of several.
type counts struct {
	value   [numCounts]uint64
	latency [latencyBuckets]uint32
}

// add adds what o counted. Open is added, too: o is of other objects, or of another replica.
func (c *counts) add(o *counts) {
	for i := range c.value {
		c.value[i] += o.value[i]
	}
	for i := range c.latency {
		c.latency[i] += o.latency[i]
	}
}

// addLater adds a later step of the same object: what is open at its end counts.
func (c *counts) addLater(o *counts) {
	c.value[countOpen] = 0
	c.add(o)
}

// requests returns the number of HTTP requests.
func (c *counts) requests() (n uint64) {
	for _, of := range c.value[:countConnections] {
		n += of
	}
	return n
}

// ended returns the number of requests and connections.
func (c *counts) ended() uint64 { return c.requests() + c.value[countConnections] }

// empty reports whether there is nothing to keep.
func (c *counts) empty() bool { return c.value == [numCounts]uint64{} }

// point returns the counts as the dashboard gets them.
func (c *counts) point() Point {
	return Point{Requests: c.requests(), Connections: c.value[countConnections],
		Status: [6]uint64(c.value[:countConnections]), Failed: c.value[countFailed],
		BytesIn: c.value[countBytesIn], BytesOut: c.value[countBytesOut], Open: c.value[countOpen],
		P50: c.quantile(0.5), P95: c.quantile(0.95), P99: c.quantile(0.99)}
}

// appendPoint appends the point of a step: its offset from the first step, a bit for each count that
// is not zero, these counts, and the buckets of durations that are not zero, each as the distance
// from the one before and the number. All are varints.
func appendPoint(b []byte, offset uint64, c *counts) []byte {
	b = binary.AppendUvarint(b, offset)
	var mask uint64
	for i, n := range c.value {
		if n != 0 {
			mask |= 1 << i
		}
	}
	b = binary.AppendUvarint(b, mask)
	for _, n := range c.value {
		if n != 0 {
			b = binary.AppendUvarint(b, n)
		}
	}
	used := 0
	for _, n := range c.latency {
		if n != 0 {
			used++
		}
	}
	b = binary.AppendUvarint(b, uint64(used))
	last := 0
	for i, n := range c.latency {
		if n != 0 {
			b = binary.AppendUvarint(b, uint64(i-last))
			b = binary.AppendUvarint(b, uint64(n))
			last = i
		}
	}
	return b
}

var errBadPoint = errors.New("a point of a series is incomplete, or has a count that does not exist")

// readPoint reads the first point of b into c. It returns what follows.
func readPoint(b []byte, c *counts) (offset uint64, rest []byte, err error) {
	ok := true
	next := func() uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			ok = false
			return 0
		}
		b = b[size:]
		return n
	}
	*c = counts{}
	offset = next()
	mask := next()
	if mask >= 1<<numCounts {
		return 0, nil, errBadPoint
	}
	for i := range c.value {
		if mask&(1<<i) != 0 {
			c.value[i] = next()
		}
	}
	at := uint64(0)
	for left := next(); left > 0 && ok; left-- {
		if at += next(); at >= latencyBuckets {
			return 0, nil, errBadPoint
		}
		c.latency[at] = uint32(next())
	}
	if !ok {
		return 0, nil, errBadPoint
	}
	return offset, b, nil
}

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
