// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import "runtime"

const (
	ballast = 32 << 20 // bytes
	enough  = 16       // times the ballast is what the process must be allowed to have
)

// Ballast lets up to 32 MiB more garbage gather before it is collected, until the returned function
// is called. Go collects when the heap has doubled since the last time; with a heap of a few
// megabytes, as a server with few connections has, that is many times a second. What Ballast
// allocates is never used, and given back to Linux at once, so it takes no memory of the machine's;
// a process that may have less than 512 MiB goes without.
func Ballast() (drop func()) {
	if Limit() < enough*ballast {
		return func() {}
	}
	weight := make([]byte, ballast)
	giveBack(weight) // Go has cleared all of it if some of it had been in use before
	return func() { runtime.KeepAlive(weight) }
}
