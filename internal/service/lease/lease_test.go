// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const length = 15 * time.Second

// fakeClock is a Clock that a test sets.
type fakeClock struct {
	instant
	bootReads int
}

func (c *fakeClock) clock() Clock {
	return Clock{
		Boot: func() time.Duration { c.bootReads++; return c.boot },
		Now:  func() (wall, monotonic time.Duration) { return c.wall, c.monotonic },
	}
}

// pass lets time pass on all clocks.
func (c *fakeClock) pass(d time.Duration) {
	c.wall, c.monotonic, c.boot = c.wall+d, c.monotonic+d, c.boot+d
}

// newLease returns a lease that is valid from now on, and its clock.
func newLease() (*Lease, *fakeClock) {
	c := &fakeClock{instant: instant{wall: 1e18, monotonic: 5 * time.Hour, boot: 7 * time.Hour}}
	l := NewWithClock(length, c.clock())
	l.renew()
	return l, c
}

func (l *Lease) renew() {
	l.Beaten(l.Now())
	l.Compared(l.Now())
}

func expect(t *testing.T, l *Lease, valid bool, when string) {
	t.Helper()
	if got := l.Valid(); got != valid {
		t.Errorf("%s: valid %v, want %v", when, got, valid)
	}
}

func TestLease_NeedsBeatAndComparison(t *testing.T) {
	t.Parallel()
	for name, note := range map[string][2]func(*Lease, time.Duration){
		"beat first":       {(*Lease).Beaten, (*Lease).Compared},
		"comparison first": {(*Lease).Compared, (*Lease).Beaten},
	} {
		c := &fakeClock{}
		l := NewWithClock(length, c.clock())
		expect(t, l, false, name+": at the start")
		note[0](l, l.Now())
		expect(t, l, false, name+": after one of the two")
		c.pass(10 * time.Second)
		note[1](l, l.Now())
		expect(t, l, true, name+": after both")
		c.pass(5*time.Second - 1)
		expect(t, l, true, name+": just before the older one's end")
		note[1](l, l.Now())
		c.pass(1)
		expect(t, l, false, name+": at the older one's end")
		note[0](l, l.Now())
		expect(t, l, true, name+": renewed")
	}
}

func TestLease_CountsFromBegin(t *testing.T) {
	t.Parallel()
	l, c := newLease()
	began := l.Now()
	c.pass(10 * time.Second)
	l.Beaten(began)
	l.Compared(began)
	if got := l.Remaining(); got != 5*time.Second {
		t.Errorf("10 s after the begin it remains for %v", got)
	}
	l.renew()
	l.Beaten(began) // an answer that was overtaken
	if got := l.Remaining(); got != length {
		t.Errorf("an older beat leaves %v", got)
	}
	c.pass(time.Hour)
	if got := l.Remaining(); got != 0 {
		t.Errorf("%v remain after an hour", got)
	}
}

func TestLease_CountsSuspension(t *testing.T) {
	t.Parallel()
	for name, suspend := range map[string]func(c *fakeClock){
		"wall clock set":     func(c *fakeClock) { c.boot += 14 * time.Second; c.wall += 14 * time.Second },
		"wall clock not set": func(c *fakeClock) { c.boot += 14 * time.Second; c.wall++ },
	} {
		l, c := newLease()
		suspend(c)
		c.wall += 200 * time.Millisecond // as clocks do that are not read at the same time
		expect(t, l, true, name+": after 14 s")
		c.boot += time.Second
		expect(t, l, false, name+": after 15 s")
		l.renew()
		expect(t, l, true, name+": renewed")
	}
}

func TestLease_EndsAtStep(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"forward": length + 1, "back": -length - 1} {
		for _, noticed := range []string{"Valid", "Beaten"} {
			name := name + ", noticed by " + noticed
			l, c := newLease()
			began := l.Now()
			c.pass(time.Second)
			c.wall += step
			if noticed == "Valid" {
				expect(t, l, false, name)
				c.wall -= step
				expect(t, l, false, name+": set back")
			}
			l.Beaten(began)
			l.Compared(began)
			expect(t, l, false, name+": with what had begun before")
			c.pass(time.Second)
			l.Beaten(l.Now())
			expect(t, l, false, name+": with a beat alone")
			l.Compared(l.Now())
			expect(t, l, true, name+": with both")
		}
	}
}

func TestLease_SmallStepDoesNotEnd(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{length, -length} {
		l, c := newLease()
		c.wall += step
		expect(t, l, true, "after a step")
		l.renew()
		c.pass(length - 1)
		expect(t, l, true, "before the end")
		c.pass(1)
		expect(t, l, false, "at the end")
	}
}

func TestLease_ReadsBootClockOnlyAfterDrift(t *testing.T) {
	t.Parallel()
	l, c := newLease()
	c.bootReads = 0
	c.pass(time.Second)
	expect(t, l, true, "after a second")
	if c.bootReads != 0 {
		t.Error("the boot clock was read although the others agree")
	}
	c.wall += maxDrift
	expect(t, l, true, "after a small step")
	if c.bootReads != 1 {
		t.Errorf("the boot clock was read %d times after a step", c.bootReads)
	}
}

func TestLease_PauseBetweenClocksDoesNotExtend(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} { // or after the first two clocks are read
		c := &fakeClock{}
		pause := time.Duration(0)
		clock := c.clock()
		clock.Now = func() (wall, monotonic time.Duration) {
			if before {
				c.pass(pause)
				pause = 0
			}
			defer func() { c.pass(pause); pause = 0 }()
			return c.wall, c.monotonic
		}
		l := NewWithClock(length, clock)
		l.Beaten(l.Now())
		began := l.Now()
		pause = 10 * time.Second
		l.Compared(began)
		c.pass(5 * time.Second)
		expect(t, l, false, "15 s after its begin, of which it was paused for 10 s")
	}
}

func TestLease_NilIsValid(t *testing.T) {
	t.Parallel()
	var l *Lease
	l.renew()
	expect(t, l, true, "nil")
	if l.Remaining() != math.MaxInt64 {
		t.Errorf("%v remain", l.Remaining())
	}
	if New(time.Hour).Now() <= 0 {
		t.Error("the boot clock stands still")
	}
}

func TestLease_InBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewWithClock(length, MonotonicClock)
		l.renew()
		time.Sleep(length - 1)
		expect(t, l, true, "before the end")
		time.Sleep(time.Nanosecond)
		expect(t, l, false, "at the end")
	})
}

func TestLease_ConcurrentUse(t *testing.T) {
	t.Parallel()
	l := New(time.Hour)
	l.renew()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 1000 {
				if !l.Valid() {
					t.Error("not valid between two beats")
				}
				l.renew()
			}
		})
	}
	all.Wait()
}

func TestLease_ValidDoesNotAllocate(t *testing.T) {
	l := New(time.Hour)
	l.renew()
	if n := testing.AllocsPerRun(100, func() { l.Valid() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkValid(b *testing.B) {
	l := New(time.Hour)
	l.renew()
	suspended, c := newLease()
	c.wall += time.Second
	suspended.clock.Boot = func() time.Duration { _ = Now(); return c.boot }
	for _, of := range []struct {
		name  string
		lease *Lease
	}{{"nil", nil}, {"lease", l}, {"drifted", suspended}} {
		b.Run(of.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !of.lease.Valid() {
					b.Fatal("not valid")
				}
			}
		})
	}
}
