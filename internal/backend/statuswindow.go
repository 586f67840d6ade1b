// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"net/netip"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// maxVoters bounds the clients of half a window whose answers are counted, and those that are
// barred.
const maxVoters = 500

// Client is whom a connection or request is for.
type Client struct {
	Addr   netip.Addr // the zero Addr = unknown
	OwnPod bool       // a pod of a cluster of the account's
}

// voter is a client as statuses are counted by: an IPv4 address, or an IPv6 /64, which is what one
// gets.
type voter struct {
	network netip.Prefix
	own     bool
}

func (c Client) voter() voter {
	addr, bits := c.Addr.Unmap(), 64
	if addr.Is4() {
		bits = 32
	}
	network, _ := addr.Prefix(bits) // of an unknown address: the zero Prefix
	return voter{network, c.OwnPod}
}

// votes counts the answers of a child by client in a window of two halves, so that what a single
// client asks for tells little of the child. It is guarded by the health that has it.
type votes struct {
	began       time.Time // of now
	now, before map[voter]tally
}

type tally struct{ good, bad int }

// add counts an answer. It reports whether the child is down by the rule.
func (v *votes) add(at time.Time, rule account.HealthRule, by voter, bad bool) bool {
	half := time.Duration(rule.WindowSeconds) * time.Second / 2
	switch age := at.Sub(v.began); {
	case v.now == nil || age >= 2*half:
		v.began, v.now, v.before = at, map[voter]tally{}, nil
	case age >= half:
		v.began, v.now, v.before = at, map[voter]tally{}, v.now
	}
	t, known := v.now[by]
	if !known && len(v.now) >= maxVoters {
		return false
	}
	if bad {
		t.bad++
	} else {
		t.good++
	}
	v.now[by] = t
	return bad && v.down(rule)
}

// down reports whether enough answers were counted, and enough clients, as a number and as a share
// of all, got enough bad ones. A pod of the account's own is enough of them.
func (v *votes) down(rule account.HealthRule) bool {
	answers, voters, against, own := 0, 0, 0, false
	count := func(by voter, t tally) {
		voters++
		answers += t.good + t.bad
		if 100*t.bad >= rule.FailurePercent*(t.good+t.bad) {
			against++
			own = own || by.own
		}
	}
	for by, t := range v.now {
		was := v.before[by]
		count(by, tally{t.good + was.good, t.bad + was.bad})
	}
	for by, t := range v.before {
		if _, counted := v.now[by]; !counted {
			count(by, t)
		}
	}
	return answers >= rule.MinAnswers && 100*against >= rule.FailurePercent*voters &&
		(own || against >= rule.MinClients)
}

// answer counts the status of an HTTP answer, and reports whether it is a failure of the child.
// While the child is not fully up only its probes count; a client whose probe got a bad status is
// barred from probing for a while, so that it does not keep the child from everybody.
func (h *health) answer(now time.Time, rule account.HealthRule, by voter, bad, probe bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.down:
		if !h.votes.add(now, rule, by, bad) {
			return false
		}
		h.votes = votes{}
		return true
	case !bad || !probe:
		return false
	}
	if !by.own && len(h.barred) < maxVoters {
		if h.barred == nil {
			h.barred = map[voter]time.Time{}
		}
		h.barred[by] = now.Add(lastRetry)
	}
	return true
}
