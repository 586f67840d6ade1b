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

// refusedRequest is a failure with the list of mistakes that the service sent. Error returns the
// failure in one line.
type refusedRequest struct {
	error
	what  string // "the traffic policy of http://web.demo"
	lines []string
}

func (e *refusedRequest) Unwrap() error { return e.error }

// listRefusal adds the mistakes for which the service refused an endpoint. It returns other errors
// unchanged.
func listRefusal(err error) error {
	var failure *agent.Failure
	var refusal *tunnel.Error
	if !errors.As(err, &failure) || failure.Reason != agent.ReasonRefused || !errors.As(failure.Cause, &refusal) ||
		failure.Endpoint == nil {
		return err
	}
	e := failure.Endpoint
	fields := make([]account.FieldError, len(refusal.Errors))
	for i, f := range refusal.Errors {
		fields[i] = account.FieldError(f)
	}
	return withMistakes(err, e.URL.String(), "the traffic policy of "+e.URL.String(), e.TrafficPolicyFile, fields)
}

// withMistakes returns a refusedRequest for several mistakes, or for mistakes in a policy, and
// other errors unchanged. file is the policy's; policy is the subject of the sentence when only the
// policy has mistakes.
func withMistakes(err error, what, policy, file string, fields []account.FieldError) error {
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

// mistakeLine formats a mistake as `fairlead policy check` does. Without a file it has line and
// column only.
func mistakeLine(file string, line, column int, msg string) string {
	if file == "" {
		return fmt.Sprintf("line %d, column %d: %s", line, column, printable.Escape(msg, maxError))
	}
	return fmt.Sprintf("%s:%d:%d: %s", printable.Escape(file, maxError), line, column, printable.Escape(msg, maxError))
}

// print writes the refusal, a line for each mistake.
func (e *refusedRequest) print(c console) {
	_, _ = fmt.Fprintf(c.err, "fairlead: the server refused %s:\n", printable.Escape(e.what, maxError))
	for _, line := range e.lines {
		_, _ = fmt.Fprintln(c.err, line)
	}
}
