// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storecache

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func expireAll(string, string) bool { return true }

func TestCache_ExpireAsksAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		c := f.cache(func(o *Options[string, string]) { o.CacheMissing = true })
		f.expect(c, "one", "", 0)
		f.become("two", nil, false)
		c.Expire(func(key, value string) bool { return key != "key" || value != "one" })
		f.expect(c, "one", "", 0)
		c.Expire(expireAll)
		f.expect(c, "two", "", 0)
		f.become("", account.Errorf(account.CodeNotFound, "none"), false)
		c.Expire(expireAll)
		f.expect(c, "", account.CodeNotFound, 0)
		f.become("three", nil, false)
		f.expect(c, "", account.CodeNotFound, 0)
		c.Expire(expireAll)
		f.expect(c, "three", "", 0)
		c.Expire(expireAll)
		f.become("", errAway, false)
		f.expect(c, "three", "", 0) // during an outage
	})
}

// TestCache_ExpireDoesNotWaitForOlderRead begins a read before the change and a Get after it. The
// read's answer, which comes last, is not kept either.
func TestCache_ExpireDoesNotWaitForOlderRead(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		older := make(chan string)
		var began atomic.Bool
		c := f.cache(func(o *Options[string, string]) {
			o.Held = nil
			o.Read = func(context.Context, string) (string, error) {
				if !began.Swap(true) {
					return <-older, nil
				}
				return "new", nil
			}
		})
		waited := make(chan string)
		go func() {
			got, _ := c.Get(t.Context(), "key")
			waited <- got
		}()
		time.Sleep(time.Millisecond)
		c.Expire(expireAll)
		f.expect(c, "new", "", 0)
		older <- "old"
		if got := <-waited; got != "old" {
			t.Errorf("who waited before the change got %q", got)
		}
		f.expect(c, "new", "", 0)
	})
}

// TestCache_ExpireWaitsForSlowStore has a store that takes longer than an outage is waited for.
func TestCache_ExpireWaitsForSlowStore(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		var slow atomic.Int64
		c := f.cache(func(o *Options[string, string]) {
			o.Held = nil
			o.Read = func(ctx context.Context, key string) (string, error) {
				time.Sleep(time.Duration(slow.Load()))
				return f.Read(ctx, key)
			}
		})
		f.expect(c, "one", "", 0)
		slow.Store(int64(2 * maxWait))
		f.become("two", nil, false)
		time.Sleep(testTTL)
		f.expect(c, "one", "", maxWait) // a pause begins
		c.Expire(expireAll)
		f.expect(c, "two", "", 2*maxWait)
		f.become("", nil, true)
		c.Expire(expireAll)
		f.expect(c, "two", "", 2*maxWait+readTimeout) // during an outage
	})
}

// TestCache_FreshIsKnownDuringOutage reads a change that no Get has asked for since.
func TestCache_FreshIsKnownDuringOutage(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		c := f.cache(func(o *Options[string, string]) { o.CacheMissing = true })
		f.expect(c, "one", "", 0)
		f.become("two", nil, false)
		c.Expire(expireAll)
		if got, err := c.Fresh(t.Context(), "key"); got != "two" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		f.become("", errAway, false)
		f.expect(c, "two", "", 0)
		c.Expire(expireAll)
		if _, err := c.Fresh(t.Context(), "key"); account.CodeOf(err) != account.CodeUnavailable {
			t.Errorf("without the store: %v", err)
		}
		f.expect(c, "two", "", 0)
		f.become("", account.Errorf(account.CodeNotFound, "none"), false)
		if _, err := c.Fresh(t.Context(), "key"); account.CodeOf(err) != account.CodeNotFound {
			t.Errorf("deleted: %v", err)
		}
		f.become("", errAway, false)
		time.Sleep(time.Hour)
		f.expect(c, "", account.CodeNotFound, 0)
	})
}

// TestCache_FreshIsKeptBesideExpire expires other keys during the read, which Get repeats then.
func TestCache_FreshIsKeptBesideExpire(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		var c *Cache[string, string]
		c = f.cache(func(o *Options[string, string]) {
			o.Held = nil
			o.Read = func(ctx context.Context, key string) (string, error) {
				c.Expire(func(string, string) bool { return false })
				return f.Read(ctx, key)
			}
		})
		if got, err := c.Fresh(t.Context(), "key"); got != "one" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
		f.become("", errAway, false)
		f.expect(c, "one", "", 0)
	})
}

func TestCache_ForgetsForOutages(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		c := f.cache(func(o *Options[string, string]) { o.Held = nil })
		f.expect(c, "one", "", 0)
		f.become("", errAway, false)
		c.Forget(func(string, string) bool { return false })
		f.expect(c, "one", "", 0)
		c.Forget(expireAll)
		f.expect(c, "", account.CodeUnavailable, 0)
	})
}
