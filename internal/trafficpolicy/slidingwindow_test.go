// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestSlidingWindow_AdmitsWithoutDelay checks that a window that is asked all the time admits the
// next event as soon as it may.
func TestSlidingWindow_AdmitsWithoutDelay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		capacity   int
		rate, step time.Duration
		want       string
	}{
		{1, time.Second, 100 * time.Millisecond, "[0s 1s 2s 3s 4s]"},
		{3, 2 * time.Second, 250 * time.Millisecond, "[0s 250ms 500ms 2s 2.25s 2.5s 4s 4.25s 4.5s]"},
		{3, 2 * time.Second, 3 * time.Second, "[0s 3s]"},
	} {
		w := newSlidingWindow(c.capacity, c.rate, at)
		var admitted []time.Duration
		for after := time.Duration(0); after < 5*time.Second; after += c.step {
			if w.reserve(1, at.Add(after)) == 0 {
				admitted = append(admitted, after)
			}
		}
		if got := fmt.Sprint(admitted); got != c.want {
			t.Errorf("%d per %v: admitted at %s, want %s", c.capacity, c.rate, got, c.want)
		}
	}
}

// TestSlidingWindow_KeepsToCapacity checks that, however events come, no stretch of the rate has
// more than the capacity, and none is refused without need: at all with a small capacity, for
// longer than a group lasts with a large one.
func TestSlidingWindow_KeepsToCapacity(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, capacity := range []int{1, 2, 7, maxEntries, maxEntries + 1, 100, 1000} {
		const rate = time.Minute
		now, w := at, newSlidingWindow(capacity, rate, at)
		late := time.Duration(0)
		if capacity > maxEntries {
			late = rate / maxEntries
		}
		var admitted []time.Time
		in := func(stretch time.Duration) (n int) { // events so short ago
			for i := len(admitted) - 1; i >= 0 && now.Sub(admitted[i]) < stretch; i-- {
				n++
			}
			return n
		}
		for range 20_000 {
			if random.IntN(50) == 0 { // a pause between bursts
				now = now.Add(time.Duration(random.Int64N(int64(rate))))
			}
			now = now.Add(time.Duration(random.Int64N(int64(rate) / int64(capacity))))
			wait := w.reserve(7, now)
			switch n := in(rate); {
			case wait == 0 && n >= capacity:
				t.Fatalf("capacity %d: admitted although there were %d in the stretch", capacity, n)
			case wait == 0:
				admitted = append(admitted, now)
			case in(rate+late) < capacity:
				t.Fatalf("capacity %d: refused although there were %d in the stretch, and %d in one that is %v longer",
					capacity, n,
					in(rate+late), late)
			}
		}
		if n := cap(w.keys[7].groups); n > 2*(maxEntries+1) {
			t.Errorf("capacity %d: room for %d entries", capacity, n)
		}
	}
}
