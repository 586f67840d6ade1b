// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// lookAtEndpoint looks for the endpoint in the account, or in what the operator has read of it.
func (w *walk) lookAtEndpoint(ctx context.Context) Hop {
	if w.o.ListEndpoints == nil {
		return w.endpointByOperator()
	}
	bounded, cancel := context.WithTimeout(ctx, w.o.Timeout)
	defer cancel()
	id, found, err := w.o.ListEndpoints(bounded, w.url)
	if err != nil {
		return w.accountRefused(err)
	}
	if w.operator != nil && id != "" && w.operator.Status.AccountID != "" && id != w.operator.Status.AccountID {
		h := w.endpointByOperator()
		h.Detail += fmt.Sprintf(" (your API key is of account %s, the operator's of %s)", id, w.operator.Status.AccountID)
		return h
	}
	w.atAccount = found
	switch {
	case len(found) == 0:
		return broken("start its agent:\n"+w.start(), "the account has no endpoint %s", w.url)
	case w.bound == nil && w.boundErr == nil && w.operator != nil && !w.is(HopOperator, Broken):
		return broken(
			"change binding.endpointSelector so that it admits the endpoint, or see that the operator's API key is of the "+
				"same account",
			"the account has %s, but the operator does not project it; %s", found[0].ID,
			joined(", ", w.selector(), "its account is "+w.operator.Status.AccountID))
	}
	return ok("%s in the account", countOf(len(found), "endpoint has the URL", "endpoints have the URL")).
		with(endpointFacts(found)...)
}

func endpointFacts(found []account.Endpoint) []string {
	var facts []string
	for _, e := range found {
		facts = append(facts, fmt.Sprintf("%s: %s, type %s, upstream %s", e.ID, e.Status, e.Type, e.UpstreamURL))
	}
	return facts
}

// accountRefused says why the account could not be asked. A key that is refused says nothing about
// the endpoint.
func (w *walk) accountRefused(err error) Hop {
	sentence := err.Error()
	var e *account.Error
	if errors.As(err, &e) && e.Code != "" {
		sentence += " (" + string(e.Code) + ")"
	}
	h := w.endpointByOperator()
	if h.Status == Broken {
		return h.with("the account could not be asked: " + sentence)
	}
	return unknown("the account could not be asked: %s", sentence).with(h.Detail)
}

const noKey = "as the operator has read it; the account was not asked"

// endpointByOperator takes the operator's word.
func (w *walk) endpointByOperator() Hop {
	switch {
	case w.boundErr != nil:
		return unknown("you may not look at BoundEndpoints; with --api-key-file the account itself is asked")
	case w.bound == nil && (w.operator == nil || w.is(HopOperator, Broken) || w.is(HopOperator, Unknown)):
		return unknown("no operator at work has read the account; with --api-key-file it is asked itself")
	case w.bound == nil:
		why := "no agent has announced it"
		if s := w.selector(); s != "" {
			why += ", or the operator leaves it out: " + s
		}
		return broken("start its agent:\n"+w.start(), "the operator, which reads the account, has no endpoint %s: %s", w.url,
			why)
	}
	if url := w.boundURL(); url != "" {
		if h := w.leaving(); h != nil {
			return *h
		}
		h := ok("%s, %s", url, noKey)
		if url != w.url {
			h.Detail = fmt.Sprintf("the port is that of %s, which is called by another scheme; %s", url, noKey)
		}
		return h
	}
	if h := w.leaving(); h != nil {
		return *h
	}
	has := joined(", ", w.boundURLs()...)
	if has == "" {
		has = "none"
	}
	return broken("start its agent:\n"+w.start(), "the hostname has no endpoint %s; it has %s", w.url, has)
}

func (w *walk) boundURLs() []string {
	var urls []string
	for _, e := range w.bound.Spec.Endpoints {
		urls = append(urls, e.URL)
	}
	return urls
}

// leaving is the hop of a port whose agent has said goodbye; nil when it has not.
func (w *walk) leaving() *Hop {
	for _, p := range w.bound.Spec.Ports {
		if p.Port != w.o.URL.Port {
			continue
		}
		if p.RemoveAfter == nil && p.State != "Released" && w.bound.Spec.State != "Released" {
			return nil
		}
		when := ""
		if p.RemoveAfter != nil && p.State != "Released" {
			when = ", and its Services go at " + p.RemoveAfter.UTC().Format(time.TimeOnly) + " UTC"
		}
		h := broken("start its agent again:\n"+w.start(), "the account no longer has %s: its agent was stopped%s", w.url,
			when)
		return &h
	}
	return nil
}

// lookAtAgent says whether an agent is connected for the endpoint.
func (w *walk) lookAtAgent(context.Context) Hop {
	if w.is(HopEndpoint, Broken) {
		return Hop{Status: Skipped, Detail: "not checked"}
	}
	if len(w.atAccount) > 0 {
		return w.agentByAccount()
	}
	if w.bound == nil {
		return unknown("nobody who knows could be asked")
	}
	c := w.bound.Status.Conditions.of("Reachable")
	says := w.boundSays("Reachable")
	switch {
	case w.operator != nil && w.operator.Status.Conditions.of("APIReachable").Status == "False":
		return unknown("the operator cannot read the account now; its last word was: %s", c.Message).with(says...)
	case c.Reason == "AgentOffline" && w.concerned(c.Message):
		return w.offline("").with(says...)
	case c.Status == "True", c.Reason == "AgentOffline", c.Reason == "EndpointRemoved":
		return ok("an agent is connected, as the operator has read it").with(says...)
	}
	return unknown("%s", joined(": ", c.Message, c.Reason)).with(says...)
}

// concerned says whether a sentence about some URLs of the hostname is about ours: it names it, or
// none at all.
func (w *walk) concerned(message string) bool {
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" ,;", r) })
	return slices.Contains(words, w.boundURL()) ||
		!slices.ContainsFunc(w.boundURLs(), func(url string) bool { return slices.Contains(words, url) })
}

func (w *walk) agentByAccount() Hop {
	online, since := 0, ""
	for _, e := range w.atAccount {
		if e.Status == account.StatusOnline {
			online++
		} else if e.OfflineSince != nil {
			since = "since " + w.ago(*e.OfflineSince)
		}
	}
	if online == 0 {
		return w.offline(since)
	}
	return ok("%d of %d online", online, len(w.atAccount))
}

func (w *walk) offline(since string) Hop {
	return broken("start it again, or see why it cannot reach the service:\n"+w.start(), "%s",
		joined(" ", "no agent is connected for", w.url, since))
}
