// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import "time"

// Clock reads the clocks of a system, each since any moment of its own.
type Clock struct {
	Boot func() time.Duration                   // counts while the system is suspended, and is never set
	Now  func() (wall, monotonic time.Duration) // the time of day, and a clock that is never set
}

// instant reads all clocks, the boot clock last: if the process is paused between the readings, the
// lease ends too early and not too late.
func (c Clock) instant() (i instant) {
	i.wall, i.monotonic = c.Now()
	i.boot = c.Boot()
	return i
}

// started is a moment that the monotonic clock counts from.
var started = time.Now()

func now() (wall, monotonic time.Duration) {
	t := time.Now()
	return time.Duration(t.UnixNano()), t.Sub(started)
}

var systemClock = Clock{Boot: Now, Now: now}

// MonotonicClock is for a bubble of testing/synctest: its boot clock is that of package time.
var MonotonicClock = Clock{Boot: monotonic, Now: now}

func monotonic() time.Duration { return time.Since(started) }
