// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"math"
	"testing"
	"testing/fstest"
)

func TestLimit_IsLeastOfAll(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	const ram, cgroup, own, v1 = "proc/meminfo", "sys/fs/cgroup/memory.max", "sys/fs/cgroup/a.slice/b/memory.max",
		"sys/fs/cgroup/memory/memory.limit_in_bytes"
	mem := file("MemFree:   7 kB\nMemTotal:       8388608 kB\n")
	for name, c := range map[string]struct {
		files   fstest.MapFS
		goLimit int64
		want    int64
	}{
		"nothing is known":   {fstest.MapFS{}, math.MaxInt64, defaultMemory},
		"the machine's":      {fstest.MapFS{ram: mem}, math.MaxInt64, 8 << 30},
		"cgroup":             {fstest.MapFS{ram: mem, cgroup: file("536870912\n")}, math.MaxInt64, 512 << 20},
		"cgroup without one": {fstest.MapFS{ram: mem, cgroup: file("max\n")}, math.MaxInt64, 8 << 30},
		"its own cgroup": {fstest.MapFS{ram: mem, "proc/self/cgroup": file("0::/a.slice/b\n"), own: file("1048576\n")},
			math.MaxInt64, 1 << 20},
		"cgroup version 1":   {fstest.MapFS{ram: mem, v1: file("1073741824\n")}, math.MaxInt64, 1 << 30},
		"version 1 has none": {fstest.MapFS{ram: mem, v1: file("9223372036854771712\n")}, math.MaxInt64, 8 << 30},
		"Go's":               {fstest.MapFS{ram: mem, cgroup: file("536870912\n")}, 100 << 20, 100 << 20},
		"rubbish":            {fstest.MapFS{ram: file("MemTotal: many\n"), cgroup: file("\n")}, 0, defaultMemory},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := limit(c.files, c.goLimit); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
	if Limit() <= 0 {
		t.Errorf("the limit of this machine is %d", Limit())
	}
}
