// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/edge"
)

// maxObjects is how many objects of a kind have counters of their own; more only where more have
// metrics of their own.
const maxObjects = 10_000

// Table has the counters of the objects of one kind: endpoints or backends. The first maxOwn of them
// have metrics of their own; the metrics of the others are summed, so that clients cannot create
// metrics without limit. It is safe for concurrent use.
type Table struct {
	maxOwn, maxRows int
	rings           *ringBudget // nil: requests are not kept

	mu      sync.RWMutex
	rows    map[string]*Counters // by the object's id
	shared  map[string]*Counters // by account: sums of the objects beyond maxRows
	own     int                  // rows with metrics of their own
	dropped Totals               // sums of dropped rows without metrics of their own
	leaving []*Counters          // dropped since the last step, which the account's series lacks
}

func newTable(maxOwn int, rings *ringBudget) *Table {
	return &Table{maxOwn: maxOwn, maxRows: max(maxOwn, maxObjects), rings: rings,
		rows: map[string]*Counters{}, shared: map[string]*Counters{}}
}

// Start counts a request or connection to an endpoint that begins. The result counts its bytes, and
// is for Finish.
func (t *Table) Start(s *edge.RequestRecord) *Counters {
	return t.use(s.Endpoint.AccountID, s.Endpoint.ID, s.StartedAt, 1)
}

// Finish counts the end of what Start counted.
func (t *Table) Finish(c *Counters, s *edge.RequestRecord) {
	c.open.Add(-1)
	c.finish(s)
	if t.rings != nil {
		t.record(c, s)
	}
}

// CountFinished counts a finished request or connection of an object that Start does not count.
func (t *Table) CountFinished(id string, s *edge.RequestRecord) {
	c := t.use(s.Endpoint.AccountID, id, s.StartedAt, 0)
	c.finish(s)
	c.Bytes.Add(s.Traffic.Totals())
}

// use returns the object's counters, after adding open to what is under way.
func (t *Table) use(accountID, id string, now time.Time, open int64) *Counters {
	t.mu.RLock()
	c := t.rows[id]
	if c == nil && len(t.rows) >= t.maxRows {
		c = t.shared[accountID]
	}
	if c != nil {
		c.open.Add(open) // under the lock: DropDeleted drops what has nothing under way
		c.lastUsed.Store(now.UnixNano())
	}
	t.mu.RUnlock()
	if c == nil {
		c = t.create(accountID, id, now, open)
	}
	return c
}

// create is use for an object without counters.
func (t *Table) create(accountID, id string, now time.Time, open int64) *Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.rows[id]
	switch {
	case c != nil: // another request has created it
	case len(t.rows) < t.maxRows:
		c = &Counters{table: t, accountID: accountID, own: t.own < t.maxOwn}
		if c.own {
			t.own++
		}
		c.recent.Store(t.rings.newRing())
		t.rows[id] = c
	default:
		if c = t.shared[accountID]; c == nil {
			c = &Counters{table: t, accountID: accountID}
			c.history.summed = true
			t.shared[accountID] = c
		}
	}
	c.open.Add(open)
	c.lastUsed.Store(now.UnixNano())
	return c
}

// record keeps the request among the endpoint's recent ones, and among the failing ones if it is one.
func (t *Table) record(c *Counters, s *edge.RequestRecord) {
	recent := c.recent.Load()
	if recent == nil {
		return
	}
	recent.put(s)
	if !failing(s.Code, s.Status) {
		return
	}
	failed := c.failing.Load()
	if failed == nil {
		if failed = t.rings.newRing(); failed == nil {
			return
		}
		if !c.failing.CompareAndSwap(nil, failed) {
			t.rings.release(failed)
			if failed = c.failing.Load(); failed == nil {
				return
			}
		}
	}
	failed.put(s)
}

// Each calls f with the totals of the objects that have metrics of their own, and with the sum of the
// others, by the id "", if there are any.
func (t *Table) Each(f func(id string, of *Totals)) {
	t.mu.RLock()
	own, others := make(map[string]*Totals, t.own), t.dropped.clone()
	summed := others.used
	sum := func(c *Counters) {
		of := c.totals(true)
		others.add(&of, 1)
		summed = true
	}
	for id, c := range t.rows {
		if !c.own {
			sum(c)
			continue
		}
		of := c.totals(true)
		of.add(&c.base, -1)
		own[id] = &of
	}
	for _, c := range t.shared {
		sum(c)
	}
	t.mu.RUnlock()
	for id, of := range own {
		f(id, of)
	}
	if summed {
		f("", &others)
	}
}

// DropDeleted drops the counters of objects that no longer exist. It calls exists only for objects
// that were not used since before.
func (t *Table) DropDeleted(
	ctx context.Context, before time.Time, exists func(ctx context.Context, accountID, id string) bool,
) {
	idle := map[string]string{}
	t.mu.RLock()
	for id, c := range t.rows {
		if c.lastUsed.Load() < before.UnixNano() && c.open.Load() == 0 {
			idle[id] = c.accountID
		}
	}
	t.mu.RUnlock()
	for id, accountID := range idle {
		if ctx.Err() == nil && !exists(ctx, accountID, id) {
			t.drop(id)
		}
	}
}

// drop drops an object that has nothing under way. One that had no metrics of its own gets them in
// its place.
func (t *Table) drop(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.rows[id]
	if c == nil || c.open.Load() != 0 {
		return
	}
	delete(t.rows, id)
	c.gone = true
	if t.rings != nil {
		t.leaving = append(t.leaving, c)
	}
	t.rings.release(c.recent.Swap(nil))
	t.rings.release(c.failing.Swap(nil))
	if !c.own {
		of := c.totals(true)
		t.dropped.add(&of, 1)
		t.dropped.used = true
		return
	}
	t.own--
	for _, other := range t.rows {
		if !other.own {
			other.base = other.totals(true)
			other.base.Open = 0
			t.dropped.add(&other.base, 1)
			t.dropped.used = true
			other.own = true
			t.own++
			return
		}
	}
}

// all returns the counters of all objects by id, and the shared ones.
func (t *Table) all() (rows map[string]*Counters, shared []*Counters) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	rows = make(map[string]*Counters, len(t.rows))
	for id, c := range t.rows {
		rows[id] = c
	}
	for _, c := range t.shared {
		shared = append(shared, c)
	}
	return rows, shared
}

// giveRing gives an endpoint without a ring one, if there is memory for it.
func (t *Table) giveRing(c *Counters) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !c.gone && c.recent.Load() == nil {
		c.recent.Store(t.rings.newRing())
	}
}

// takeLeaving returns the counters that were dropped since the last call.
func (t *Table) takeLeaving() []*Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.leaving
	t.leaving = nil
	return all
}

// get returns the counters of an object of the account; nil if there are none.
func (t *Table) get(accountID, id string) *Counters {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if c := t.rows[id]; c != nil && c.accountID == accountID {
		return c
	}
	return nil
}

// ringBudget limits the memory of rings. A nil *ringBudget has none.
type ringBudget struct {
	used atomic.Int64 // bytes
	most int64
}

// newRing returns a ring, or nil when there is no memory left.
func (b *ringBudget) newRing() *ring {
	if b == nil {
		return nil
	}
	if b.used.Add(ringSize) > b.most {
		b.used.Add(-ringSize)
		return nil
	}
	return new(ring)
}

// release ends the use of a ring; r may be nil.
func (b *ringBudget) release(r *ring) {
	if r != nil {
		b.used.Add(-ringSize)
	}
}
