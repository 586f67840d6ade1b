// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Limits of rate-limit.
const (
	maxLimiters   = 16     // in one policy
	maxBuckets    = 10_000 // of one limiter and window; callers beyond them share one
	maxBucketKeys = 10
	minRate       = time.Second
	maxRate       = 24 * time.Hour
)

// rateLimit admits a number of requests in any stretch of time, for every combination of its keys.
type rateLimit struct {
	capacity int
	rate     time.Duration
	enforce  bool
	keys     []*expression

	seed    maphash.Seed
	mu      sync.Mutex
	start   time.Time
	window  int64 // number of the window that current counts, from start
	current map[uint64]int
	before  map[uint64]int // the window before it
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
	if a.capacity = c.number("capacity", 0, 1, 2_000_000_000); !c.has("capacity") {
		c.missing("capacity", "the number of requests")
	}
	a.provisionRate(c)
	items := c.items("bucket_key", maxBucketKeys)
	for _, item := range items {
		if e := c.c.expression(item, 0, item.Value); e != nil {
			a.keys = append(a.keys, e)
		}
	}
	if n := c.values["bucket_key"]; n == nil || len(n.Content) == 0 {
		c.missing("bucket_key", "a list of expressions, such as conn.client_ip; those with equal values share a limit")
	}
	a.seed, a.start = maphash.MakeSeed(), c.c.options.Clock()
	a.current = map[uint64]int{}
}

func (a *rateLimit) provisionRate(c *config) {
	if !c.has("rate") {
		c.missing("rate", "the stretch of time, such as 60s")
		return
	}
	text, ok := c.c.text(c.values["rate"], "rate")
	if !ok {
		return
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < minRate || d > maxRate {
		c.c.problem(c.values["rate"], text, "rate is a duration from 1s to 24h, such as 60s")
		d = minRate
	}
	a.rate = d
}

func (a *rateLimit) serve(x *exchange) {
	wait := a.take(a.bucket(x), x.policy.clock())
	x.note("rate_limit.limited", wait > 0)
	if wait <= 0 || !a.enforce {
		x.next()
		return
	}
	x.w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	x.refuse(http.StatusTooManyRequests, account.CodeRateLimited, "This endpoint admits fewer requests than it gets. Wait as long as Retry-After says.")
}

// bucket hashes the values of the keys. Requests for which one has none share it.
func (a *rateLimit) bucket(x *exchange) uint64 {
	var h maphash.Hash
	h.SetSeed(a.seed)
	for _, e := range a.keys {
		text := "\x00"
		if v, err := e.eval(x); err == nil {
			text = "\x01" + keyText(v)
		}
		_, _ = h.WriteString(strconv.Itoa(len(text)))
		_, _ = h.WriteString(text)
	}
	return h.Sum64()
}

// take counts one request. A wait says that it is one too many, and after how long one is admitted again. A request that is refused does not
// count. The number of the last stretch of time is that of the current window and, of the one before, the part that is still in the stretch.
func (a *rateLimit) take(bucket uint64, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	elapsed := max(now.Sub(a.start), 0) // by the monotonic clock: steps of the wall clock do not matter
	a.advance(int64(elapsed / a.rate))
	if _, ok := a.current[bucket]; !ok && len(a.current) >= maxBuckets {
		bucket = 0
	}
	gone := float64(elapsed%a.rate) / float64(a.rate)
	current, before, capacity := float64(a.current[bucket]), float64(a.before[bucket]), float64(a.capacity)
	if before*(1-gone)+current+1 <= capacity {
		a.current[bucket]++
		return 0
	}
	free := 1 - (capacity-1-current)/before // the part of a window that has to be gone
	if current+1 > capacity {
		free = 1 + max(0, 1-(capacity-1)/current)
	}
	return max(time.Duration((free-gone)*float64(a.rate)), time.Millisecond)
}

// advance makes n the current window.
func (a *rateLimit) advance(n int64) {
	switch {
	case n <= a.window:
		return
	case n == a.window+1:
		a.before = a.current
	default:
		a.before = nil
	}
	a.current, a.window = map[uint64]int{}, n
}

// keyText writes a value so that different values have different texts.
func keyText(v ref.Val) string {
	if list, ok := v.(traits.Lister); ok {
		text := ""
		for it := list.Iterator(); it.HasNext() == types.True && len(text) < maxText; {
			item := keyText(it.Next())
			text += strconv.Itoa(len(item)) + ":" + item
		}
		return text
	}
	text, err := asText(v)
	if err != nil {
		return fmt.Sprint(v.Value())
	}
	return text
}
