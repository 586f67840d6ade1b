// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestRecorder_TakesWhatItCounts compares Memory with the heap. It does not run in parallel with
// other tests.
func TestRecorder_TakesWhatItCounts(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	r := newRecorder(t, 0)
	for step := range 90 {
		for i := range 500 {
			r.record(request{endpoint: fmt.Sprintf("ep-%d", i), took: time.Duration(i*step) * time.Millisecond,
				status: 200 + 100*(i%4), in: int64(step), out: int64(i * step), uri: "/path"})
		}
		r.pass(1)
	}
	took, counted := heap()-before, r.Memory()
	if took > counted*5/4 || took < counted/2 {
		t.Errorf("the heap has grown by %d bytes, and %d are counted", took, counted)
	}
	runtime.KeepAlive(r)
}
