// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"hash/maphash"
	"math"
	"net/http"
	"strconv"
	"strings"
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
	a.window = newSlidingWindow(capacity, parseRate(c), c.c.options.Clock())
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
	wait := a.window.reserve(a.bucketKey(x), x.policy.clock())
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
