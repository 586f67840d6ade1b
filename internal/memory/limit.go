// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package memory says how much memory a process may have, and lets a small process collect its
// garbage less often.
//
// What comes in: nothing but the machine's files. It is asked by internal/tunnel for the bound of
// its windows, and by the parts that carry traffic.
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

// fallback is taken for the machine's memory where it cannot be read.
const fallback = 2 << 30

// Limit returns how many bytes of memory this process may have: those of GOMEMLIMIT, of its
// cgroup's limit or of the machine, whichever is least.
func Limit() int64 { return limit(os.DirFS("/"), debug.SetMemoryLimit(-1)) }

// limit returns how much memory the process may have. root is the machine's file system, goLimit
// Go's own limit.
func limit(root fs.FS, goLimit int64) int64 {
	least := int64(fallback)
	if n, ok := installed(root); ok {
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
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 { // "max" is none
			least = min(least, n)
		}
	}
	if goLimit > 0 && goLimit < math.MaxInt64 {
		least = min(least, goLimit)
	}
	return least
}

func installed(root fs.FS) (int64, bool) {
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
