// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storecache

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const testTTL = 250 * time.Millisecond

// fakeStore answers the reads of a Cache.
type fakeStore struct {
	t *testing.T

	mu    sync.Mutex
	value string
	err   error
	hangs bool // reads end with their context
	reads int
	held  string // what memory holds; "" = nothing
	since time.Time
}

func newFakeStore(t *testing.T) *fakeStore { return &fakeStore{t: t, value: "one"} }

// Read is for Options.
func (f *fakeStore) Read(ctx context.Context, _ string) (string, error) {
	f.mu.Lock()
	f.reads++
	value, err, hangs := f.value, f.err, f.hangs
	f.mu.Unlock()
	switch {
	case hangs:
		<-ctx.Done()
		return "", ctx.Err()
	case err != nil:
		return "", err
	}
	return value, nil
}

// become changes the store: it has the value, or the error, or hangs.
func (f *fakeStore) become(value string, err error, hangs bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.value, f.err, f.hangs, f.reads = value, err, hangs, 0
}

// countReads returns how often the store was read since become.
func (f *fakeStore) countReads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

// inBubble runs the test in fake time, until the last read has ended.
func inBubble(t *testing.T, test func(t *testing.T, f *fakeStore)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, newFakeStore(t))
		time.Sleep(readTimeout)
	})
}

// Held is for Options.
func (f *fakeStore) Held(string) (string, time.Time, bool) { return f.held, f.since, f.held != "" }

func (f *fakeStore) cache(change ...func(*Options[string, string])) *Cache[string, string] {
	o := Options[string, string]{Read: f.Read, TTL: testTTL, MaxEntries: 100, Held: f.Held}
	for _, c := range change {
		c(&o)
	}
	return New(o)
}

// expect gets the key, which must answer so, or with the code, and within the time.
func (f *fakeStore) expect(c *Cache[string, string], want string, code account.Code, within time.Duration) {
	f.t.Helper()
	began := time.Now()
	got, err := c.Get(f.t.Context(), "key")
	if got != want || account.CodeOf(err) != code {
		f.t.Errorf("%q %v, want %q %s", got, err, want, code)
	}
	if took := time.Since(began); took > within {
		f.t.Errorf("it took %v, more than %v", took, within)
	}
}

var errAway = account.Errorf(account.CodeUnavailable, "away")

func TestCache_UsesLastAnswerForWholeOutage(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*fakeStore){
		"refused": func(f *fakeStore) { f.become("", errAway, false) },
		"hanging": func(f *fakeStore) { f.become("", nil, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fakeStore) {
				c := f.cache()
				f.expect(c, "one", "", 0)
				away(f)
				for range 100 {
					time.Sleep(time.Hour)
					f.expect(c, "one", "", maxWait)
				}
				f.become("two", nil, false)
				time.Sleep(readTimeout) // of a read whose connection is dead
				f.expect(c, "two", "", 0)
			})
		})
	}
}

// TestCache_AsksOnceASecondDuringOutage sends a request every 10 ms: few of them wait, and few ask.
func TestCache_AsksOnceASecondDuringOutage(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"refused": false, "hanging": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fakeStore) {
				c := f.cache()
				f.expect(c, "one", "", 0)
				f.become("", errAway, hangs)
				time.Sleep(testTTL)
				var requests sync.WaitGroup
				var waited time.Duration
				for range 1000 { // 10 s
					requests.Go(func() {
						began := time.Now()
						f.expect(c, "one", "", maxWait)
						f.mu.Lock()
						waited += time.Since(began)
						f.mu.Unlock()
					})
					time.Sleep(10 * time.Millisecond)
				}
				requests.Wait()
				if n := f.countReads(); n > 11 {
					t.Errorf("10 s took %d reads", n)
				}
				if waited > 4*time.Second {
					t.Errorf("1000 requests waited %v together", waited)
				}
				f.become("two", nil, false)
				time.Sleep(readTimeout)
				f.expect(c, "two", "", 0)
			})
		})
	}
}

func TestCache_AnswersFreshWithinASecondOfRecovery(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		c := f.cache()
		f.expect(c, "one", "", 0)
		f.become("", errAway, false)
		time.Sleep(testTTL)
		f.expect(c, "one", "", 0)
		f.become("two", nil, false)
		time.Sleep(retryAfter)
		f.expect(c, "two", "", 0)
	})
}

func TestCache_NeverCoversOtherErrors(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		c := f.cache()
		f.expect(c, "one", "", 0)
		f.become("", account.Errorf(account.CodeInternal, "unreadable"), false)
		time.Sleep(testTTL)
		f.expect(c, "", account.CodeInternal, 0)
		f.become("", account.Errorf(account.CodeNotFound, "gone"), false)
		f.expect(c, "", account.CodeNotFound, 0)
		f.become("", errAway, false)
		f.expect(c, "", account.CodeUnavailable, 0)
		if len(c.answers) != 0 {
			t.Errorf("a key that is gone is kept: %v", c.answers)
		}
	})
}

// TestCache_ServesHeldValue checks which of the store's last answer and memory is used while the
// store is away: the newer.
func TestCache_ServesHeldValue(t *testing.T) {
	t.Parallel()
	notFound := account.Errorf(account.CodeNotFound, "no grant")
	for name, steps := range map[string]struct {
		err       error         // error of the store's last answer
		asked     bool          // there is one
		after     time.Duration // how long after that it came to be held
		want      string
		wantError account.Code
	}{
		"never asked":            {want: "held"},
		"held after the answer":  {asked: true, after: time.Minute, want: "held"},
		"held before the answer": {asked: true, after: -time.Minute, want: "one"},
		"missing after it was held": {asked: true, err: notFound, after: -time.Minute,
			wantError: account.CodeNotFound},
		"held after it was missing": {asked: true, err: notFound, after: time.Minute, want: "held"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, f *fakeStore) {
				c := f.cache()
				f.held, f.since = "held", time.Now().Add(steps.after)
				f.become("one", steps.err, false)
				if steps.asked {
					if _, err := c.Get(t.Context(), "key"); account.CodeOf(err) != account.CodeOf(steps.err) {
						t.Fatal(err)
					}
				}
				f.become("", nil, true)
				time.Sleep(time.Hour)
				for range 3 {
					f.expect(c, steps.want, steps.wantError, maxWait)
				}
			})
		})
	}
}

// TestCache_FindsHeldKeyAtOnceWhenItReturns checks that a key that was missing is not missing any
// longer than the store says.
func TestCache_FindsHeldKeyAtOnceWhenItReturns(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		c := f.cache()
		f.held = "held"
		f.become("", account.Errorf(account.CodeNotFound, "no grant"), false)
		f.expect(c, "", account.CodeNotFound, 0)
		f.become("one", nil, false)
		f.expect(c, "one", "", 0)
	})
}

func TestCache_UnknownKeysWaitOnceASecond(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		c := f.cache()
		f.become("", nil, true)
		f.expect(c, "", account.CodeUnavailable, readTimeout)
		f.expect(c, "", account.CodeUnavailable, 0)
		if got, err := c.GetOr(t.Context(), "other", "own"); got != "own" || err != nil {
			t.Errorf("with a fallback: %q %v", got, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Get(ctx, "third"); err == nil {
			t.Error("a caller that has left gets an answer")
		}
		time.Sleep(readTimeout)
		f.become("", errAway, false)
		for i := range maxFailures + 10 {
			_, _ = c.Get(t.Context(), strconv.Itoa(i))
		}
		if len(c.failures) > maxFailures || len(c.answers)+len(c.reads) != 0 {
			t.Errorf("%d failures, %d answers, %d reads are kept", len(c.failures), len(c.answers), len(c.reads))
		}
	})
}

func TestCache_IsBoundedBySize(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		c := f.cache(func(o *Options[string, string]) { o.MaxEntries = evictionSample })
		for i := range evictionSample + 1 {
			if _, err := c.Get(t.Context(), strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if _, ok := c.Last("0"); ok || len(c.answers) != evictionSample {
			t.Errorf("%d answers are kept, the oldest: %v", len(c.answers), ok)
		}
	})
}

// TestCache_SharesReads checks that one caller's read answers all that want the key, and that none
// of them waits while an answer is fresh enough.
func TestCache_SharesReads(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, f *fakeStore) {
		c := f.cache(func(o *Options[string, string]) { o.CacheMissing = true })
		f.become("", account.Errorf(account.CodeNotFound, "none"), false)
		for range 1000 {
			f.expect(c, "", account.CodeNotFound, 0)
			time.Sleep(time.Millisecond)
		}
		if n := f.countReads(); n > 4 {
			t.Errorf("a second of requests took %d reads", n)
		}
		f.become("", nil, true)
		go func() { _, _ = c.Get(context.Background(), "key") }()
		synctest.Wait()
		f.expect(c, "", account.CodeNotFound, 0)
		if n := f.countReads(); n != 1 {
			t.Errorf("%d reads", n)
		}
	})
}
