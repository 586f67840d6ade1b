// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"time"
)

// checkUpstream reports the result of the last call. It never connects to the upstream, which is
// named by the text.
func (fw *forwarders) checkUpstream(upstream string) Hop {
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
		return broken("look at the agent's machine: its network, and whether its upstream takes connections",
			"the last connection, %s, ended with %s: %s", ago(fw.now, failure), reason, message)
	case failure.After(success) && strings.HasPrefix(reason, "upstream"):
		return broken("start "+upstream+
			", or give the agent the address where it listens; the agent's screen has the details",
			"the last connection, %s, ended with %s: %s", ago(fw.now, failure), reason, message)
	case failure.After(success):
		h := unknown("the last connection, %s, ended before it got there, with %s: %s", ago(fw.now, failure), reason,
			message)
		h.Fix = fw.callCommand()
		return h
	case !success.IsZero():
		return ok("the last connection, %s, got through", ago(fw.now, success))
	}
	h := unknown("no pod has called it yet")
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
