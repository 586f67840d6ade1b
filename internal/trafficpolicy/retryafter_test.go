// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestRateLimit_RetryAfterAdmits checks that a client that waits for Retry-After is admitted,
// unless others came first, and that one that waits a second less is not.
func TestRateLimit_RetryAfterAdmits(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 7))
	refused := 0
	for range 300 {
		now := time.Now()
		a := newSlidingWindow(1+random.IntN(99), time.Duration(1+random.IntN(90))*time.Second, now)
		for range 200 {
			now = now.Add(time.Duration(random.Int64N(int64(a.rate) / int64(a.capacity))))
			wait := a.reserve(1, now)
			if wait <= 0 {
				continue
			}
			refused++
			early := now.Add(wait - min(wait, time.Second))
			if left := a.reserve(1, early); left <= 0 && wait > time.Second {
				t.Fatalf("capacity %d in %s: told to wait %s, and admitted a second before", a.capacity, a.rate, wait)
			} else if left <= 0 {
				continue
			}
			now = now.Add(time.Duration(math.Ceil(wait.Seconds())) * time.Second)
			if left := a.reserve(1, now); left > 0 {
				t.Fatalf("capacity %d in %s: told to wait %s, and then %s more", a.capacity, a.rate, wait, left)
			}
		}
	}
	if refused < 1000 {
		t.Errorf("only %d were refused", refused)
	}
}
