// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
)

// maxMemory is what a Recorder takes at most, in bytes.
const maxMemory = 64 << 20

// Options configure a Recorder.
type Options struct {
	// MaxOwn is how many endpoints, and how many backends, Table.Each has one by one.
	MaxOwn int
	// Now is the clock; nil = time.Now.
	Now func() time.Time

	memory int64 // 0 = maxMemory; tests lower it
}

// Recorder keeps series, recent requests and failed logins of all accounts. It is safe for
// concurrent use.
type Recorder struct {
	Endpoints, Backends *Table

	opt    Options
	memory int64 // for all but rings
	rings  ringBudget

	replica string
	peers   Peers // nil = this server is alone

	mu       sync.Mutex
	began    time.Time
	step     int64 // the last one that was added
	minute   int64 // the minute with steps that is not closed; 0 = none
	accounts map[string]*accountHistory
	failures loginFailures
}

// New returns a Recorder. Run fills its series.
func New(o Options) *Recorder {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.memory = cmp.Or(o.memory, maxMemory)
	r := &Recorder{opt: o, began: o.Now().UTC(), accounts: map[string]*accountHistory{}}
	r.rings.most = o.memory / 8 * 3
	r.memory = o.memory - r.rings.most
	r.Endpoints, r.Backends = newTable(o.MaxOwn, &r.rings), newTable(o.MaxOwn, nil)
	r.step = stepBefore(r.began, shortStep)
	return r
}

// stepBefore returns the last step that was complete at t.
func stepBefore(t time.Time, step time.Duration) int64 { return t.UnixNano()/int64(step) - 1 }

// Run adds each step to the series when it is over, until ctx is done.
func (r *Recorder) Run(ctx context.Context) {
	for {
		now := r.opt.Now()
		next := now.Truncate(shortStep).Add(shortStep)
		if !timer.Sleep(ctx, next.Sub(now)) {
			return
		}
		r.addStep(r.opt.Now())
	}
}

// maxSetBack is how many steps the clock may be set back for the series to go on.
const maxSetBack = 60

// addStep adds the step that ended last. After the clock was set back, there is none for a while,
// and what is counted meanwhile belongs to the next one; after more than maxSetBack, all series begin
// anew.
func (r *Recorder) addStep(now time.Time) {
	step := stepBefore(now, shortStep)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.step-step > maxSetBack:
		r.eachHistory(func(_ string, h *history, _ *Counters) { h.hour, h.day, h.last = series{}, series{}, 0 })
		r.began, r.minute = now.UTC(), 0
	case step <= r.step:
		return
	}
	r.step = step
	minute := step / stepsAMinute
	if r.minute != 0 && r.minute != minute { // the process did not run at its end
		r.closeMinute(r.minute)
	}
	r.minute = minute
	r.addEndpoints(step, now)
	rows, shared := r.Backends.all()
	var c counts
	for _, b := range rows {
		if b.take(&c, now) {
			b.history.addStep(step, &c)
		}
	}
	for _, b := range shared {
		b.takeStep(&c)
	}
	if step%stepsAMinute == stepsAMinute-1 {
		r.closeMinute(minute)
		r.minute = 0
		r.failures.expire(now)
		r.trim(now)
	} else if r.used() > r.memory+r.rings.most { // it has grown by more than trim leaves free
		r.trim(now)
	}
}

// idleTime is how long an object has had no traffic that is not read at each step.
const idleTime = time.Minute

// take is takeStep, unless the object has been idle for a while. It reports whether there is
// anything.
func (c *Counters) take(step *counts, now time.Time) bool {
	if c.history.idle && c.lastUsed.Load() < now.Add(-idleTime).UnixNano() {
		return false
	}
	c.takeStep(step)
	c.history.idle = step.empty()
	return !c.history.idle
}

// addEndpoints adds a step of the endpoints, and of their accounts. r.mu must be held.
func (r *Recorder) addEndpoints(step int64, now time.Time) {
	rows, shared := r.Endpoints.all()
	var c counts
	add := func(of *Counters) {
		if !of.take(&c, now) {
			return
		}
		of.history.addStep(step, &c)
		a := r.accounts[of.accountID]
		if a == nil {
			a = &accountHistory{}
			r.accounts[of.accountID] = a
		}
		a.step.add(&c)
		if of.history.summed {
			a.summed.add(&c)
		}
	}
	for _, of := range rows {
		add(of)
	}
	for _, of := range slices.Concat(shared, r.Endpoints.takeLeaving()) {
		add(of)
	}
	for _, a := range r.accounts {
		a.all.addStep(step, &a.step)
		a.others.addStep(step, &a.summed)
		a.step, a.summed = counts{}, counts{}
	}
}

// closeMinute adds a minute to the days. r.mu must be held.
func (r *Recorder) closeMinute(minute int64) {
	r.eachHistory(func(_ string, h *history, _ *Counters) { h.closeMinute(minute) })
	for id, a := range r.accounts {
		if a.all.hour.blocks == nil && a.all.day.blocks == nil && a.all.weight < 1 {
			delete(r.accounts, id)
		}
	}
}

// eachHistory calls f with the histories of all accounts, endpoints and backends. of is nil for an
// account. r.mu must be held.
func (r *Recorder) eachHistory(f func(accountID string, h *history, of *Counters)) {
	for id, a := range r.accounts {
		f(id, &a.all, nil)
		f(id, &a.others, nil)
	}
	for _, t := range []*Table{r.Endpoints, r.Backends} {
		rows, _ := t.all()
		for _, c := range rows {
			f(c.accountID, &c.history, c)
		}
	}
}
