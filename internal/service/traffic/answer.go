// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package traffic

// answer answers a question from what this replica has recorded. Objects of another account read
// like those without traffic.
func (r *Recorder) answer(q question) answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := answer{Since: r.began}
	if r.peers != nil {
		a.Left = r.peers.LastLeft()
	}
	switch {
	case q.Series != nil:
		r.answerSeries(q.AccountID, q.Series, &a)
	case q.Recent != nil:
		r.answerRecent(q.AccountID, q.Recent, &a)
	case q.Rates != nil:
		a.Counts = r.countRates(q.AccountID, q.Rates)
	case q.Logins != nil:
		a.Logins = newestFailures(r.failures.list(q.AccountID, r.opt.Now()), q.Logins.Limit)
	}
	return a
}

// find returns the history of an object of the account; nil for one without traffic. r.mu must be
// held.
func (r *Recorder) find(accountID string, k Key) *history {
	a := r.accounts[accountID]
	switch k {
	case OfAccount, OfOthers:
		if a == nil {
			return nil
		}
		if k == OfOthers {
			return &a.others
		}
		return &a.all
	}
	for _, t := range []*Table{r.Endpoints, r.Backends} {
		if c := t.get(accountID, string(k)); c != nil {
			return &c.history
		}
	}
	return nil
}

func (r *Recorder) answerSeries(accountID string, q *seriesQuestion, a *answer) {
	h := r.find(accountID, q.Key)
	if h == nil {
		return
	}
	a.setCoverage(h)
	h.series(q.Window).each(q.First, q.Last, func(step int64, c *counts) {
		a.Points = appendPoint(a.Points, uint64(step-q.First), c)
	})
}

// setCoverage takes over since when the object has series.
func (a *answer) setCoverage(h *history) {
	a.Summed = h.summed
	if h.since.After(a.Since) {
		a.Since = h.since
	}
}

func (r *Recorder) answerRecent(accountID string, q *recentQuestion, a *answer) {
	c := r.Endpoints.get(accountID, q.EndpointID)
	if c == nil {
		return
	}
	from := c.recent.Load()
	a.Summed = from == nil
	if q.FailingOnly {
		from = c.failing.Load()
	}
	a.Requests = newestRequests(from.list(nil, r.replica), q.Limit)
}

// countRates counts what ended in the steps of the question. r.mu must be held.
func (r *Recorder) countRates(accountID string, q *ratesQuestion) map[Key]rateCount {
	all := map[Key]rateCount{}
	add := func(k Key, h *history) {
		var n rateCount
		h.hour.each(q.First, q.Last, func(_ int64, c *counts) {
			n.Ended += c.ended()
			n.Failed += c.value[countFailed]
		})
		if n.Ended > 0 {
			all[k] = n
		}
	}
	if a := r.accounts[accountID]; a != nil {
		add(OfAccount, &a.all)
		add(OfOthers, &a.others)
	}
	for _, t := range []*Table{r.Endpoints, r.Backends} {
		rows, _ := t.all()
		for id, c := range rows {
			if c.accountID == accountID {
				add(Key(id), &c.history)
			}
		}
	}
	return all
}

// used returns about how many bytes the series, the recent requests and the failed logins take.
func (r *Recorder) used() int64 {
	used := r.rings.used.Load() + r.failures.size + int64(r.Endpoints.size()+r.Backends.size())*countersSize
	r.eachHistory(func(_ string, h *history, _ *Counters) { used += h.size() })
	return used
}
