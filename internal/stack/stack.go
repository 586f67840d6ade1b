// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stack sizes the stacks of goroutines that are made for one connection or request. Go
// begins with a small one and moves it each time it gets too small, the last time from deep within
// TLS or a proxy; a goroutine that knows that it will get there asks for it at once, while there is
// next to nothing to move. An idle goroutine's stack is made smaller again by the garbage
// collector.
//
// What comes in: goroutines of internal/agent, internal/forwarder and internal/edge, as their first
// step. Nothing goes out.
package stack

// Small is for one that writes to a tunnel stream: 8 KiB.
func Small() { small(0) }

// Large is for one that serves HTTP requests: 16 KiB.
func Large() { large(0) }

//go:noinline
func small(i int) byte {
	var room [4 << 10]byte
	return room[i]
}

//go:noinline
func large(i int) byte {
	var room [10 << 10]byte
	return room[i]
}
