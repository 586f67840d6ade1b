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

Nothing is served while the file has an error, in an entry that is not chosen, too; all errors are
listed. When the service refuses one of several, because its URL is taken, say, the others are
served, and the agent keeps trying that one. When the service refuses all of them, the agent exits
with the code of the first. Exit codes: fairlead --help.`

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

// selectEndpoints validates all of the config file, and returns the endpoints and tunnels that
// names or all select.
func selectEndpoints(s *agentconfig.Settings, names []string, all bool) ([]agent.Endpoint, error) {
	specs, problems := s.EndpointSpecs()
	selected, errs := selectSpecs(s, specs, names, all)
	if len(specs)+len(problems) == 0 {
		return nil, errors.Join(errs...)
	}
	endpoints, broken := validateSpecs(specs, selected)
	return endpoints, errors.Join(slices.Concat(errs, problems, broken)...)
}

func selectSpecs(
	s *agentconfig.Settings, specs []*agentconfig.EndpointSpec, names []string, all bool,
) (selected []*agentconfig.EndpointSpec, errs []error) {
	there := strings.Join(specNames(specs), ", ")
	switch {
	case len(specs) == 0:
		errs = append(errs, cli.Usagef("config file %q has no endpoints and no tunnels; `fairlead start --help` "+
			"shows how they are written", s.Path))
	case all && len(names) > 0:
		errs = append(errs, cli.Usagef("--all and names exclude each other: give one of them"))
	case all:
		return specs, nil
	case len(names) == 0:
		errs = append(errs, cli.Usagef("give --all, or names; config file %q has %s", s.Path, there))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	for i, name := range names {
		at := slices.IndexFunc(specs, func(e *agentconfig.EndpointSpec) bool { return e.Name == name })
		switch {
		case slices.Contains(names[:i], name):
		case at < 0:
			errs = append(errs, cli.Usagef("config file %q has no endpoint or tunnel %q; it has %s", s.Path,
				account.Shorten(name), there))
		default:
			selected = append(selected, specs[at])
		}
	}
	return selected, errs
}

// specNames returns the names that are usable.
func specNames(specs []*agentconfig.EndpointSpec) (names []string) {
	for _, e := range specs {
		if e.Name != "" {
			names = append(names, e.Name)
		}
	}
	return names
}

// validateSpecs returns what the agent binds for the selected ones of specs, the errors of all
// specs, and those of addresses that several selected ones have.
func validateSpecs(specs, selected []*agentconfig.EndpointSpec) (endpoints []agent.Endpoint, errs []error) {
	valid := map[*agentconfig.EndpointSpec]agent.Endpoint{}
	for _, spec := range specs {
		e, broken := validateFileSpec(spec)
		for _, err := range broken {
			errs = append(errs, err)
		}
		valid[spec] = e
	}
	byAddress := map[string]*agentconfig.EndpointSpec{} // by binding, host and port
	for _, spec := range selected {
		e := valid[spec]
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
	return endpoints, errs
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

func (e *usageErrors) Error() string {
	return strings.ReplaceAll(errors.Join(e.all...).Error(), "\n", "; ")
}

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
