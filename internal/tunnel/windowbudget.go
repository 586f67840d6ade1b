// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/internal/goruntime/memory"
)

// WindowBudget bounds by how many bytes the receive windows of all streams of a process may grow
// together beyond the 1 MiB that each begins with. It is safe for concurrent use.
type WindowBudget struct {
	limit int64
	used  atomic.Int64
}

// NewWindowBudget returns a budget of limit bytes; 0 means a quarter of memory.Limit.
func NewWindowBudget(limit int64) *WindowBudget {
	if limit <= 0 {
		limit = memory.Limit() / 4
	}
	return &WindowBudget{limit: limit}
}

// Used returns by how many bytes windows have grown, at most the limit.
func (w *WindowBudget) Used() int64 { return w.used.Load() }

// Reserve implements mux.Budget.
func (w *WindowBudget) Reserve(n int64) bool {
	for {
		used := w.used.Load()
		if used+n > w.limit {
			return false
		}
		if w.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Release implements mux.Budget.
func (w *WindowBudget) Release(n int64) { w.used.Add(-n) }
