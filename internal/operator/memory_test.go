// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMemoryReleaser_ReleasesWhenQuiet checks that memory is released once after work has ended,
// not during it.
func TestMemoryReleaser_ReleasesWhenQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var allocated, live, freed atomic.Uint64
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			_ = memoryReleaser{heap: func() (uint64, uint64) { return allocated.Load(), live.Load() }, free: func() {
				freed.Add(1)
			}}.Start(ctx)
		}()
		time.Sleep(memoryCheck / 2) // between two looks
		after := func(bytes, want uint64, what string) {
			t.Helper()
			allocated.Add(bytes)
			time.Sleep(memoryCheck)
			synctest.Wait()
			if got := freed.Load(); got != want {
				t.Fatalf("%s: given back %d times, want %d", what, got, want)
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
			allocated.Add(1 << 20)
			time.Sleep(memoryCheck)
		}
		after(0, 3, "40 MiB, slowly")
		live.Store(200 << 20)
		after(100<<20, 3, "work of a large manager")
		after(49<<20, 3, "a large manager is quiet, and little would come of it")
		after(51<<20, 3, "more work")
		after(49<<20, 4, "a large manager is quiet")
	})
}
