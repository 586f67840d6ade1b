// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"errors"
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
