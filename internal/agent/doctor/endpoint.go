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
	"github.com/fairlead-dev/fairlead/internal/path"
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
	report        *path.Report
	url           account.EndpointURL
	exportContext string // exportContext is Options.ExportContext.
	op            *operatorInstallation

	found []account.Endpoint
}

// checkEndpoint checks that the account, or the operator's copy of it, has the endpoint.
func (ac *accountCheck) checkEndpoint(ctx context.Context) path.Hop {
	switch {
	case ac.account == nil && ac.report.HasStatus(path.HopCluster, path.Broken):
		return path.Unknownf("after fairlead login the account is asked, which needs no cluster")
	case ac.account == nil:
		return ac.endpointByOperator()
	}
	found, foreign, err := ac.list(ctx, account.EndpointFilter{Bindings: []string{account.BindingKubernetes},
		URL: ac.url.String()})
	switch {
	case err != nil:
		return ac.accountRefused(err)
	case foreign != "":
		h := ac.endpointByOperator()
		h.Detail += " (your " + foreign + ")"
		return h
	}
	ac.found = found
	switch {
	case len(found) == 0:
		return path.Brokenf(ac.startAgent("start its agent"), "the account has no endpoint %s", ac.url.String())
	case ac.op.bound == nil && ac.op.boundErr == nil && ac.op.operator != nil &&
		!ac.report.HasStatus(path.HopOperator, path.Broken):
		return path.Brokenf(
			path.AdmitEndpoint+", or see that the operator's API key is of the same account",
			"the account has %s, but the operator does not project it; %s", found[0].ID,
			joinNonEmpty(", ", ac.op.selector(), "its account is "+ac.op.operator.Status.AccountID))
	}
	return path.OKf("%s in the account", printable.Count(len(found), "endpoint has the URL", "endpoints have the URL")).
		With(endpointFacts(found)...)
}

// list returns the endpoints of the account; foreign says that the operator is of another one.
func (ac *accountCheck) list(ctx context.Context, f account.EndpointFilter) (
	found []account.Endpoint, foreign string, err error,
) {
	bounded, cancel := context.WithTimeout(ctx, ac.timeout)
	defer cancel()
	id, found, err := ac.account.ListEndpoints(bounded, f)
	if o := ac.op.operator; o != nil && id != "" && o.Status.AccountID != "" && id != o.Status.AccountID {
		foreign = fmt.Sprintf("API key is of account %s, the operator's of %s", id, o.Status.AccountID)
	}
	return found, foreign, err
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
func (ac *accountCheck) accountRefused(err error) path.Hop {
	sentence := err.Error()
	if e, ok := errors.AsType[*account.Error](err); ok && e.Code != "" {
		sentence += " (" + string(e.Code) + ")"
	}
	h := ac.endpointByOperator()
	if h.Status == path.Broken {
		return h.With("the account could not be asked: " + sentence)
	}
	return path.Unknownf("the account could not be asked: %s", sentence).With(h.Detail)
}

const noKey = "as the operator has read it; the account was not asked"

// endpointByOperator uses the operator's copy of the account.
func (ac *accountCheck) endpointByOperator() path.Hop {
	switch {
	case ac.op.boundErr != nil:
		return path.Unknownf("you may not look at BoundEndpoints; after fairlead login the account itself is asked")
	case ac.op.bound == nil && (ac.op.operator == nil || ac.report.HasStatus(path.HopOperator, path.Broken) ||
		ac.report.HasStatus(path.HopOperator, path.Unknown)):
		return path.Unknownf("no operator at work has read the account; after fairlead login it is asked itself")
	case ac.op.bound == nil:
		why := "no agent has announced it"
		if s := ac.op.selector(); s != "" {
			why += ", or the operator leaves it out: " + s
		}
		return path.Brokenf(ac.startAgent("start its agent"),
			"the operator, which reads the account, has no endpoint %s: %s",
			ac.url.String(), why)
	}
	if h := ac.removedPort(); h != nil {
		return *h
	}
	if url := ac.op.boundURL(); url != "" {
		h := path.OKf("%s, %s", url, noKey)
		if url != ac.url.String() {
			h.Detail = fmt.Sprintf("the port is that of %s, which is called by another scheme; %s", url, noKey)
		}
		return h
	}
	has := cmp.Or(joinNonEmpty(", ", ac.op.boundURLs()...), "none")
	return path.Brokenf(ac.startAgent("start its agent"), "the hostname has no endpoint %s; it has %s", ac.url.String(),
		has)
}

// removedPort returns the hop of a port whose agent was stopped; nil otherwise.
func (ac *accountCheck) removedPort() *path.Hop {
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
		h := path.Brokenf(ac.startAgent("start its agent again"),
			"the account no longer has %s: its agent was stopped%s",
			ac.url.String(), when)
		return &h
	}
	return nil
}

// checkAgent checks that an agent is connected for the endpoint.
func (ac *accountCheck) checkAgent(context.Context) path.Hop {
	if ac.report.HasStatus(path.HopEndpoint, path.Broken) {
		return path.NotChecked()
	}
	if len(ac.found) > 0 {
		return ac.agentByAccount()
	}
	if ac.op.bound == nil && ac.report.HasStatus(path.HopCluster, path.Broken) {
		return path.NotChecked()
	}
	if ac.op.bound == nil {
		return path.Unknownf("neither the account nor a BoundEndpoint shows it")
	}
	c := ac.op.bound.Status.Conditions.Get("Reachable")
	evidence := ac.op.boundCondition("Reachable")
	switch {
	case ac.op.operator != nil && ac.op.operator.Status.Conditions.Get("APIReachable").Status == "False":
		return path.Unknownf("the operator cannot read the account now; its last status was: %s",
			c.Message).With(evidence...)
	case c.Reason == "AgentOffline" && ac.concernsURL(c.Message):
		return ac.offline("").With(evidence...)
	case c.Status == "True", c.Reason == "AgentOffline", c.Reason == "EndpointRemoved":
		return path.OKf("an agent is connected, as the operator has read it").With(evidence...)
	}
	return path.Unknownf("%s", joinNonEmpty(": ", c.Message, c.Reason)).With(evidence...)
}

// concernsURL reports whether a sentence about some URLs of the hostname concerns this one: it
// names it, or names none.
func (ac *accountCheck) concernsURL(message string) bool {
	words := strings.FieldsFunc(message, func(r rune) bool { return strings.ContainsRune(" ,;", r) })
	return slices.Contains(words, ac.op.boundURL()) ||
		!slices.ContainsFunc(ac.op.boundURLs(), func(url string) bool { return slices.Contains(words, url) })
}

func (ac *accountCheck) agentByAccount() path.Hop {
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
	return path.OKf("%d of %d online", online, len(ac.found))
}

func (ac *accountCheck) offline(since string) path.Hop {
	return path.Brokenf(ac.startAgent(path.StartAgain), path.NoAgent, joinNonEmpty(" ", ac.url.String(), since))
}

// startAgent returns a remedy with the command line that starts an agent for the URL. A cluster
// that exports the URL has no such agent.
func (ac *accountCheck) startAgent(remedy string) string {
	if ac.exportContext == "" {
		remedy += "; if a cluster exports it, name that one with --export-context"
	}
	return remedy + ":\n" + path.AgentCommand(ac.url.Scheme, ac.url.String(), "")
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

// checkUpstream reports the result of the last call. It never connects to the upstream, which is
// named by the text.
func (fw *forwarders) checkUpstream(upstream string) path.Hop {
	known, why := fw.serving()
	var success, failure time.Time
	var reason, message string
	counted := false
	for _, f := range known {
		l := f.status.listener(fw.services.targetPort)
		if l == nil {
			continue
		}
		counted = counted || l.Connections != nil
		if l.LastSuccess.After(success) {
			success = l.LastSuccess
		}
		if l.LastFailure != nil && l.LastFailure.At.After(failure) {
			failure, reason, message = l.LastFailure.At, l.LastFailure.Reason, l.LastFailure.Message
		}
	}
	switch {
	case len(known) == 0:
		h := fw.unaskedHop(why)
		h.Fix = fw.callCommand()
		return h
	case failure.After(success) && reason == "agent_silent":
		return path.Brokenf("look at the agent's machine: its network, and whether its upstream takes connections",
			"the last connection, %s, ended with %s: %s", ago(fw.now, failure), reason, message)
	case failure.After(success) && strings.HasPrefix(reason, "upstream"):
		return path.Brokenf("start "+upstream+
			", or give the agent the address where it listens; the agent's screen has the details",
			"the last connection, %s, ended with %s: %s", ago(fw.now, failure), reason, message)
	case failure.After(success):
		h := path.Unknownf("the last connection, %s, ended before it got there, with %s: %s", ago(fw.now, failure),
			reason, message)
		h.Fix = fw.callCommand()
		return h
	case !success.IsZero():
		return path.OKf("the last connection, %s, got through", ago(fw.now, success))
	}
	h := path.Unknownf("no pod has called it yet")
	if !counted {
		h.Detail = "the forwarders have no record of past connections"
	}
	h.Fix = fw.callCommand()
	return h
}

// callCommand returns a command that calls the URL from a pod.
func (fw *forwarders) callCommand() string {
	const run = "run fairlead-call --rm -i --restart=Never --namespace %s --image="
	if fw.url.Scheme == "tcp" {
		return "try:\n" + fw.command(run+"busybox -- nc -zv %s %d", fw.url.Namespace(), fw.url.Host, fw.url.Port)
	}
	return "try:\n" + fw.command(run+"curlimages/curl -- curl -sS %s", fw.url.Namespace(), fw.url.String())
}
