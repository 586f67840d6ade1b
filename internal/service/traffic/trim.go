// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"slices"
	"time"
)

// expectedSize is what a series that begins anew is expected to take, in bytes.
const expectedSize = 48 << 10

// ranked is a history in the order in which histories are kept.
type ranked struct {
	accountID string
	h         *history
	of        *Counters // nil for an account
	endpoint  bool
	rank      int // within the account
}

// trim keeps the memory within its limits: the histories and recent requests of the objects with
// the least traffic are dropped, and those of objects that have more traffic by now begin anew. The
// sums of accounts come first, then the busiest object of each account, then the second of each:
// one account does not push out the others. r.mu must be held.
func (r *Recorder) trim(now time.Time) {
	items, used, summed, noRing := r.rank()
	left := r.memory/8*7 - int64(r.Endpoints.size()+r.Backends.size())*countersSize - r.failures.size
	if used <= left && !summed && !noRing {
		return
	}
	ringsLeft := r.rings.most / ringSize
	for _, it := range items {
		size := it.h.size()
		if it.h.summed {
			size = expectedSize
		}
		keep := size <= left && (!it.h.summed || it.h.weight >= 1)
		switch {
		case keep && it.h.summed:
			it.h.restore(now.UTC())
		case !keep && !it.h.summed:
			it.h.sum()
		}
		if keep {
			left -= size
		}
		if it.endpoint {
			ringsLeft = r.trimRings(it.of, keep, ringsLeft)
		}
	}
}

// trimRings gives an endpoint its ring, or takes its rings away. It returns how many are left for
// the endpoints after it.
func (r *Recorder) trimRings(c *Counters, keep bool, left int64) int64 {
	need := int64(1)
	if c.failing.Load() != nil {
		need++
	}
	if !keep || need > left {
		r.rings.release(c.recent.Swap(nil))
		r.rings.release(c.failing.Swap(nil))
		return left
	}
	r.Endpoints.giveRing(c)
	return left - need
}

// rank returns all histories in their order, the memory that they take, and whether any is summed,
// or an endpoint has no ring.
func (r *Recorder) rank() (items []ranked, used int64, summed, noRing bool) {
	r.eachHistory(func(accountID string, h *history, of *Counters) {
		it := ranked{accountID: accountID, h: h, of: of}
		it.endpoint = of != nil && of.table == r.Endpoints
		items = append(items, it)
		used += h.size()
		summed = summed || h.summed
		noRing = noRing || it.endpoint && of.recent.Load() == nil
	})
	slices.SortFunc(items, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.accountID, b.accountID), cmp.Compare(b.h.weight, a.h.weight))
	})
	for i := 1; i < len(items); i++ {
		if items[i].accountID == items[i-1].accountID {
			items[i].rank = items[i-1].rank + 1
		}
	}
	for i := range items {
		if items[i].of == nil {
			items[i].rank = -1
		}
	}
	slices.SortFunc(items, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.h.weight, a.h.weight))
	})
	return items, used, summed, noRing
}

// size returns the number of objects that have counters.
func (t *Table) size() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.rows) + len(t.shared)
}
