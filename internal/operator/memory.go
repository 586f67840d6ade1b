// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryCheck is how often a manager looks whether it has become quiet.
	memoryCheck = 20 * time.Second
	// quietBytes is what a quiet manager allocates between two looks at most: Leases, heartbeats, a
	// change now and then. With many endpoints it is a quarter of what lives.
	quietBytes = 8 << 20
	// worthBytes is what has to have been allocated since memory was given back for it to be worth
	// doing again, or as much as lives.
	worthBytes = 32 << 20
)

// memoryReleaser gives the system back, once each time the manager becomes quiet, what a burst of
// work took: ten thousand endpoints leave a third of the heap free, which the runtime keeps for a
// next burst that a manager hardly sees. It is a manager.Runnable.
type memoryReleaser struct {
	heap func() (allocated, live uint64) // bytes, ever; and those that the last collection found in use
	free func()
}

func newMemoryReleaser() memoryReleaser {
	return memoryReleaser{free: debug.FreeOSMemory, heap: func() (allocated, live uint64) {
		sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64(), sample[1].Value.Uint64()
	}}
}

// Start runs until ctx is done.
func (r memoryReleaser) Start(ctx context.Context) error {
	tick := time.NewTicker(memoryCheck)
	defer tick.Stop()
	var last, freed uint64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, live := r.heap()
		if now-last <= max(quietBytes, live/4) && now-freed >= max(worthBytes, live) {
			r.free()
			freed = now
		}
		last = now
	}
}

// NeedLeaderElection says that every manager does it.
func (memoryReleaser) NeedLeaderElection() bool { return false }
