// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Limits of rate-limit.
const (
	maxLimiters   = 16 // in one policy
	maxBucketKeys = 10
	minRate       = time.Second
	maxRate       = 24 * time.Hour
)

// rateLimit admits a number of requests in any period, for every combination of its keys.
type rateLimit struct {
	enforce bool
	keys    []*expression

	seed   maphash.Seed
	window *slidingWindow
}

func (a *rateLimit) provision(c *config) {
	if c.c.limiters++; c.c.limiters > maxLimiters {
		c.c.problem(c.node, "", "a policy has at most %d rate limits", maxLimiters)
	}
	if name := c.str("name", ""); name == "" && !c.has("name") {
		c.missing("name", "what is limited")
	} else if len(name) > 1024 {
		c.c.problem(c.values["name"], name, "a name has at most 1024 bytes")
	}
	c.oneOf("algorithm", "sliding_window", map[string]string{"sliding_window": ""})
	a.enforce = c.flag("enforce", true)
	capacity := c.number("capacity", 0, 1, 2_000_000_000)
	if !c.has("capacity") {
		c.missing("capacity", "the number of requests")
	}
	a.window = newSlidingWindow(capacity, parseRate(c), c.c.policy.options.Clock())
	items := c.items("bucket_key", maxBucketKeys)
	for _, item := range items {
		if e := c.c.compileExpression(item, 0, item.Value); e != nil {
			a.keys = append(a.keys, e)
		}
	}
	if n := c.values["bucket_key"]; n == nil || len(n.Content) == 0 {
		c.missing("bucket_key", "a list of expressions, such as conn.client_ip; those with equal values share a limit")
	}
	a.seed = maphash.MakeSeed()
}

// parseRate reads the period that a capacity is for.
func parseRate(c *config) time.Duration {
	if !c.has("rate") {
		c.missing("rate", "the stretch of time, such as 60s")
		return minRate
	}
	text, ok := c.c.stringValue(c.values["rate"], "rate")
	if !ok {
		return minRate
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < minRate || d > maxRate {
		c.c.problem(c.values["rate"], text, "rate is a duration from 1s to 24h, such as 60s")
	}
	return d
}

func (a *rateLimit) serve(x *exchange) {
	wait := a.window.reserve(a.bucketKey(x), x.policy.options.Clock())
	x.setResult("rate_limit.limited", wait > 0)
	if wait <= 0 || !a.enforce {
		x.next()
		return
	}
	x.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	x.refuse(http.StatusTooManyRequests, account.CodeRateLimited,
		"This endpoint admits fewer requests than it gets. Wait as long as Retry-After says.")
}

// bucketKey hashes the values of the keys. Requests for which a key has no value share one bucket.
func (a *rateLimit) bucketKey(x *exchange) uint64 {
	var h maphash.Hash
	h.SetSeed(a.seed)
	for _, e := range a.keys {
		text := "\x00"
		if v, err := e.eval(x); err == nil && x.spend(valueSteps(v, scanBytes, *x.budget)) {
			text = "\x01" + keyText(v)
		}
		_, _ = h.WriteString(strconv.Itoa(len(text)))
		_, _ = h.WriteString(text)
	}
	return h.Sum64()
}

// keyText renders a value so that different values have different texts.
func keyText(v ref.Val) string {
	if list, ok := v.(traits.Lister); ok {
		var text strings.Builder
		for it := list.Iterator(); it.HasNext() == types.True && text.Len() < maxText; {
			item := keyText(it.Next())
			_, _ = fmt.Fprintf(&text, "%d:%s", len(item), item)
		}
		return text.String()
	}
	text, err := asText(v)
	if err != nil {
		return fmt.Sprint(v.Value())
	}
	return text
}

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
