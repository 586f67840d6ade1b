// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package memory

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// resident returns the bytes of the machine's memory that this process has (proc(5), statm).
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

func TestBallastPutsCollectionsOffAndTakesNoMemory(t *testing.T) {
	if Limit() < enough*ballast {
		t.Skip("this machine has too little memory for a ballast")
	}
	next := func() int {
		runtime.GC()
		var heap runtime.MemStats
		runtime.ReadMemStats(&heap)
		return int(heap.NextGC)
	}
	before, had := next(), resident(t)
	drop := Ballast()
	if with := next(); with < before+ballast {
		t.Errorf("the next collection is at %d bytes, and was at %d without the ballast", with, before)
	}
	if has := resident(t); has > had+ballast/4 {
		t.Errorf("the process had %d bytes and has %d", had, has)
	}
	drop()
	if after := next(); after > before+ballast/2 {
		t.Errorf("after the ballast was dropped, the next collection is at %d bytes", after)
	}
}
