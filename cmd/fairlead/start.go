// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

const startHelp = `Serve endpoints and tunnels of the config file over one session. Each is what fairlead http, tcp or
tunnel serves with flags:

` + agentconfig.EndpointsHelp + `

Nothing is served while any chosen entry has an error; all errors are listed. When the service
refuses one of several, because its URL is taken, say, the others are served, and the agent keeps
trying that one. When the service refuses all of them, the agent exits with the code of the first.
Exit codes: fairlead --help.`

const startExamples = `  fairlead start --all
  fairlead start web orders
  fairlead config check        # what is in the file, without connecting`

func newStart(c console) *cobra.Command {
	a := &agentCommand{console: c}
	var all bool
	cmd := &cobra.Command{
		Use:     "start --all | NAME...",
		Short:   "Serve endpoints and tunnels of the config file",
		Long:    startHelp,
		Example: startExamples,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(cmd.Context(), func(s *agentconfig.Settings) ([]agent.Endpoint, error) {
				return selectEndpoints(s, args, all)
			})
		},
		ValidArgsFunction: func(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return completeNames(c, a.settings)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "serve all endpoints and tunnels of the config file")
	a.addInspectFlags(cmd)
	a.addFlags(cmd)
	return cmd
}

// selectEndpoints validates the endpoints and tunnels of the config file that names or all select.
func selectEndpoints(s *agentconfig.Settings, names []string, all bool) ([]agent.Endpoint, error) {
	specs, problems := s.EndpointSpecs()
	if len(problems) > 0 {
		return nil, &usageErrors{problems}
	}
	if len(specs) == 0 {
		return nil,
			cli.Usagef(
				"config file %q has no endpoints and no tunnels; `fairlead start --help` shows how they are written",
				s.Path)
	}
	switch {
	case all && len(names) > 0:
		return nil, cli.Usagef("--all and names exclude each other: give one of them")
	case !all && len(names) == 0:
		return nil, cli.Usagef("give --all, or names; config file %q has %s", s.Path,
			strings.Join(specNames(specs), ", "))
	case !all:
		var err error
		if specs, err = selectSpecs(s, specs, names); err != nil {
			return nil, err
		}
	}
	return validateSpecs(specs)
}

func selectSpecs(
	s *agentconfig.Settings, specs []*agentconfig.EndpointSpec, names []string,
) ([]*agentconfig.EndpointSpec, error) {
	var selected []*agentconfig.EndpointSpec
	var unknown []error
	for i, name := range names {
		at := slices.IndexFunc(specs, func(e *agentconfig.EndpointSpec) bool { return e.Name == name })
		switch {
		case slices.Contains(names[:i], name):
		case at < 0:
			unknown = append(unknown, cli.Usagef("config file %q has no endpoint or tunnel %q; it has %s", s.Path,
				account.Shorten(name), strings.Join(specNames(specs), ", ")))
		default:
			selected = append(selected, specs[at])
		}
	}
	if len(unknown) > 0 {
		return nil, &usageErrors{unknown}
	}
	return selected, nil
}

func specNames(specs []*agentconfig.EndpointSpec) []string {
	names := make([]string, len(specs))
	for i, e := range specs {
		names[i] = e.Name
	}
	return names
}

// validateSpecs returns what the agent binds, or every error of any spec as usageErrors.
func validateSpecs(specs []*agentconfig.EndpointSpec) ([]agent.Endpoint, error) {
	var errs []error
	var endpoints []agent.Endpoint
	byAddress := map[string]*agentconfig.EndpointSpec{} // by binding, host and port
	for _, spec := range specs {
		e, broken := validateFileSpec(spec)
		for _, err := range broken {
			errs = append(errs, err)
		}
		endpoints = append(endpoints, e)
		if spec.Tunnel || e.URL.Host == "" {
			continue
		}
		key := e.Binding + " " + e.URL.HostPort()
		if other := byAddress[key]; other != nil {
			errs = append(errs, &agentconfig.SpecError{Spec: spec, Field: "url", Msg: fmt.Sprintf(
				"url %q: %s has this host and port, too; an agent serves each only once", spec.URLText, other.Title())})
		}
		byAddress[key] = spec
	}
	if len(errs) > 0 {
		return nil, &usageErrors{errs}
	}
	return endpoints, nil
}

// validateFileSpec validates an item of the config file. A field whose form is wrong has that error
// only. The name of a pool's member is not bound: with the same file on another machine it would
// name another member.
func validateFileSpec(spec *agentconfig.EndpointSpec) (agent.Endpoint, []*agentconfig.SpecError) {
	e, broken := validateSpec(spec)
	errs := slices.Clone(spec.Errors)
	for _, f := range broken {
		if !spec.HasError(f.Field) {
			errs = append(errs, &agentconfig.SpecError{Spec: spec, Field: f.Field, Msg: errorText(f.Field, f)})
		}
	}
	if spec.PoolingEnabled {
		e.Name = ""
	}
	return e, errs
}

// usageErrors are several errors of the command line or the settings, at least one.
type usageErrors struct{ all []error }

func (e *usageErrors) Error() string { return errors.Join(e.all...).Error() }

func (e *usageErrors) Unwrap() []error { return e.all }

// completeNames offers the names of the config file to a shell.
func completeNames(c console, flags agentconfig.Flags) ([]string, cobra.ShellCompDirective) {
	s, err := agentconfig.Load(flags, c.env, c.in)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	specs, _ := s.EndpointSpecs()
	return specNames(specs), cobra.ShellCompDirectiveNoFileComp
}
