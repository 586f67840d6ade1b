// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"strings"
	"time"
)

// checkUpstream reports the result of the last call. It never connects to the upstream.
func (w *diagnosis) checkUpstream(context.Context) Hop {
	known, why := w.servingForwarders()
	var success, failure time.Time
	var reason, message string
	counted := false
	for _, f := range known {
		l := f.status.listener(w.targetPort)
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
		h := w.unaskedHop(why)
		h.Fix = w.callCommand()
		return h
	case failure.After(success) && reason == "agent_silent":
		return broken("look at the agent's machine: its network, and whether its upstream takes connections",
			"the last connection, %s, ended with %s: %s", w.ago(failure), reason, message)
	case failure.After(success) && strings.HasPrefix(reason, "upstream"):
		return broken("start "+w.upstreamName()+
			", or give the agent the address where it listens; the agent's screen has the details",
			"the last connection, %s, ended with %s: %s", w.ago(failure), reason, message)
	case failure.After(success):
		h := unknown("the last connection, %s, ended before it got there, with %s: %s", w.ago(failure), reason, message)
		h.Fix = w.callCommand()
		return h
	case !success.IsZero():
		return ok("the last connection, %s, got through", w.ago(success))
	}
	h := unknown("no pod has called it yet")
	if !counted {
		h.Detail = "the forwarders have no record of past connections"
	}
	h.Fix = w.callCommand()
	return h
}

// upstreamName returns the upstream according to the account, where it was asked.
func (w *diagnosis) upstreamName() string {
	for _, e := range w.accountEndpoints {
		if e.UpstreamURL != "" {
			return e.UpstreamURL
		}
	}
	return "its upstream"
}

// callCommand returns a command that calls the URL from a pod.
func (w *diagnosis) callCommand() string {
	const run = "run fairlead-call --rm -i --restart=Never --namespace %s --image="
	if w.o.URL.Scheme == "tcp" {
		return "try:\n" + w.command(run+"busybox -- nc -zv %s %d", w.o.URL.Namespace(), w.o.URL.Host, w.o.URL.Port)
	}
	return "try:\n" + w.command(run+"curlimages/curl -- curl -sS %s", w.o.URL.Namespace(), w.url)
}
