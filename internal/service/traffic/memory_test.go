// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
)

// busy is an endpoint of an account, the busier the lower its number.
type busy struct {
	account string
	number  int
}

func (b busy) id() string { return fmt.Sprintf("ep-%s-%d", b.account, b.number) }

// count adds the traffic of a step: requests of all classes, with many durations.
func (b busy) count(r *testRecorder, rnd *rand.Rand) {
	c := r.Endpoints.use(b.account, b.id(), r.at, 0)
	for class := 1; class < len(c.requests); class++ {
		c.requests[class].Add(1 + rnd.Int64N(int64(100_000/(b.number+1)+1)))
	}
	for range 60 {
		c.latency[rnd.IntN(latencyBuckets)].Add(rnd.Uint32N(1 << 20))
	}
	c.Bytes.Add(rnd.Int64N(1<<30), rnd.Int64N(1<<40))
}

// heap returns what is in use of the heap.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// fillBeyondBound gives endpoints traffic for three minutes, and each a request that a ring keeps.
func fillBeyondBound(r *testRecorder, endpoints int) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for step := range 3 * stepsAMinute {
		for i := range endpoints {
			b := busy{fmt.Sprintf("ac-%d", i%2), i / 2}
			if step == 0 {
				r.record(request{account: b.account, endpoint: b.id(), status: 502, uri: "/" + b.id()})
			}
			b.count(r, rnd)
		}
		r.pass(1)
		if got := r.Memory(); got > maxMemory {
			r.Fatalf("%d bytes are counted in step %d, more than %d", got, step, maxMemory)
		}
	}
	r.pass(1)
}

// TestRecorder_HeapAtItsBound has more endpoints than rows, which take more than the memory of the
// service's recorder: the busiest are kept, the others are in sums, and the heap stays within the
// bound. It does not run in parallel with other tests.
func TestRecorder_HeapAtItsBound(t *testing.T) {
	before := heap()
	r := newRecorder(t, 0)
	const endpoints = maxObjects + 1000
	fillBeyondBound(r, endpoints)
	took, counted := heap()-before, r.Memory()
	t.Logf("the heap has grown by %.1f MiB, and %.1f MiB are counted", float64(took)/(1<<20), float64(counted)/(1<<20))
	if took > maxMemory || counted < maxMemory/2 || took > counted*5/4 {
		t.Errorf("the heap has grown by %d bytes, %d are counted, %d allowed", took, counted, maxMemory)
	}
	kept := 0
	for _, account := range []string{"ac-0", "ac-1"} {
		var own uint64
		for i := range endpoints / 2 {
			c := r.Endpoints.get(account, busy{account, i}.id())
			if c == nil || c.history.summed {
				if i < 100 {
					t.Fatalf("endpoint %d of %s, one of the busiest, is not kept", i, account)
				}
				continue
			}
			kept++
			c.history.hour.each(0, math.MaxInt64, func(_ int64, of *counts) { own += of.requests() })
		}
		all, others := r.requests(account, OfAccount, Hour), r.requests(account, OfOthers, Hour)
		if others == 0 || own+others > all {
			t.Errorf("%s: %d requests, of which %d are kept by endpoint and %d of others", account, all, own, others)
		}
	}
	t.Logf("of %d endpoints, %d have series", endpoints, kept)
	if recent, _ := r.Recent(t.Context(), "ac-0", busy{"ac-0", 0}.id(), true, 10); len(recent) != 1 {
		t.Errorf("recent failing requests of the busiest endpoint: %v", recent)
	}
	runtime.KeepAlive(r)
}
