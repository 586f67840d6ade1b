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
	"github.com/fairlead-dev/fairlead/internal/agentconfig"
)

const startHelp = `Serve endpoints and tunnels of the config file, several over one session. Each is what fairlead http, tcp or tunnel would serve with flags:

  endpoints:
    - name: web                     # for fairlead start web
      url: http://web.demo
      upstream: 8080                # PORT, HOST:PORT or URL
      traffic_policy_file: web.yml  # relative to the config file; or traffic_policy: inline
    - name: orders
      url: tcp://orders.db:5432
      upstream: db.intern:5432
  tunnels:
    - name: api
      labels: {app: api, site: a}
      upstream: 9000

Further fields of an endpoint: binding, description, metadata, upstream_protocol, host_header, pooling_enabled, replace_pool_policy; of a tunnel:
metadata, upstream_protocol. With pooling_enabled the name stays in the file: the members of a pool are told apart by their machines.

Anything wrong with one of them refuses the start, and everything that is wrong is listed. When the service refuses one of several (its URL is
taken, say), the others are served, and that one is tried again until it works; when it refuses all, the agent ends with the exit code of the
first. Exit codes: fairlead --help.`

const startExample = `  fairlead start --all
  fairlead start web orders
  fairlead config check        # what is in the file, without connecting`

func newStart(c console) *cobra.Command {
	f := &forward{console: c}
	var all bool
	cmd := &cobra.Command{
		Use:     "start --all | NAME...",
		Short:   "Serve endpoints and tunnels of the config file",
		Long:    startHelp,
		Example: startExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), func(s *agentconfig.Settings) ([]agent.Endpoint, error) {
				return chooseEntries(s, args, all)
			})
		},
		ValidArgsFunction: func(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return completeEntries(c, f.settings)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "serve all of them")
	f.addFlags(cmd)
	return cmd
}

// chooseEntries returns the entries of the config file that were asked for.
func chooseEntries(s *agentconfig.Settings, names []string, all bool) ([]agent.Endpoint, error) {
	entries, wrong := s.EndpointSpecs()
	if len(wrong) > 0 {
		return nil, &usageErrors{wrong}
	}
	if len(entries) == 0 {
		return nil,
			usagef("config file %q has no endpoints and no tunnels; `fairlead start --help` shows how they are written", s.Path)
	}
	chosen := entries
	switch {
	case all && len(names) > 0:
		return nil, usagef("--all and names exclude each other: give one of them")
	case !all && len(names) == 0:
		return nil, usagef("say which: give --all, or names; config file %q has %s", s.Path,
			strings.Join(entryNames(entries), ", "))
	case !all:
		var err error
		if chosen, err = pick(s, entries, names); err != nil {
			return nil, err
		}
	}
	return readEntries(chosen)
}

func pick(
	s *agentconfig.Settings, entries []*agentconfig.EndpointSpec, names []string,
) ([]*agentconfig.EndpointSpec, error) {
	var out []*agentconfig.EndpointSpec
	var wrong []error
	for i, name := range names {
		at := slices.IndexFunc(entries, func(e *agentconfig.EndpointSpec) bool { return e.Name == name })
		switch {
		case slices.Contains(names[:i], name):
		case at < 0:
			wrong = append(wrong, usagef("config file %q has no endpoint or tunnel %q; it has %s", s.Path, account.Shorten(name),
				strings.Join(entryNames(entries), ", ")))
		default:
			out = append(out, entries[at])
		}
	}
	if len(wrong) > 0 {
		return nil, &usageErrors{wrong}
	}
	return out, nil
}

func entryNames(entries []*agentconfig.EndpointSpec) []string {
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name
	}
	return names
}

// readEntries turns entries into what the agent binds, or lists everything that is wrong with any
// of them.
func readEntries(entries []*agentconfig.EndpointSpec) ([]agent.Endpoint, error) {
	var wrong []error
	var out []agent.Endpoint
	taken := map[string]*agentconfig.EndpointSpec{} // by host and port
	for _, entry := range entries {
		e, problems := readEntry(entry)
		wrong = append(wrong, problems...)
		out = append(out, e)
		if entry.Tunnel || e.URL.Host == "" {
			continue
		}
		key := e.Binding + " " + e.URL.HostPort()
		if other := taken[key]; other != nil {
			wrong = append(wrong,
				entry.ErrorAt("url", fmt.Sprintf("url %q: %s has this host and port, too; an agent serves each only once",
					entry.URL, other.Title())))
		}
		taken[key] = entry
	}
	if len(wrong) > 0 {
		return nil, &usageErrors{wrong}
	}
	return out, nil
}

func readEntry(entry *agentconfig.EndpointSpec) (agent.Endpoint, []error) {
	wrong := slices.Clone(entry.Errors)
	spec := endpointSpec{
		url: entry.URL, binding: entry.Binding, name: entry.Name, description: entry.Description, metadata: entry.Metadata,
		upstream: entry.Upstream, protocol: entry.UpstreamProtocol, hostHeader: entry.HostHeader, policy: entry.TrafficPolicy,
		policyFile: entry.TrafficPolicyFile,
		pooling:    entry.PoolingEnabled, replacePolicy: entry.ReplacePoolPolicy,
	}
	if spec.binding == "" {
		spec.binding = account.BindingKubernetes
	}
	if spec.pooling {
		spec.name = "" // the same file on another machine is another member
	}
	if entry.Tunnel {
		spec.labels = entry.Labels
		if spec.labels == nil {
			spec.labels = map[string]string{}
		}
	}
	e, problems := spec.check()
	for _, p := range problems {
		if said := slices.ContainsFunc(entry.Errors, func(err error) bool {
			return strings.Contains(err.Error(), ": "+p.Field)
		}); !said {
			wrong = append(wrong, entry.ErrorAt(p.Field, sentence(p.Field, p)))
		}
	}
	return e, wrong
}

// usageErrors is everything that is wrong, at least one error.
type usageErrors struct{ all []error }

func (e *usageErrors) Error() string { return errors.Join(e.all...).Error() }

func (e *usageErrors) Unwrap() []error { return e.all }

// completeEntries offers the names of the config file to a shell.
func completeEntries(c console, flags agentconfig.Flags) ([]string, cobra.ShellCompDirective) {
	s, err := agentconfig.Load(flags, c.env, c.in)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	entries, _ := s.EndpointSpecs()
	return entryNames(entries), cobra.ShellCompDirectiveNoFileComp
}
