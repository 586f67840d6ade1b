// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import "time"

// Lengths of the series.
const (
	hourSteps    = 360
	daySteps     = 24 * 60
	shortStep    = 10 * time.Second
	stepsAMinute = 6
)

// history is the series of one object, or of what is summed for an account. It has no lock of its
// own.
type history struct {
	counted Totals  // in steps so far
	idle    bool    // the last step was empty
	weight  float64 // requests and connections of late
	last    int64   // step that has a point

	summed    bool // whether it has no series because others have more traffic
	since     time.Time
	hour, day series
}

// weightKept is the part of a weight that is left after a minute: half of it after 34 minutes.
const weightKept = 0.98

// addStep adds what was counted in a step.
func (h *history) addStep(step int64, c *counts) {
	h.weight += float64(c.ended())
	if h.summed || c.empty() {
		return
	}
	h.hour.append(step, c, hourSteps)
	h.last = step
}

// closeMinute adds the minute to the day, and drops what is too old.
func (h *history) closeMinute(minute int64) {
	h.weight *= weightKept
	first := minute * stepsAMinute
	if h.summed {
		return
	}
	if h.last >= first {
		var sum counts
		h.hour.each(first, first+stepsAMinute-1, func(_ int64, c *counts) { sum.addLater(c) })
		h.day.append(minute, &sum, daySteps)
	}
	h.hour.expire(first+stepsAMinute-1-hourSteps, true)
	h.day.expire(minute-daySteps, true)
}

// sum ends the series: from now on the object is part of a sum.
func (h *history) sum() {
	h.summed, h.hour, h.day = true, series{}, series{}
}

// restore begins the series anew.
func (h *history) restore(now time.Time) { h.summed, h.since = false, now }

// size returns the memory of the series in bytes.
func (h *history) size() int64 { return h.hour.size() + h.day.size() }

// series returns the series of a window.
func (h *history) series(w Window) *series {
	if w == Day {
		return &h.day
	}
	return &h.hour
}

// accountHistory is what is summed for an account.
type accountHistory struct {
	all, others  history // sums over all endpoints; over those without series of their own
	step, summed counts  // sums of the current step
}
