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
