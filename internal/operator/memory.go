// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/fairlead-dev/fairlead/internal/operator/kube/process"
)

const (
	// memoryCheck is how often the allocations are measured.
	memoryCheck = 20 * time.Second
	// quietBytes is how much a quiet manager allocates at most between two measurements: Leases,
	// heartbeats, occasional changes. With many endpoints the limit is a quarter of the live heap.
	quietBytes = 8 << 20
	// worthBytes is how much must have been allocated since memory was last returned, or as much as
	// the live heap.
	worthBytes = 32 << 20
)

// memoryReleaser returns unused memory to the system once after each burst of work: ten thousand
// endpoints leave a third of the heap free, which the runtime would otherwise keep. It is a
// manager.Runnable.
type memoryReleaser struct {
	process.EveryReplica
	last, released uint64 // bytes allocated at the last measurement, and when memory was last returned
}

// Start runs until ctx is done.
func (r *memoryReleaser) Start(ctx context.Context) error {
	tick := time.NewTicker(memoryCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		if r.isDue(sample[0].Value.Uint64(), sample[1].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	}
}

// isDue records a measurement and reports whether memory is to be returned now. It gets the bytes
// that were allocated so far, and those that the last collection found live.
func (r *memoryReleaser) isDue(allocated, live uint64) (due bool) {
	due = allocated-r.last <= max(quietBytes, live/4) && allocated-r.released >= max(worthBytes, live)
	if r.last = allocated; due {
		r.released = allocated
	}
	return due
}
