// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/printable"
)

// Account has the endpoints of the account that an API key belongs to.
type Account interface {
	// ListEndpoints returns all endpoints that the filter selects, and the id of the account.
	ListEndpoints(ctx context.Context, f account.EndpointFilter) (accountID string, all []account.Endpoint, err error)
}

// accountCheck checks what the account has at the URL.
type accountCheck struct {
	account       Account // nil = the operator's copy is used
	timeout       time.Duration
	now           time.Time
	report        *Report
	url           account.EndpointURL
	exportContext string // exportContext is Options.ExportContext.
	op            *operatorInstallation

	found []account.Endpoint
}

// checkEndpoint checks that the account, or the operator's copy of it, has the endpoint.
func (ac *accountCheck) checkEndpoint(ctx context.Context) Hop {
	if ac.account == nil {
		return ac.endpointByOperator()
	}
	bounded, cancel := context.WithTimeout(ctx, ac.timeout)
	defer cancel()
	id, found, err := ac.account.ListEndpoints(bounded,
		account.EndpointFilter{Bindings: []string{account.BindingKubernetes}, URL: ac.url.String()})
	if err != nil {
		return ac.accountRefused(err)
	}
	if o := ac.op.operator; o != nil && id != "" && o.Status.AccountID != "" && id != o.Status.AccountID {
		h := ac.endpointByOperator()
		h.Detail += fmt.Sprintf(" (your API key is of account %s, the operator's of %s)", id, o.Status.AccountID)
		return h
	}
	ac.found = found
	switch {
	case len(found) == 0:
		return broken(ac.startAgent("start its agent"), "the account has no endpoint %s", ac.url.String())
	case ac.op.bound == nil && ac.op.boundErr == nil && ac.op.operator != nil &&
		!ac.report.hasStatus(HopOperator, Broken):
		return broken(
			"change binding.endpointSelector so that it admits the endpoint, or see that the operator's API key is "+
				"of the same account",
			"the account has %s, but the operator does not project it; %s", found[0].ID,
			joinNonEmpty(", ", ac.op.selector(), "its account is "+ac.op.operator.Status.AccountID))
	}
	return ok("%s in the account", printable.Count(len(found), "endpoint has the URL", "endpoints have the URL")).
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
func (ac *accountCheck) accountRefused(err error) Hop {
	sentence := err.Error()
	var e *account.Error
	if errors.As(err, &e) && e.Code != "" {
		sentence += " (" + string(e.Code) + ")"
	}
	h := ac.endpointByOperator()
	if h.Status == Broken {
		return h.with("the account could not be asked: " + sentence)
	}
	return unknown("the account could not be asked: %s", sentence).with(h.Detail)
}

const noKey = "as the operator has read it; the account was not asked"

// endpointByOperator uses the operator's copy of the account.
func (ac *accountCheck) endpointByOperator() Hop {
	switch {
	case ac.op.boundErr != nil:
		return unknown("you may not look at BoundEndpoints; with --api-key-file the account itself is asked")
	case ac.op.bound == nil && (ac.op.operator == nil || ac.report.hasStatus(HopOperator, Broken) ||
		ac.report.hasStatus(HopOperator, Unknown)):
		return unknown("no operator at work has read the account; with --api-key-file it is asked itself")
	case ac.op.bound == nil:
		why := "no agent has announced it"
		if s := ac.op.selector(); s != "" {
			why += ", or the operator leaves it out: " + s
		}
		return broken(ac.startAgent("start its agent"),
			"the operator, which reads the account, has no endpoint %s: %s",
			ac.url.String(), why)
	}
	if h := ac.removedPort(); h != nil {
		return *h
	}
	if url := ac.op.boundURL(); url != "" {
		h := ok("%s, %s", url, noKey)
		if url != ac.url.String() {
			h.Detail = fmt.Sprintf("the port is that of %s, which is called by another scheme; %s", url, noKey)
		}
		return h
	}
	has := cmp.Or(joinNonEmpty(", ", ac.op.boundURLs()...), "none")
	return broken(ac.startAgent("start its agent"), "the hostname has no endpoint %s; it has %s", ac.url.String(), has)
}

// removedPort returns the hop of a port whose agent was stopped; nil otherwise.
func (ac *accountCheck) removedPort() *Hop {
	for _, p := range ac.op.bound.Spec.Ports {
		if p.Port != ac.url.Port {
			continue
		}
		if p.RemoveAfter == nil && p.State != "Released" && ac.op.bound.Spec.State != "Released" {
			return nil
		}
		when := ""
		if p.RemoveAfter != nil && p.State != "Released" {
			when = ", and its Services go at " + p.RemoveAfter.UTC().Format(time.TimeOnly) + " UTC"
		}
		h := broken(ac.startAgent("start its agent again"),
			"the account no longer has %s: its agent was stopped%s",
			ac.url.String(), when)
		return &h
	}
	return nil
}

// checkAgent checks that an agent is connected for the endpoint.
func (ac *accountCheck) checkAgent(context.Context) Hop {
	if ac.report.hasStatus(HopEndpoint, Broken) {
		return notChecked
	}
	if len(ac.found) > 0 {
		return ac.agentByAccount()
	}
	if ac.op.bound == nil {
		return unknown("neither the account nor a BoundEndpoint shows it")
	}
	c := ac.op.bound.Status.Conditions.get("Reachable")
	evidence := ac.op.boundCondition("Reachable")
	switch {
	case ac.op.operator != nil && ac.op.operator.Status.Conditions.get("APIReachable").Status == "False":
		return unknown("the operator cannot read the account now; its last status was: %s", c.Message).with(evidence...)
	case c.Reason == "AgentOffline" && ac.concernsURL(c.Message):
		return ac.offline("").with(evidence...)
	case c.Status == "True", c.Reason == "AgentOffline", c.Reason == "EndpointRemoved":
		return ok("an agent is connected, as the operator has read it").with(evidence...)
	}
	return unknown("%s", joinNonEmpty(": ", c.Message, c.Reason)).with(evidence...)
}

// concernsURL reports whether a sentence about some URLs of the hostname concerns this one: it
// names it, or names none.
func (ac *accountCheck) concernsURL(message string) bool {
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" ,;", r) })
	return slices.Contains(words, ac.op.boundURL()) ||
		!slices.ContainsFunc(ac.op.boundURLs(), func(url string) bool { return slices.Contains(words, url) })
}

func (ac *accountCheck) agentByAccount() Hop {
	online, since := 0, ""
	for _, e := range ac.found {
		if e.Status == account.StatusOnline {
			online++
		} else if e.OfflineSince != nil {
			since = "since " + ago(ac.now, *e.OfflineSince)
		}
	}
	if online == 0 {
		return ac.offline(since)
	}
	return ok("%d of %d online", online, len(ac.found))
}

func (ac *accountCheck) offline(since string) Hop {
	return broken(ac.startAgent("start it again, or see why it cannot reach the service"), "%s",
		joinNonEmpty(" ", "no agent is connected for", ac.url.String(), since))
}

// startAgent returns a remedy with the command line that starts an agent for the URL. A cluster
// that exports the URL has no such agent.
func (ac *accountCheck) startAgent(remedy string) string {
	if ac.exportContext == "" {
		remedy += "; if a cluster exports it, name that one with --export-context"
	}
	return remedy + ":\n" + strings.Join([]string{"fairlead", ac.url.Scheme, "PORT", "--url", ac.url.String()}, " ")
}

// upstreamName returns the upstream according to the account, where it was asked.
func (ac *accountCheck) upstreamName() string {
	for _, e := range ac.found {
		if e.UpstreamURL != "" {
			return e.UpstreamURL
		}
	}
	return "its upstream"
}
