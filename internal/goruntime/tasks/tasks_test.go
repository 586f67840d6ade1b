// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tasks

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestGroup_CloseWaits closes a group while a goroutine runs.
func TestGroup_CloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		end, closed := make(chan struct{}), atomic.Bool{}
		if !g.Start(func() { <-end }) {
			t.Error("an open group starts nothing")
		}
		go func() { g.Close(); closed.Store(true) }()
		synctest.Wait()
		if closed.Load() {
			t.Error("Close did not wait")
		}
		if g.Start(func() { t.Error("a goroutine runs after Close") }) {
			t.Error("a closed group reports that it has started something")
		}
		close(end)
		synctest.Wait()
		if !closed.Load() {
			t.Error("Close waits for nothing")
		}
	})
}
