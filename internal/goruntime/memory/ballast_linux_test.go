// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package memory

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// resident returns the resident memory of this process in bytes (proc(5), statm).
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	must.Succeed(t, err)
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	must.Succeed(t, err)
	return pages * os.Getpagesize()
}

func TestBallast_DelaysCollectionsWithoutMemory(t *testing.T) {
	if Limit() < minLimitRatio*ballastSize {
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
	if with := next(); with < before+ballastSize {
		t.Errorf("the next collection is at %d bytes, and was at %d without the ballast", with, before)
	}
	if has := resident(t); has > had+ballastSize/4 {
		t.Errorf("the process had %d bytes and has %d", had, has)
	}
	drop()
	if after := next(); after > before+ballastSize/2 {
		t.Errorf("after the ballast was dropped, the next collection is at %d bytes", after)
	}
}

func TestReleasePages_WholePagesOnly(t *testing.T) {
	const size = 8 << 20
	page := os.Getpagesize()
	b := make([]byte, size)
	fill := func() {
		for i := range b {
			b[i] = 1
		}
	}
	fill()
	full := resident(t)
	releasePages(b)
	if has := resident(t); has > full-size/2 {
		t.Errorf("the process had %d bytes and has %d", full, has)
	}
	fill()
	releasePages(b[1 : size-1])
	for _, i := range []int{0, size - 1} { // outside the released range
		if b[i] != 1 {
			t.Errorf("byte %d is gone", i)
		}
	}
	if b[page] != 0 || b[size-page-1] != 0 {
		t.Error("the pages between were not given back")
	}
	releasePages(nil)
	releasePages(b[1:2])
	if b[1] != 1 {
		t.Error("a part of a page was given back")
	}
}

// TestBallast_ReleasesReusedMemory: Go clears reused memory, which makes it resident.
func TestBallast_ReleasesReusedMemory(t *testing.T) {
	if Limit() < minLimitRatio*ballastSize {
		t.Skip("this machine has too little memory for a ballast")
	}
	used := make([]byte, 2*ballastSize)
	for i := range used {
		used[i] = 1
	}
	runtime.KeepAlive(used)
	runtime.GC()
	debug.FreeOSMemory() // Go goes on taking it for used
	had := resident(t)
	drop := Ballast()
	if has := resident(t); has > had+ballastSize/4 {
		t.Errorf("the process had %d bytes and has %d", had, has)
	}
	drop()
}
