// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// rateLimits holds a token bucket per API key. Only known keys get one, and full buckets are
// dropped now and then.
type rateLimits struct {
	rate  float64
	burst int

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
	swept   time.Time
}

// take takes a token of the key, or says how long until there is one.
func (l *rateLimits) take(key string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	b := l.buckets[key]
	if b == nil {
		b = rate.NewLimiter(rate.Limit(l.rate), l.burst)
		l.buckets[key] = b
	}
	if b.AllowN(now, 1) {
		return 0
	}
	return time.Duration((1 - b.TokensAt(now)) / l.rate * float64(time.Second))
}

func (l *rateLimits) sweep(now time.Time) {
	if l.buckets == nil {
		l.buckets = map[string]*rate.Limiter{}
	}
	if now.Sub(l.swept) < time.Minute {
		return
	}
	l.swept = now
	for key, b := range l.buckets {
		if b.TokensAt(now) >= float64(l.burst) {
			delete(l.buckets, key)
		}
	}
}

// watchCounts bounds the open watches of each account.
type watchCounts struct {
	most int

	mu   sync.Mutex
	open map[string]int
}

// acquire counts one more watch until release is called.
func (w *watchCounts) acquire(accountID string) (release func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[accountID] >= w.most {
		return nil, account.Errorf(account.CodeTooMany,
			"the account has %d open watches, which is its limit; close some of them", w.most)
	}
	if w.open == nil {
		w.open = map[string]int{}
	}
	w.open[accountID]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open[accountID]--; w.open[accountID] == 0 {
			delete(w.open, accountID)
		}
	}, nil
}
