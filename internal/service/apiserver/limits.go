// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// rateLimits holds a token bucket per valid API key. Full buckets are dropped once a minute. It is
// safe for concurrent use.
type rateLimits struct {
	rate  float64
	burst int

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
	dropped time.Time // when full buckets were dropped last
}

// takeToken takes a token from the key's bucket, or returns the time until there is one.
func (l *rateLimits) takeToken(key string, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropFullBuckets(now)
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

func (l *rateLimits) dropFullBuckets(now time.Time) {
	if l.buckets == nil {
		l.buckets = map[string]*rate.Limiter{}
	}
	if now.Sub(l.dropped) < time.Minute {
		return
	}
	l.dropped = now
	for key, b := range l.buckets {
		if b.TokensAt(now) >= float64(l.burst) {
			delete(l.buckets, key)
		}
	}
}
