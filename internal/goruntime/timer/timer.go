// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package timer has pauses that a context ends. Input: a context and a duration. Output: whether
// the duration passed.
package timer

import (
	"context"
	"time"
)

// Sleep returns true after d, or false as soon as ctx is done.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
