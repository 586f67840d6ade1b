// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stack grows the stacks of goroutines that serve one connection or request. Go starts a
// goroutine with a small stack and copies it each time it must grow, the last time from deep within
// TLS or a proxy. A goroutine that will need a large stack grows it first, while there is almost
// nothing to copy. The garbage collector shrinks the stacks of idle goroutines again.
//
// What comes in: goroutines of internal/agent, internal/operator/forwarder and
// internal/edge, as their first step. Nothing goes out.
package stack

// Grow8KiB grows the calling goroutine's stack to 8 KiB, for one that writes to a tunnel stream.
func Grow8KiB() { use8KiB(0) }

// Grow16KiB grows the calling goroutine's stack to 16 KiB, for one that serves HTTP requests.
func Grow16KiB() { use16KiB(0) }

//go:noinline
func use8KiB(i int) byte {
	var frame [4 << 10]byte
	return frame[i]
}

//go:noinline
func use16KiB(i int) byte {
	var frame [10 << 10]byte
	return frame[i]
}
