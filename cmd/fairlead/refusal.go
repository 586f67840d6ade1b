// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// refusedRequest is a failure for which the service lists what is wrong. As a text it is the
// failure's, in one line.
type refusedRequest struct {
	error
	what  string // "the traffic policy of http://web.demo"
	lines []string
}

func (e *refusedRequest) Unwrap() error { return e.error }

// listRefusal lists the mistakes for which the service refused one of the endpoints. Other errors
// it returns as they are.
func listRefusal(err error, endpoints []agent.Endpoint) error {
	var failure *agent.Failure
	var refusal *tunnel.Error
	if !errors.As(err, &failure) || failure.Reason != agent.ReasonRefused || !errors.As(failure.Cause, &refusal) ||
		failure.Endpoint >= len(endpoints) {
		return err
	}
	e := endpoints[failure.Endpoint]
	fields := make([]account.FieldError, len(refusal.Errors))
	for i, f := range refusal.Errors {
		fields[i] = account.FieldError(f)
	}
	return list(err, e.URL.String(), "the traffic policy of "+e.URL.String(), e.TrafficPolicyFile, fields)
}

// list makes an error of several mistakes, or of some in a policy, one with a line for each. Others
// it returns as they are. The file is the policy's, and policy what is said to be refused where
// only the policy has mistakes.
func list(err error, what, policy, file string, fields []account.FieldError) error {
	inPolicy := func(f account.FieldError) bool { return f.Line > 0 }
	if len(fields) < 2 && !slices.ContainsFunc(fields, inPolicy) {
		return err
	}
	lines := make([]string, len(fields))
	for i, f := range fields {
		if lines[i] = printable.Escape(f.String(), maxError); inPolicy(f) {
			msg := strings.TrimPrefix(f.Rule, fmt.Sprintf("line %d, column %d: ", f.Line, f.Column))
			lines[i] = mistakeLine(file, f.Line, f.Column, msg)
		}
	}
	if !slices.ContainsFunc(fields, func(f account.FieldError) bool { return f.Field != "traffic_policy" }) {
		what = policy
	}
	return &refusedRequest{error: err, what: what, lines: lines}
}

// mistakeLine is a mistake as `fairlead policy check` prints it; a policy that is in no file of its
// own has line and column only.
func mistakeLine(file string, line, column int, msg string) string {
	if file == "" {
		return fmt.Sprintf("line %d, column %d: %s", line, column, printable.Escape(msg, maxError))
	}
	return fmt.Sprintf("%s:%d:%d: %s", printable.Escape(file, maxError), line, column, printable.Escape(msg, maxError))
}

// print writes the refusal in lines.
func (e *refusedRequest) print(c console) {
	_, _ = fmt.Fprintf(c.err, "fairlead: the server refused %s:\n", printable.Escape(e.what, maxError))
	for _, line := range e.lines {
		_, _ = fmt.Fprintln(c.err, line)
	}
}
