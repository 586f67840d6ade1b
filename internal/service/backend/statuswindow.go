// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"net/netip"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/clientlimit"
)

// maxClients bounds the clients counted in half a window, and the blocked ones.
const maxClients = 500

// Client is the client of a connection or request.
type Client struct {
	Addr   netip.Addr // the zero Addr = unknown
	OwnPod bool       // a pod of a cluster of the account
}

// clientKey identifies a client for counting: its clientlimit.Key, and whether it is a pod.
type clientKey struct {
	network netip.Prefix
	ownPod  bool
}

func (c Client) key() clientKey { return clientKey{clientlimit.Key(c.Addr), c.OwnPod} }

// statusWindow counts a child's answers by client in a sliding window of two halves, so that the
// requests of a single client do not decide about the child. It is guarded by its health.
type statusWindow struct {
	startedAt         time.Time // when current began
	current, previous map[clientKey]answerCount
}

type answerCount struct{ good, bad int }

// add counts an answer. It reports whether the child is down by the rule.
func (w *statusWindow) add(at time.Time, rule account.HealthRule, client clientKey, bad bool) bool {
	half := time.Duration(rule.WindowSeconds) * time.Second / 2
	switch age := at.Sub(w.startedAt); {
	case w.current == nil || age >= 2*half:
		w.startedAt, w.current, w.previous = at, map[clientKey]answerCount{}, nil
	case age >= half:
		w.startedAt, w.current, w.previous = at, map[clientKey]answerCount{}, w.current
	}
	t, known := w.current[client]
	if !known && len(w.current) >= maxClients {
		return false
	}
	if bad {
		t.bad++
	} else {
		t.good++
	}
	w.current[client] = t
	return bad && w.down(rule)
}

// down reports whether there were enough answers, and enough clients, as a number and as a share of
// all, got enough bad ones. A single pod of the account is enough clients.
func (w *statusWindow) down(rule account.HealthRule) bool {
	answers, clients, against, ownPod := 0, 0, 0, false
	count := func(client clientKey, t answerCount) {
		clients++
		answers += t.good + t.bad
		if 100*t.bad >= rule.FailurePercent*(t.good+t.bad) {
			against++
			ownPod = ownPod || client.ownPod
		}
	}
	for client, t := range w.current {
		earlier := w.previous[client]
		count(client, answerCount{t.good + earlier.good, t.bad + earlier.bad})
	}
	for client, t := range w.previous {
		if _, counted := w.current[client]; !counted {
			count(client, t)
		}
	}
	return answers >= rule.MinAnswers && 100*against >= rule.FailurePercent*clients &&
		(ownPod || against >= rule.MinClients)
}

// recordStatus counts the status of an HTTP answer. It reports whether it is a failure of the
// child. While the child is not fully up only probes count; a client whose probe got a bad status
// may not probe again for a while, so that it does not keep the child down for other clients.
func (h *health) recordStatus(now time.Time, rule account.HealthRule, client clientKey, bad, probe bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.down:
		if !h.statuses.add(now, rule, client, bad) {
			return false
		}
		h.statuses = statusWindow{}
		return true
	case !bad || !probe:
		return false
	}
	if !client.ownPod && len(h.blocked) < maxClients {
		if h.blocked == nil {
			h.blocked = map[clientKey]time.Time{}
		}
		h.blocked[client] = now.Add(lastRetry)
	}
	return true
}
