// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"sync/atomic"

	"github.com/fairlead-dev/fairlead/internal/memory"
)

// Windows bounds by how much the receive windows of all streams of a process may grow, in sum: what
// a stream may have in flight beyond the 1 MiB that each begins with. It is safe for concurrent
// use.
type Windows struct {
	limit int64
	used  atomic.Int64
}

// NewWindows makes a bound of limit bytes; 0 is a quarter of memory.Limit.
func NewWindows(limit int64) *Windows {
	if limit <= 0 {
		limit = memory.Limit() / 4
	}
	return &Windows{limit: limit}
}

// Used returns the sum by which windows have grown, in bytes. It is never more than the limit.
func (w *Windows) Used() int64 { return w.used.Load() }

// Take implements mux.Budget.
func (w *Windows) Take(n int64) bool {
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

// Give implements mux.Budget.
func (w *Windows) Give(n int64) { w.used.Add(-n) }
