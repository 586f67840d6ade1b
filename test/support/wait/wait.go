// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wait lets tests wait for something to happen, for a minute at most. Tests come in with a
// condition or a channel; a test that waits longer fails with what it waited for.
package wait

import (
	"testing"
	"time"
)

const (
	timeout  = time.Minute
	interval = 2 * time.Millisecond
)

// Until polls until the condition holds. It is for conditions without a channel to wait for.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(timeout)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out after %s waiting for %s", timeout, what)
		}
	}
}

// Receive receives a value from ch.
func Receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(timeout):
		t.Fatalf("timed out after %s waiting for %s", timeout, what)
		panic("unreachable")
	}
}
