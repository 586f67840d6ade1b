// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/agent/screen"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

func newPolicy(c console) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Check traffic policies before they are set",
		Example: "  fairlead policy check policy.yaml"}
	cmd.AddCommand(newPolicyCheck(c))
	return cmd
}

// errInvalidPolicy sets the exit code of wrong usage after every mistake was printed.
var errInvalidPolicy = errors.New("a policy has mistakes")

func newPolicyCheck(c console) *cobra.Command {
	var o trafficpolicy.Options
	var output string
	cmd := &cobra.Command{
		Use:   "check FILE...|-",
		Short: "Print the mistakes or the contents of traffic policies",
		Long: `Read traffic policies in YAML or JSON, as the service does when one is set, and print every mistake
as FILE:LINE:COLUMN: MESSAGE. For a policy without mistakes, print its phases, rules, actions and the
backends that it forwards to. With - the policy is read from standard input. With -o json, for editors
and CI, print the mistakes of all files alone, as a list of {file, line, column, field, message}.

The command connects to nothing; whether the backends exist is checked when the policy is set.`,
		Example: `  fairlead policy check policy.yaml
  fairlead policy check --scheme tcp db-policy.yaml
  fairlead policy check -o json *.yaml | jq -r '.[] | "\(.file):\(.line): \(.field): \(.message)"'
  helm template . | yq .policy | fairlead policy check -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("%s needs files, or - for standard input", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return checkPolicies(c, o, args, output) },
	}
	cmd.Flags().StringVar(&o.Scheme, "scheme", "http", "`SCHEME` of the endpoint: http, https or tcp")
	cmd.Flags().StringVar(&o.Binding, "binding", "",
		"`BINDING` of the endpoint: kubernetes, internal or public; default any")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the answer: text or json")
	cli.CompleteValues(cmd, "output", "text", "json")
	return cmd
}

// policyMistake is a mistake in a policy, as -o json prints it.
type policyMistake struct {
	File    string `json:"file"`
	Line    int    `json:"line"` // Line and Column count from 1, in characters.
	Column  int    `json:"column"`
	Field   string `json:"field"` // Field is that of trafficpolicy.FieldAt.
	Message string `json:"message"`
}

func checkPolicies(c console, o trafficpolicy.Options, files []string, output string) error {
	switch {
	case !slices.Contains([]string{"http", "https", "tcp"}, o.Scheme):
		return cli.Usagef("--scheme %q: must be http, https or tcp", o.Scheme)
	case !slices.Contains([]string{"", "kubernetes", "internal", "public"}, o.Binding):
		return cli.Usagef("--binding %q: must be kubernetes, internal or public", o.Binding)
	case output != "text" && output != "json":
		return cli.Usagef("--output %q: must be text or json", output)
	}
	var result, unreadable error
	mistakes := []policyMistake{}
	for _, file := range files {
		name, text, err := readPolicy(c, file)
		if err != nil {
			unreadable = errors.Join(unreadable, err)
			continue
		}
		policy, problems := trafficpolicy.Check(text, o)
		for _, p := range problems {
			result = errInvalidPolicy
			mistakes = append(mistakes, policyMistake{name, p.Line, p.Column,
				trafficpolicy.FieldAt(text, p.Line, p.Column), p.Msg})
			if output == "text" {
				_, _ = fmt.Fprintf(c.err, "%s:%d:%d: %s\n", screen.Escape(name), p.Line, p.Column, screen.Escape(p.Msg))
			}
		}
		if len(problems) > 0 || output == "json" {
			continue
		}
		if _, err := fmt.Fprintf(c.out, "%s: %s\n", screen.Escape(name), summary(policy)); err != nil {
			return fmt.Errorf("writing the summary: %w", err)
		}
	}
	if output == "json" {
		if err := cli.WriteJSON(c.out, mistakes); err != nil {
			return fmt.Errorf("writing the mistakes: %w", err)
		}
	}
	if unreadable != nil {
		return asUsageErrors(unreadable)
	}
	return result
}

// readPolicy reads a file, at most one byte more than a policy may have.
func readPolicy(c console, file string) (name, text string, err error) {
	name, in := file, c.in
	if file == "-" {
		name = "(standard input)"
	} else {
		f, err := os.Open(file)
		if err != nil {
			return "", "", cli.Usagef("opening the policy: %v", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, trafficpolicy.MaxBytes+1))
	if err != nil {
		return "", "", cli.Usagef("reading the policy %s: %v", name, err)
	}
	return name, string(b), nil
}

func summary(p *trafficpolicy.Policy) string {
	s := p.Summary()
	if s.Rules == 0 {
		return "no rules"
	}
	text := printable.Count(s.Rules, "rule", "rules") + " in " + strings.Join(s.Phases, ", ") + "; actions " +
		strings.Join(s.Actions, ", ")
	if backends := p.Facts().Backends; len(backends) > 0 {
		text += "; backends " + strings.Join(backends, ", ")
	}
	return text
}
