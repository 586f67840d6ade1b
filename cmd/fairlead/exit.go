// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// The exit codes; rootHelp documents them.
const (
	exitOther       = 1
	exitUsage       = 2
	exitCredentials = 3
	exitURLTaken    = 4
	exitStopped     = 5
	exitIdentity    = 6
)

// formattedError is an error with the format in which its command reports errors.
type formattedError struct {
	error
	json bool
}

func (e *formattedError) Unwrap() error { return e.error }

const maxError = 2000 // characters of an error, which may quote the server

// report prints each error on a line of its own and returns the exit code.
func report(c console, err error) int {
	code := exitCode(err)
	if errors.Is(err, errBroken) || errors.Is(err, errInvalidPolicy) {
		return code // the command has printed it
	}
	if r, ok := errors.AsType[*formattedError](err); ok && r.json {
		line, _ := json.Marshal(map[string]any{"time": time.Now().UTC(), "level": "error", "event": "failed",
			"cause": err.Error(), "exit_code": code})
		_, _ = fmt.Fprintln(c.err, string(line))
		return code
	}
	if object, ok := errors.AsType[*objectError](err); ok {
		_, _ = c.err.Write(object.body().JSON())
		return code
	}
	if refused, ok := errors.AsType[*refusedRequest](err); ok {
		refused.print(c)
		return code
	}
	all := unjoin(err)
	if several, ok := errors.AsType[*usageErrors](err); ok {
		all = several.all
	}
	for _, e := range all {
		_, _ = fmt.Fprintln(c.err, "fairlead: "+printable.Escape(e.Error(), maxError))
	}
	return code
}

func exitCode(err error) int {
	var failure *agent.Failure
	switch {
	case errors.As(err, &failure):
		return map[agent.Reason]int{agent.ReasonCredentials: exitCredentials, agent.ReasonURLTaken: exitURLTaken,
			agent.ReasonStopped:  exitStopped,
			agent.ReasonIdentity: exitIdentity, agent.ReasonRefused: exitUsage}[failure.Reason]
	case errors.As(err, new(*usageErrors)):
		return exitUsage
	case errors.As(err, new(*agentconfig.CredentialError)),
		err != nil && account.CodeOf(err).Status() == http.StatusUnauthorized:
		return exitCredentials
	case errors.As(err, new(*cli.UsageError)), errors.Is(err, errInvalidPolicy),
		account.CodeOf(err) == account.CodeInvalid:
		return exitUsage
	case trust.ProblemOf(err) != trust.NoProblem:
		return exitIdentity
	}
	return exitOther
}

// withRemedy adds a remedy to a failure of the agent.
func withRemedy(err error, s *agentconfig.Settings) error {
	var failure *agent.Failure
	if !errors.As(err, &failure) {
		return err
	}
	remedy := ""
	switch failure.Reason {
	case agent.ReasonCredentials:
		remedy = "the authtoken in use is the one from " + s.AuthtokenSource()
	case agent.ReasonIdentity:
		remedy = identityRemedy(trust.ProblemOf(failure), s)
	}
	if remedy == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, remedy)
}

// remedyObserver is an agent.Observer that adds the remedy to reports of a server that is not
// trusted.
type remedyObserver struct {
	agent.Observer
	settings *agentconfig.Settings
}

// Observe implements agent.Observer.
func (o *remedyObserver) Observe(e agent.Event) {
	if r, ok := e.(agent.Retrying); ok {
		if remedy := identityRemedy(r.Untrusted, o.settings); remedy != "" {
			r.Cause += "; " + remedy
			e = r
		}
	}
	o.Observer.Observe(e)
}

// withIdentityRemedy adds the remedy to an error that a server that is not trusted causes.
func withIdentityRemedy(err error, s *agentconfig.Settings) error {
	if remedy := identityRemedy(trust.ProblemOf(err), s); remedy != "" {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	return err
}

// identityRemedy returns a remedy for a server that is not trusted, or "".
func identityRemedy(p trust.Problem, s *agentconfig.Settings) string {
	source := trustSource(s)
	switch {
	case p == trust.WrongHost:
		return "call the server by a name that its certificate holds, or add this name to it (fairlead-server " +
			"--tls-san)"
	case p == trust.UnknownAuthority && source == "":
		return "give the server's authority with --ca-file, or its fingerprint with --ca-sha256"
	case p == trust.UnknownAuthority, p == trust.WrongPin:
		return "compare " + source + " with what the server has (fairlead-server ca)"
	}
	return ""
}

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
