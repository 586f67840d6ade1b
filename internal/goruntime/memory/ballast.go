// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import "runtime"

const (
	ballastSize   = 32 << 20 // bytes
	minLimitRatio = 16       // multiples of the ballast that the process must be allowed to use
)

// Ballast lets up to 32 MiB more garbage accumulate before a collection, until drop is called. Go
// collects when the heap has doubled since the last collection; with a heap of a few megabytes, as
// a server with few connections has, that is many times a second. The ballast is never used and its
// pages are released to Linux at once, so it takes no physical memory. A process that may use less
// than 512 MiB gets none.
func Ballast() (drop func()) {
	if Limit() < minLimitRatio*ballastSize {
		return func() {}
	}
	ballast := make([]byte, ballastSize)
	releasePages(ballast) // Go has cleared it if it had been used before
	return func() { runtime.KeepAlive(ballast) }
}
