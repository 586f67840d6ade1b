// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storecache

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	// maxWait bounds the wait of a caller for the store if there is an older answer.
	maxWait = 200 * time.Millisecond
	// readTimeout bounds one read, and the wait of callers for which there is no other answer.
	readTimeout = 3 * time.Second
	// retryAfter is the pause after a read that the store did not answer.
	retryAfter = time.Second
	// maxFailures bounds the keys with a pause.
	maxFailures = 4096
	// evictionSample is how many answers are compared to evict the oldest of them.
	evictionSample = 8
)

// Options configure a Cache; those without a default are required.
type Options[K comparable, V any] struct {
	// Read asks the store. Its context ends after readTimeout.
	Read func(context.Context, K) (V, error)
	// TTL is how long an answer is used without asking again; 0 = each call asks, and the answers
	// are for outages only.
	TTL        time.Duration
	MaxEntries int // MaxEntries bounds the answers, and so the memory, also during an outage.
	// CacheMissing makes CodeNotFound an answer like others. It is for keys that clients do not
	// choose.
	CacheMissing bool
	// Held returns the value that this process has for the key without the store, and when the
	// store agreed to it; ok is false without one. It is called only if the store does not answer,
	// and must not block. nil = nothing is held.
	Held func(K) (value V, since time.Time, ok bool)
}

// Cache caches answers of the store. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	opt Options[K, V]

	mu       sync.Mutex
	answers  map[K]*answer[V] // answers has values that are replaced, never changed.
	reads    map[K]*read[V]   // reads are those in progress.
	failures map[K]failure    // failures has the keys whose last read had no answer.
}

// answer is an answer of the store.
type answer[V any] struct {
	value V
	err   error     // err is CodeNotFound, or nil.
	at    time.Time // at is when its read began.
	// expired is set if the store may have another answer by now.
	expired bool
}

type failure struct {
	at  time.Time
	err error
}

// read is a read in progress; its result may be read once done is closed.
type read[V any] struct {
	answer[V]
	done chan struct{}
}

// New makes a Cache.
func New[K comparable, V any](o Options[K, V]) *Cache[K, V] {
	return &Cache[K, V]{opt: o, answers: make(map[K]*answer[V]), reads: make(map[K]*read[V]),
		failures: make(map[K]failure)}
}

// Get returns the answer for the key. The error is the store's, or that of ctx.
func (c *Cache[K, V]) Get(ctx context.Context, key K) (V, error) {
	return c.get(ctx, key, fallback[V]{})
}

// GetOr is like Get, and returns other if the store does not answer and never did.
func (c *Cache[K, V]) GetOr(ctx context.Context, key K, other V) (V, error) {
	return c.get(ctx, key, fallback[V]{other, true})
}

// fallback is the value that GetOr returns without an answer and a held value.
type fallback[V any] struct {
	value V
	ok    bool
}

func (c *Cache[K, V]) get(ctx context.Context, key K, other fallback[V]) (V, error) {
	c.mu.Lock()
	last := c.answers[key]
	if last != nil && c.reusable(last, c.opt.TTL) {
		c.mu.Unlock()
		return last.value, last.err
	}
	now := time.Now()
	failed, failing := c.failures[key]
	if failing && now.Sub(failed.at) < retryAfter {
		c.mu.Unlock()
		return c.withoutStore(key, other, failed.err)
	}
	r, running := c.reads[key]
	if !running {
		r = &read[V]{answer: answer[V]{at: now}, done: make(chan struct{})}
		c.reads[key] = r
		go c.run(context.WithoutCancel(ctx), key, r)
	}
	c.mu.Unlock()
	if running && last != nil && c.reusable(last, 2*c.opt.TTL) {
		return last.value, last.err
	}
	return c.await(ctx, key, r, other, running && failing)
}

// Last returns the last answer for the key without asking the store.
func (c *Cache[K, V]) Last(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.answers[key]
	if last == nil || last.err != nil {
		var none V
		return none, false
	}
	return last.value, true
}

// Expire makes the next Get of each key that match selects ask the store, and not wait for a read
// that has begun already. match is called with the answers that there are, the zero value for
// CodeNotFound. The answers are still used during outages, but a Get waits for a slow store as if
// there were none.
func (c *Cache[K, V]) Expire(match func(K, V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, a := range c.answers {
		if match(key, a.value) {
			old := *a
			old.expired = true
			c.answers[key] = &old
			delete(c.failures, key)
		}
	}
	clear(c.reads) // their answers are for those who wait already
}

// Fresh returns the store's answer to a read that begins now, which Get returns from then on. The
// error is the store's even if there is an older answer.
func (c *Cache[K, V]) Fresh(ctx context.Context, key K) (V, error) {
	r := &read[V]{answer: answer[V]{at: time.Now()}, done: make(chan struct{})}
	c.mu.Lock()
	c.reads[key] = r
	c.mu.Unlock()
	c.run(context.WithoutCancel(ctx), key, r)
	missing := account.CodeOf(r.err) == account.CodeNotFound && c.opt.CacheMissing
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.answers[key]; (r.err == nil || missing) && (last == nil || last.at.Before(r.at)) {
		r.expired = true // during the read
		c.store(key, &r.answer)
	}
	return r.value, r.err
}

// Forget drops the answers that match selects, also for outages.
func (c *Cache[K, V]) Forget(match func(K, V) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, a := range c.answers {
		if match(key, a.value) {
			delete(c.answers, key)
			delete(c.failures, key)
		}
	}
	clear(c.reads) // their answers are for those who wait already
}

// reusable reports whether the answer is good without asking the store again.
func (c *Cache[K, V]) reusable(a *answer[V], ttl time.Duration) bool {
	return !a.expired && time.Since(a.at) < ttl && (a.err == nil || c.opt.CacheMissing)
}

// await waits for the read. With an older answer that is not expired it waits for maxWait at most,
// or not at all if noWait is set.
func (c *Cache[K, V]) await(
	ctx context.Context, key K, r *read[V], other fallback[V], noWait bool,
) (V, error) {
	var limit <-chan time.Time
	if a, ok := c.lastKnown(key, other); ok && !a.expired {
		if noWait {
			return a.value, a.err
		}
		t := time.NewTimer(maxWait)
		defer t.Stop()
		limit = t.C
	}
	select {
	case <-r.done:
		if account.CodeOf(r.err) == account.CodeUnavailable {
			return c.withoutStore(key, other, r.err)
		}
		return r.value, r.err
	case <-limit:
		err := errSlow(nil)
		c.mu.Lock()
		if c.reads[key] == r {
			c.fail(key, err)
		}
		c.mu.Unlock()
		return c.withoutStore(key, other, err)
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// withoutStore returns the older answer, or the error if there is none.
func (c *Cache[K, V]) withoutStore(key K, other fallback[V], err error) (V, error) {
	a, ok := c.lastKnown(key, other)
	if !ok {
		return a.value, err
	}
	return a.value, a.err
}

// lastKnown returns the newer of the store's last answer and the held value, or else the caller's
// fallback; ok is false without any.
func (c *Cache[K, V]) lastKnown(key K, other fallback[V]) (a answer[V], ok bool) {
	c.mu.Lock()
	last := c.answers[key]
	c.mu.Unlock()
	if c.opt.Held != nil {
		if value, since, held := c.opt.Held(key); held && (last == nil || since.After(last.at)) {
			return answer[V]{value: value, at: since}, true
		}
	}
	if last == nil {
		return answer[V]{value: other.value}, other.ok
	}
	return *last, true
}

// run reads the store for all callers that want the key. It does not end with one of them.
func (c *Cache[K, V]) run(ctx context.Context, key K, r *read[V]) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	value, err := c.opt.Read(ctx, key)
	if err != nil && ctx.Err() != nil {
		err = errSlow(err)
	}
	missing := account.CodeOf(err) == account.CodeNotFound
	keep := err == nil || missing && (c.opt.CacheMissing || c.hasHeld(key))
	c.mu.Lock()
	defer c.mu.Unlock()
	r.value, r.err = value, err
	close(r.done)
	if c.reads[key] != r {
		return // expired
	}
	delete(c.reads, key)
	if account.CodeOf(err) == account.CodeUnavailable {
		if f, slow := c.failures[key]; !slow || f.at.Before(r.at) { // else its pause has begun
			c.fail(key, err)
		}
		return
	}
	delete(c.failures, key)
	switch {
	case keep:
		c.store(key, &r.answer)
	case missing:
		delete(c.answers, key)
	}
}

// hasHeld reports whether a value is held for the key. A CodeNotFound of the store is an answer
// then, so that the value is not served during an outage.
func (c *Cache[K, V]) hasHeld(key K) bool {
	if c.opt.Held == nil {
		return false
	}
	_, _, held := c.opt.Held(key)
	return held
}

// fail begins a pause; mu must be held.
func (c *Cache[K, V]) fail(key K, err error) {
	if len(c.failures) >= maxFailures {
		clear(c.failures)
	}
	c.failures[key] = failure{time.Now(), err}
}

// store adds an answer, in the place of the oldest of a few if there is no room; mu must be held.
func (c *Cache[K, V]) store(key K, a *answer[V]) {
	if c.answers[key] == nil && len(c.answers) >= c.opt.MaxEntries {
		var oldest K
		var at time.Time
		n := 0
		for k, candidate := range c.answers {
			if n == 0 || candidate.at.Before(at) {
				oldest, at = k, candidate.at
			}
			if n++; n == evictionSample {
				break
			}
		}
		delete(c.answers, oldest)
	}
	c.answers[key] = a
}

func errSlow(cause error) error {
	return &account.Error{Code: account.CodeUnavailable, Msg: "the store does not answer in time; try again",
		Cause: cause}
}
