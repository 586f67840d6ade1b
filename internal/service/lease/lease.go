// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Lease is valid while the last answered beat and the last complete comparison both began less than
// its length ago. It is not valid before the first of each. A step of the wall clock that is larger
// than the length ends it until a beat and a comparison begin after the step was noticed: a virtual
// machine that was paused may not have counted the time, and its clock is set later. A nil *Lease
// is always valid. It is safe for concurrent use.
type Lease struct {
	length time.Duration
	clock  Clock
	grant  atomic.Pointer[grant] // nil while nothing is granted

	mu               sync.Mutex
	last             instant       // when grant was last computed
	beaten, compared time.Duration // when the last of each began; less than after = none
	after            time.Duration // what began before it does not count
}

// grant allows to serve until a time of the boot clock.
type grant struct {
	until time.Duration
	at    instant
}

// instant is one moment on the three clocks.
type instant struct{ wall, monotonic, boot time.Duration }

// maxDrift is how far the wall clock and the monotonic clock may differ in what they say has passed
// since a grant, for the monotonic clock to be taken for the boot clock. They differ by more after
// a suspension, which the monotonic clock does not count.
const maxDrift = 100 * time.Millisecond

// never is before all times of a clock.
const never = math.MinInt64

// New returns a Lease of the length d, on the clocks of the system.
func New(d time.Duration) *Lease { return NewWithClock(d, systemClock) }

// NewWithClock returns a Lease on other clocks, for tests.
func NewWithClock(d time.Duration, c Clock) *Lease {
	l := &Lease{length: d, clock: c, beaten: never, compared: never, after: never + 1}
	l.last = c.instant()
	return l
}

// Now returns the time that Beaten and Compared are given.
func (l *Lease) Now() time.Duration {
	if l == nil {
		return Now()
	}
	return l.clock.Boot()
}

// Beaten notes that the store has answered a beat that began at a time of Now.
func (l *Lease) Beaten(began time.Duration) {
	if l != nil {
		l.note(&l.beaten, began)
	}
}

// Compared notes that what is being served was compared with the store, and that all that is over
// was ended. The comparison began at a time of Now, before it listed what is being served.
func (l *Lease) Compared(began time.Duration) {
	if l != nil {
		l.note(&l.compared, began)
	}
}

func (l *Lease) note(last *time.Duration, began time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.instant()
	l.noticeStep(now)
	l.last = now
	*last = max(*last, began)
	if from := min(l.beaten, l.compared); from >= l.after {
		l.grant.Store(&grant{from + l.length, now})
	}
}

// noticeStep ends the lease if the wall clock was stepped since the last grant; mu must be held.
func (l *Lease) noticeStep(now instant) {
	if !stepped(l.last, now, l.length) {
		return
	}
	l.last, l.after = now, now.boot
	l.grant.Store(nil)
}

// Valid reports whether what is served to people may be served now. It takes no lock and does not
// allocate, unless the wall clock was stepped. On Linux it asks the kernel only after the clocks
// have drifted apart.
func (l *Lease) Valid() bool { return l == nil || l.remaining() > 0 }

// Remaining returns how long the lease is valid without another beat or comparison; 0 when it is
// not.
func (l *Lease) Remaining() time.Duration {
	if l == nil {
		return math.MaxInt64
	}
	return max(0, l.remaining())
}

func (l *Lease) remaining() time.Duration {
	g := l.grant.Load()
	if g == nil {
		return 0
	}
	now := instant{}
	now.wall, now.monotonic = l.clock.Now()
	passed := now.monotonic - g.at.monotonic
	if drift := now.wall - g.at.wall - passed; -maxDrift < drift && drift < maxDrift {
		return g.until - g.at.boot - passed
	}
	return l.remainingByBoot(g, now)
}

// remainingByBoot asks the boot clock. now has the other two clocks.
func (l *Lease) remainingByBoot(g *grant, now instant) time.Duration {
	now.boot = l.clock.Boot()
	if !stepped(g.at, now, l.length) {
		return g.until - now.boot
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grant.Load() == g { // else a beat or a comparison has noticed the step
		l.noticeStep(now)
	}
	return 0
}

// stepped reports whether the wall clock was set by more than limit between two instants.
func stepped(from, to instant, limit time.Duration) bool {
	step := (to.wall - from.wall) - (to.boot - from.boot)
	return step > limit || step < -limit
}

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
