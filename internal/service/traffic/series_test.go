// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestLatencyBuckets_BoundDurations compares the bound of each duration's bucket with the duration.
func TestLatencyBuckets_BoundDurations(t *testing.T) {
	t.Parallel()
	last := -1
	for d := time.Microsecond; d < 2*time.Hour; d += d/50 + 1 {
		i := latencyBucket(d)
		if i < last || i >= latencyBuckets {
			t.Fatalf("%s is in bucket %d, after %d", d, i, last)
		}
		last = i
		switch bound := latencyBound(i); {
		case i == 0 && bound == 512*time.Microsecond, i == latencyBuckets-1 && d >= bound:
		case bound <= d, float64(bound) > 1.26*float64(d):
			t.Fatalf("%s is in bucket %d, whose bound is %s", d, i, bound)
		}
	}
	if last != latencyBuckets-1 || latencyBucket(-time.Second) != 0 {
		t.Errorf("the last bucket is %d of %d; a negative duration is in %d", last, latencyBuckets,
			latencyBucket(-time.Second))
	}
}

// TestQuantile_LiesWithinBucket compares quantiles with the true ones.
func TestQuantile_LiesWithinBucket(t *testing.T) {
	t.Parallel()
	var one, many counts
	one.latency[latencyBucket(405*time.Millisecond)] = 1
	if got := one.quantile(0.99); got < 395*time.Millisecond || got > 430*time.Millisecond {
		t.Errorf("one of 405 ms: %s", got)
	}
	for ms := range 1000 {
		many.latency[latencyBucket(time.Duration(ms)*time.Millisecond)]++
	}
	for q, want := range map[float64]float64{0.5: 500, 0.95: 950, 0.99: 990} {
		if got := many.quantile(q).Seconds() * 1000; got < want*0.95 || got > want*1.05 {
			t.Errorf("quantile %g is %.0f ms, want %.0f", q, got, want)
		}
	}
}

// randomCounts returns counts of which about half are zero.
func randomCounts(r *rand.Rand) (c counts) {
	for i := range c.value {
		if r.IntN(2) == 0 {
			c.value[i] = r.Uint64() >> r.IntN(64)
		}
	}
	for range r.IntN(8) {
		c.latency[r.IntN(latencyBuckets)] = r.Uint32() >> r.IntN(32)
	}
	return c
}

// TestReadPoint_ReadsAppendedPoints reads random points, and beginnings of them.
func TestReadPoint_ReadsAppendedPoints(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		want, offset := randomCounts(r), r.Uint64N(2000)
		b := appendPoint(nil, offset, &want)
		var got counts
		gotOffset, rest, err := readPoint(append(b, 7), &got)
		if err != nil || gotOffset != offset || got != want || len(rest) != 1 {
			t.Fatalf("read %v at %d, %d left, %v; want %v at %d", got, gotOffset, len(rest), err, want, offset)
		}
		for n := range b {
			if _, _, err := readPoint(b[:n], &got); err == nil {
				t.Fatalf("the first %d of %d bytes are read without an error", n, len(b))
			}
		}
	}
}

func FuzzReadPoint(f *testing.F) {
	f.Add(appendPoint(nil, 3, &counts{value: [numCounts]uint64{2: 9}}))
	f.Add([]byte{0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var c counts
		if _, rest, err := readPoint(b, &c); err == nil && len(rest) >= len(b) {
			t.Errorf("nothing of %x was read", b)
		}
	})
}

// TestSeries_KeepsItsWindow appends for longer than the window.
func TestSeries_KeepsItsWindow(t *testing.T) {
	t.Parallel()
	var s series
	const steps, first = 360, 1_000_000
	for i := range int64(2000) {
		if i%7 != 3 { // steps without traffic
			s.append(first+i, &counts{value: [numCounts]uint64{2: uint64(i + 1)}}, steps)
		}
	}
	last, next := int64(first+1999), int64(0)
	s.each(last-steps+1, last, func(step int64, c *counts) {
		if i := step - first; c.value[2] != uint64(i+1) || step <= next {
			t.Fatalf("step %d after %d has %d", step, next, c.value[2])
		}
		next = step
	})
	if next != last {
		t.Errorf("the last step is %d, not %d", next, last)
	}
	if n := len(s.blocks); n > steps/blockSteps+2 {
		t.Errorf("%d blocks are kept", n)
	}
	if s.expire(last, true); s.size() != 0 {
		t.Errorf("an empty series takes %d bytes", s.size())
	}
}
