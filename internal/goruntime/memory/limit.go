// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory determines how much memory a process may use, and makes a small process collect
// garbage less often.
//
// What comes in: the machine's files. internal/tunnel uses the limit for its window budget, and the
// programs that carry traffic use the ballast.
package memory

import (
	"bufio"
	"io/fs"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// defaultMemory is assumed where the machine's memory cannot be read.
const defaultMemory = 2 << 30

// Limit returns how many bytes of memory this process may use: the least of GOMEMLIMIT, its
// cgroup's limit and the machine's memory.
func Limit() int64 { return limit(os.DirFS("/"), debug.SetMemoryLimit(-1)) }

// limit is Limit with the machine's file system and Go's own limit.
func limit(root fs.FS, goLimit int64) int64 {
	least := int64(defaultMemory)
	if n, ok := machineMemory(root); ok {
		least = n
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
		// "max" means no limit
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 {
			least = min(least, n)
		}
	}
	if goLimit > 0 && goLimit < math.MaxInt64 {
		least = min(least, goLimit)
	}
	return least
}

func machineMemory(root fs.FS) (int64, bool) {
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
