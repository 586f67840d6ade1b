// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"bufio"
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
)

// Windows bounds by how much the receive windows of all streams of a process may grow, in sum: what a stream may have in flight beyond the 1 MiB that
// each begins with. It is safe for concurrent use.
type Windows struct {
	limit int64
	used  atomic.Int64
}

// NewWindows makes a bound of limit bytes; 0 is a quarter of the memory that the process may have: of GOMEMLIMIT, of its cgroup's limit or of the
// machine's memory, whichever is least.
func NewWindows(limit int64) *Windows {
	if limit <= 0 {
		limit = memoryLimit(os.DirFS("/"), debug.SetMemoryLimit(-1)) / 4
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

// fallbackMemory is taken for the machine's memory where it cannot be read.
const fallbackMemory = 2 << 30

// memoryLimit returns how much memory the process may have. root is the machine's file system, goLimit Go's own limit.
func memoryLimit(root fs.FS, goLimit int64) int64 {
	limit := int64(fallbackMemory)
	if n, ok := totalMemory(root); ok {
		limit = n
	}
	paths := []string{"sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"}
	if b, err := fs.ReadFile(root, "proc/self/cgroup"); err == nil {
		for line := range strings.Lines(string(b)) {
			if own, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/"); ok && own != "" {
				paths = append(paths, "sys/fs/cgroup/"+own+"/memory.max")
			}
		}
	}
	for _, path := range paths {
		b, err := fs.ReadFile(root, path)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 { // "max" is none
			limit = min(limit, n)
		}
	}
	if goLimit > 0 && goLimit < math.MaxInt64 {
		limit = min(limit, goLimit)
	}
	return limit
}

func totalMemory(root fs.FS) (int64, bool) {
	f, err := root.Open("proc/meminfo")
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	for in := bufio.NewScanner(f); in.Scan(); {
		if text, ok := strings.CutPrefix(in.Text(), "MemTotal:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(text, "kB")), 10, 64)
			return kb << 10, err == nil
		}
	}
	return 0, false
}
