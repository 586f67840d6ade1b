// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestMemoryReleaser_ReleasesWhenQuiet checks that memory is released once after work has ended,
// not during it.
func TestMemoryReleaser_ReleasesWhenQuiet(t *testing.T) {
	t.Parallel()
	var r memoryReleaser
	var allocated, live, released uint64
	measure := func(bytes uint64) {
		if allocated += bytes; r.isDue(allocated, live) {
			released++
		}
	}
	after := func(bytes, want uint64, what string) {
		t.Helper()
		if measure(bytes); released != want {
			t.Fatalf("%s: given back %d times, want %d", what, released, want)
		}
	}
	after(100<<20, 0, "the start")
	after(100<<20, 0, "work goes on")
	after(1<<20, 1, "quiet")
	after(1<<20, 1, "still quiet")
	after(20<<20, 1, "a little work")
	after(1<<20, 1, "quiet after a little work")
	after(50<<20, 1, "more work")
	after(0, 2, "quiet again")
	for range 40 {
		measure(1 << 20)
	}
	after(0, 3, "40 MiB, slowly")
	live = 200 << 20
	after(100<<20, 3, "work of a large manager")
	after(49<<20, 3, "a large manager is quiet, and little would come of it")
	after(51<<20, 3, "more work")
	after(49<<20, 4, "a large manager is quiet")
}

// TestMemoryReleaser_Start checks that the memory of this process is released while nothing else
// happens, which forces a collection.
func TestMemoryReleaser_Start(t *testing.T) {
	t.Parallel()
	forced := func() uint32 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NumForcedGC
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		before := forced()
		r := &memoryReleaser{}
		go func() { ended <- r.Start(ctx) }()
		for range 1000 {
			if time.Sleep(memoryCheck); forced() > before {
				break
			}
			_ = make([]byte, quietBytes/2)
		}
		cancel()
		if err := <-ended; err != nil || forced() == before {
			t.Errorf("%d collections were forced, %v", forced()-before, err)
		}
	})
}
