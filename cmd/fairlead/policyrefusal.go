// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// refusedPolicy is a failure whose cause is the traffic policy of an endpoint, with a line for each mistake. As a text it is the failure's, in one line.
type refusedPolicy struct {
	error
	url   string
	lines []string
}

func (e *refusedPolicy) Unwrap() error { return e.error }

// policyMistake is how the service words one mistake of a policy among others, up to its message: field, value, line and column.
var policyMistake = regexp.MustCompile(`(?:^|; )traffic_policy(?: "(?:[^"\\]|\\.)*")?: line (\d+), column (\d+): `)

// byLine lists the mistakes of the traffic policy for which the service refused one of the endpoints. Other errors it returns as they are.
func byLine(err error, endpoints []agent.Endpoint) error {
	var failure *agent.Failure
	var refusal *tunnel.Error
	if !errors.As(err, &failure) || failure.Reason != agent.Refused || !errors.As(failure.Cause, &refusal) || failure.Endpoint >= len(endpoints) {
		return err
	}
	e := endpoints[failure.Endpoint]
	at := policyMistake.FindAllStringSubmatchIndex(refusal.Msg, -1)
	if len(at) == 0 || at[0][0] != 0 { // something else is wrong, too
		return err
	}
	lines := make([]string, len(at))
	for i, m := range at {
		end := len(refusal.Msg)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		lines[i] = mistakeLine(e.PolicyFile, refusal.Msg[m[2]:m[3]], refusal.Msg[m[4]:m[5]], refusal.Msg[m[1]:end])
	}
	return &refusedPolicy{error: err, url: e.URL.String(), lines: lines}
}

// mistakeLine is a mistake as `fairlead policy check` prints it; a policy that is in no file of its own has line and column only.
func mistakeLine(file, line, column, msg string) string {
	if file == "" {
		return fmt.Sprintf("line %s, column %s: %s", line, column, printable.Text(msg, maxError))
	}
	return fmt.Sprintf("%s:%s:%s: %s", printable.Text(file, maxError), line, column, printable.Text(msg, maxError))
}

// print writes the refusal in lines.
func (e *refusedPolicy) print(c console) {
	_, _ = fmt.Fprintf(c.err, "fairlead: the server refused the traffic policy of %s:\n", printable.Text(e.url, maxError))
	for _, line := range e.lines {
		_, _ = fmt.Fprintln(c.err, line)
	}
}
