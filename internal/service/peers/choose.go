// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	// questionTimeout is how long a peer may take to answer a question.
	questionTimeout = time.Second
	// positiveLifetime and negativeLifetime are how long answers are used again: with a member that
	// can serve, and without one.
	positiveLifetime = 5 * time.Second
	negativeLifetime = 250 * time.Millisecond
	// unusedLifetime is how long a member stays that is neither used nor asked for.
	unusedLifetime = time.Minute
	maxQuestions   = 10_000 // whose answers are kept
	// maxSilence is how long an agent may have been unresponsive for ChooseWaiting to wait for it.
	maxSilence = 3 * time.Second
)

// queryKey is a comparable Query.
type queryKey struct {
	Pool
	labels string
}

func keyOf(q Query) queryKey {
	var labels strings.Builder
	for _, name := range slices.Sorted(maps.Keys(q.Labels)) {
		labels.WriteString(strconv.Quote(name) + "=" + strconv.Quote(q.Labels[name]) + ",")
	}
	return queryKey{q.Pool, labels.String()}
}

// question is one that all peers are being asked, or have been. Peers.mu guards it.
type question struct {
	sequence uint64
	began    time.Time
	pending  int // peers that have not answered
	members  []*Member
	changed  chan struct{} // closed and replaced with each answer
}

// listing is a peer's last answer to a question.
type listing struct {
	sequence uint64
	at       time.Time
	members  []*Member
}

// Choose returns a member that serves a new connection: of those that respond and are not in tried,
// on replicas that are not draining if there are any, the one with the fewest connections.
//
// It asks all peers at once; concurrent calls with the same question share it. It returns as soon
// as one peer has named such a member; members that others name later are among those of the next
// call. A question about a public address (no AccountID) waits for all peers, as the members of the
// account that has bound it last count. Peers that do not answer within a second are passed over.
// Answers are used again for 5 s while they have a member that can serve, else for 250 ms, and at
// most until a Change of the account.
//
// The error is CodeEndpointOffline when no peer has a member, CodeAgentSilent when none responds.
func (p *Peers) Choose(ctx context.Context, q Query, tried []*Member) (*Member, error) {
	key := keyOf(q)
	p.mu.Lock()
	qn := p.questionLocked(key, q, tried)
	for {
		m, silent := qn.pickLocked(key, tried)
		if m != nil {
			p.choices++
			m.uses++
			m.lastChosen = p.choices
		}
		pending, changed := qn.pending > 0, qn.changed
		p.mu.Unlock()
		switch {
		case m != nil:
			return m, nil
		case !pending:
			return nil, errNoMember(q, silent)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		p.mu.Lock()
	}
}

// ChooseWaiting is Choose with nothing tried. While no agent responds, it waits for one that became
// unresponsive at most maxSilence ago.
func (p *Peers) ChooseWaiting(ctx context.Context, q Query) (*Member, error) {
	for {
		m, err := p.Choose(ctx, q, nil)
		if err == nil || !errors.Is(err, tunnel.ErrUnresponsive) || time.Since(p.silentSince(q)) >= maxSilence {
			return m, err
		}
		if !timer.Sleep(ctx, negativeLifetime) {
			return nil, ctx.Err()
		}
	}
}

// silentSince returns since when the last agent of the question's members does not respond.
func (p *Peers) silentSince(q Query) (since time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if qn := p.questions[keyOf(q)]; qn != nil {
		for _, m := range qn.members {
			if m.silentSince.After(since) {
				since = m.silentSince
			}
		}
	}
	return since
}

func errNoMember(q Query, silent bool) error {
	what := "the labels"
	if q.Host != "" {
		what = q.Host
	}
	if silent {
		return ErrUnresponsive("no agent of " + what + " with another replica responds")
	}
	return account.Errorf(account.CodeEndpointOffline, "no other replica has an agent of %s", what)
}

// pickLocked returns the best member that the peers have named so far, or nil; silent reports that
// there are some, which do not respond. Peers.mu must be held.
func (qn *question) pickLocked(key queryKey, tried []*Member) (best *Member, silent bool) {
	owner := ""
	if key.AccountID == "" && len(qn.members) > 0 {
		if qn.pending > 0 && time.Since(qn.began) < questionTimeout {
			return nil, false
		}
		owner = slices.MaxFunc(qn.members, func(a, b *Member) int { return a.asked.Compare(b.asked) }).accountID
	}
	for _, m := range qn.members {
		if slices.Contains(tried, m) || owner != "" && m.accountID != owner {
			continue
		}
		ready, quiet := m.canServeLocked()
		silent = silent || quiet
		if ready && (best == nil || m.lessLoadedLocked(best)) {
			best = m
		}
	}
	return best, silent
}

// questionLocked returns the question that is to be used for a call: one whose answers are valid,
// or a new one. p.mu must be held.
func (p *Peers) questionLocked(key queryKey, q Query, tried []*Member) *question {
	now := time.Now()
	if qn := p.questions[key]; qn != nil {
		lifetime := negativeLifetime
		if m, _ := qn.pickLocked(key, tried); m != nil {
			lifetime = positiveLifetime
		}
		if age := now.Sub(qn.began); qn.pending > 0 && age < questionTimeout || age < lifetime {
			return qn
		}
	}
	p.sequence++
	qn := &question{sequence: p.sequence, began: now, changed: make(chan struct{})}
	for _, pr := range p.peers {
		if pr.wasTried && (pr.link == nil || pr.isSilentLocked()) {
			continue
		}
		qn.pending++
		if !p.tasks.Start(func() { pr.ask(key, q, qn) }) {
			qn.pending--
		}
	}
	for other := range p.questions { // any
		if len(p.questions) < maxQuestions {
			break
		}
		delete(p.questions, other)
	}
	p.questions[key] = qn
	return qn
}

// ask asks the peer. One that is being dialed for the first time is asked when it has a link.
func (pr *peer) ask(key queryKey, q Query, qn *question) {
	ctx, cancel := context.WithTimeout(pr.ctx, questionTimeout)
	defer cancel()
	select {
	case <-pr.attempted:
	case <-ctx.Done():
	}
	p := pr.peers
	p.mu.Lock()
	l := pr.link
	p.mu.Unlock()
	var holders []Holder
	if l != nil && ctx.Err() == nil {
		var err error
		if holders, err = pr.askHolders(ctx, q); err != nil {
			p.log.Debug("a replica did not answer a question", "replica", pr.id, "err", err)
			l = nil
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l != nil && pr.link == l && l.ctx.Err() == nil {
		qn.members = append(qn.members, l.recordAnswerLocked(key, qn.sequence, holders)...)
	}
	qn.pending--
	close(qn.changed)
	qn.changed = make(chan struct{})
}

// recordAnswerLocked returns the members that the peer has named, and drops those that it named
// before and does not name any more. Peers.mu must be held.
func (l *link) recordAnswerLocked(key queryKey, sequence uint64, holders []Holder) []*Member {
	now := time.Now()
	members := make([]*Member, 0, len(holders))
	for i := range holders {
		members = append(members, l.memberLocked(&holders[i], sequence, now))
	}
	last := l.answers[key]
	if sequence < last.sequence { // a later question was answered first
		return members
	}
	if len(holders) < maxHolders { // all that it has
		for _, m := range last.members {
			if !slices.Contains(members, m) {
				m.dropLocked()
			}
		}
	}
	l.answers[key] = listing{sequence: sequence, at: now, members: members}
	return members
}

// memberLocked returns the member that a peer has described in its answer to the question with this
// sequence. Peers.mu must be held.
func (l *link) memberLocked(h *Holder, sequence uint64, now time.Time) *Member {
	key := memberKey{h.Endpoint.ID, h.Asked.UnixNano()}
	m := l.members[key]
	if m == nil {
		m = &Member{link: l, key: key, accountID: h.Endpoint.AccountID, asked: h.Asked}
		m.ctx, m.cancel = context.WithCancel(l.ctx)
		l.members[key] = m
	}
	if sequence < m.sequence { // a later question was answered first: the traffic policy may be an old one
		return m
	}
	m.sequence = sequence
	m.endpoint.Store(&h.Endpoint)
	// uses are added again
	m.connections, m.listedAt = max(h.Connections-m.uses, 0), now
	m.setSilentLocked(h.Unresponsive)
	return m
}

// forget makes the next questions about the change's accounts, and those about public addresses, ask
// again.
func (p *Peers) forget(c Change) {
	all := c.AccountID == "" && len(c.AccountIDs) == 0
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.questions, func(key queryKey, _ *question) bool {
		return all || key.AccountID == "" || key.AccountID == c.AccountID ||
			slices.Contains(c.AccountIDs, key.AccountID)
	})
}

// removeUnused removes old answers, and members that are neither used nor asked for.
func (p *Peers) removeUnused(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.questions, func(_ queryKey, qn *question) bool {
		return qn.pending == 0 && now.Sub(qn.began) > positiveLifetime
	})
	for _, pr := range p.peers {
		if pr.link == nil {
			continue
		}
		maps.DeleteFunc(pr.link.answers, func(_ queryKey, a listing) bool { return now.Sub(a.at) > unusedLifetime })
		for _, m := range pr.link.members {
			if m.uses == 0 && now.Sub(m.listedAt) > unusedLifetime {
				m.dropLocked()
			}
		}
	}
}
