// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since the system was started, with the time that it was suspended
// (CLOCK_BOOTTIME).
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return monotonic() // Linux has had the clock since 2.6.39
	}
	return time.Duration(t.Nano())
}
