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

// checkEndpoint checks that the account, or the operator's copy of it, has the endpoint.
func (w *diagnosis) checkEndpoint(ctx context.Context) Hop {
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
		h.Detail += fmt.Sprintf(" (your API key is of account %s, the operator's of %s)", id,
			w.operator.Status.AccountID)
		return h
	}
	w.accountEndpoints = found
	switch {
	case len(found) == 0:
		return broken(w.startAgent("start its agent"), "the account has no endpoint %s", w.url)
	case w.bound == nil && w.boundErr == nil && w.operator != nil && !w.hasStatus(HopOperator, Broken):
		return broken(
			"change binding.endpointSelector so that it admits the endpoint, or see that the operator's API key is "+
				"of the same account",
			"the account has %s, but the operator does not project it; %s", found[0].ID,
			joinNonEmpty(", ", w.selector(), "its account is "+w.operator.Status.AccountID))
	}
	return ok("%s in the account", pluralize(len(found), "endpoint has the URL", "endpoints have the URL")).
		with(endpointFacts(found)...)
}

func endpointFacts(found []account.Endpoint) []string {
	var facts []string
	for _, e := range found {
		facts = append(facts, fmt.Sprintf("%s: %s, type %s, upstream %s", e.ID, e.Status, e.Type, e.UpstreamURL))
	}
	return facts
}

// accountRefused explains why the account could not be asked. A refused key proves nothing about
// the endpoint.
func (w *diagnosis) accountRefused(err error) Hop {
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

// endpointByOperator uses the operator's copy of the account.
func (w *diagnosis) endpointByOperator() Hop {
	switch {
	case w.boundErr != nil:
		return unknown("you may not look at BoundEndpoints; with --api-key-file the account itself is asked")
	case w.bound == nil && (w.operator == nil || w.hasStatus(HopOperator, Broken) || w.hasStatus(HopOperator, Unknown)):
		return unknown("no operator at work has read the account; with --api-key-file it is asked itself")
	case w.bound == nil:
		why := "no agent has announced it"
		if s := w.selector(); s != "" {
			why += ", or the operator leaves it out: " + s
		}
		return broken(w.startAgent("start its agent"),
			"the operator, which reads the account, has no endpoint %s: %s",
			w.url,
			why)
	}
	if url := w.boundURL(); url != "" {
		if h := w.removedPort(); h != nil {
			return *h
		}
		h := ok("%s, %s", url, noKey)
		if url != w.url {
			h.Detail = fmt.Sprintf("the port is that of %s, which is called by another scheme; %s", url, noKey)
		}
		return h
	}
	if h := w.removedPort(); h != nil {
		return *h
	}
	has := joinNonEmpty(", ", w.boundURLs()...)
	if has == "" {
		has = "none"
	}
	return broken(w.startAgent("start its agent"), "the hostname has no endpoint %s; it has %s", w.url, has)
}

func (w *diagnosis) boundURLs() []string {
	var urls []string
	for _, e := range w.bound.Spec.Endpoints {
		urls = append(urls, e.URL)
	}
	return urls
}

// removedPort returns the hop of a port whose agent was stopped; nil otherwise.
func (w *diagnosis) removedPort() *Hop {
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
		h := broken(w.startAgent("start its agent again"),
			"the account no longer has %s: its agent was stopped%s",
			w.url,
			when)
		return &h
	}
	return nil
}

// checkAgent checks that an agent is connected for the endpoint.
func (w *diagnosis) checkAgent(context.Context) Hop {
	if w.hasStatus(HopEndpoint, Broken) {
		return Hop{Status: Skipped, Detail: "not checked"}
	}
	if len(w.accountEndpoints) > 0 {
		return w.agentByAccount()
	}
	if w.bound == nil {
		return unknown("neither the account nor a BoundEndpoint shows it")
	}
	c := w.bound.Status.Conditions.get("Reachable")
	evidence := w.boundCondition("Reachable")
	switch {
	case w.operator != nil && w.operator.Status.Conditions.get("APIReachable").Status == "False":
		return unknown("the operator cannot read the account now; its last status was: %s", c.Message).with(evidence...)
	case c.Reason == "AgentOffline" && w.concernsURL(c.Message):
		return w.offline("").with(evidence...)
	case c.Status == "True", c.Reason == "AgentOffline", c.Reason == "EndpointRemoved":
		return ok("an agent is connected, as the operator has read it").with(evidence...)
	}
	return unknown("%s", joinNonEmpty(": ", c.Message, c.Reason)).with(evidence...)
}

// concernsURL reports whether a sentence about some URLs of the hostname concerns this one: it
// names it, or names none.
func (w *diagnosis) concernsURL(message string) bool {
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" ,;", r) })
	return slices.Contains(words, w.boundURL()) ||
		!slices.ContainsFunc(w.boundURLs(), func(url string) bool { return slices.Contains(words, url) })
}

func (w *diagnosis) agentByAccount() Hop {
	online, since := 0, ""
	for _, e := range w.accountEndpoints {
		if e.Status == account.StatusOnline {
			online++
		} else if e.OfflineSince != nil {
			since = "since " + w.ago(*e.OfflineSince)
		}
	}
	if online == 0 {
		return w.offline(since)
	}
	return ok("%d of %d online", online, len(w.accountEndpoints))
}

func (w *diagnosis) offline(since string) Hop {
	return broken(w.startAgent("start it again, or see why it cannot reach the service"), "%s",
		joinNonEmpty(" ", "no agent is connected for", w.url, since))
}
