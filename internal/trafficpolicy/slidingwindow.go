// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"slices"
	"sync"
	"time"
)

// Memory of one slidingWindow: about 100 bytes for a key, and 16 for each entry.
const (
	maxKeys    = 10_000 // callers beyond them share one
	maxEntries = 32     // entries of a key
)

// slidingWindow admits at most capacity events in any period of rate for each key, and the next as
// soon as the oldest has left the period. With a capacity of up to maxEntries that is exact. With a
// larger one it keeps groups of events that are less than rate/maxEntries apart, and each leaves
// with the last of its group: an event may be admitted that much too late, never too early.
type slidingWindow struct {
	capacity int
	rate     time.Duration

	mu        sync.Mutex
	start     time.Time
	now       time.Duration // since start, never less than before
	lastSweep time.Duration // when keys without events were last looked for
	keys      map[uint64]*eventLog
}

// eventLog holds the admitted events of a key in the last period.
type eventLog struct {
	total  int
	groups []eventGroup // in order of time
}

type eventGroup struct {
	last  time.Duration // since start
	count int
}

func newSlidingWindow(capacity int, rate time.Duration, now time.Time) *slidingWindow {
	return &slidingWindow{capacity: capacity, rate: rate, start: now, keys: map[uint64]*eventLog{}}
}

// reserve counts one event and returns 0, or returns the time until one is admitted and does not
// count it.
func (w *slidingWindow) reserve(key uint64, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = max(w.now, now.Sub(w.start)) // by the monotonic clock: steps of the wall clock do not matter
	if w.now-w.lastSweep >= w.rate || len(w.keys) >= maxKeys && w.now-w.lastSweep >= w.rate/maxEntries {
		w.removeIdleKeys()
	}
	log := w.keys[key]
	if log == nil && len(w.keys) >= maxKeys {
		key = 0
		log = w.keys[key]
	}
	if log == nil {
		log = &eventLog{}
		w.keys[key] = log
	}
	w.expire(log)
	if log.total >= w.capacity {
		return log.groups[0].last + w.rate - w.now
	}
	w.add(log)
	return 0
}

// add counts an event now.
func (w *slidingWindow) add(log *eventLog) {
	apart := time.Duration(1)
	if w.capacity > maxEntries {
		apart = w.rate / maxEntries
	}
	log.total++
	if n := len(log.groups); n > 0 && log.groups[n-1].last/apart == w.now/apart {
		log.groups[n-1].last = w.now
		log.groups[n-1].count++
		return
	}
	log.groups = append(log.groups, eventGroup{w.now, 1})
}

// expire drops the events that have left the period.
func (w *slidingWindow) expire(log *eventLog) {
	gone := 0
	for ; gone < len(log.groups) && w.now-log.groups[gone].last >= w.rate; gone++ {
		log.total -= log.groups[gone].count
	}
	log.groups = slices.Delete(log.groups, 0, gone)
}

// removeIdleKeys drops keys without events in the last period.
func (w *slidingWindow) removeIdleKeys() {
	w.lastSweep = w.now
	for key, log := range w.keys {
		if w.expire(log); log.total == 0 {
			delete(w.keys, key)
		}
	}
}
