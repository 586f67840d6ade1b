// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

const tunnelHelp = `Serve a port to tunnel groups, by labels. With --label app=api --label site=a the tunnel serves each
tunnel_group backend of the account that has no other labels than these: app=api, site=a, or both.
Cloud endpoints forward to such backends; the endpoint's URL sets the protocol, http or tcp. The
tunnel has no URL. The port is of this machine, or of one that this machine reaches.

Agents may have the same labels: each new connection goes to the agent with the fewest.

TARGET is a PORT of this machine, HOST:PORT, or a URL without a path: http://, https:// (TLS from
here to the upstream) or tcp://. The authtoken needs a rule bind:<label>=<value> for each label, or
bind:*. Ctrl-C ends the tunnel. Exit codes: fairlead --help.`

const tunnelExamples = `  fairlead tunnel --label app=api --label site=a 8080
  fairlead tunnel --label app=api --label site=b https://10.0.0.7:8443`

func newTunnel(c console) *cobra.Command {
	a := &agentCommand{console: c}
	spec := agentconfig.EndpointSpec{Tunnel: true}
	var labels []string
	cmd := &cobra.Command{
		Use:     "tunnel TARGET --label LABEL=VALUE [--label …]",
		Short:   "Serve a port to tunnel groups, by labels instead of a URL",
		Long:    tunnelHelp,
		Example: tunnelExamples,
		Args:    oneTarget("a PORT, HOST:PORT or URL", "fairlead tunnel --label app=api 8080"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.serveOne(cmd.Context(), func() (agent.Endpoint, error) {
				var err error
				if spec.Labels, err = parseLabels(labels); err != nil {
					return agent.Endpoint{}, err
				}
				spec.Target = args[0]
				e, broken := validateSpec(&spec)
				return e, broken.usageError()
			})
		},
	}
	cmd.Flags().StringArrayVar(&labels, "label", nil, "`LABEL=VALUE` of the tunnel; may be repeated (at least one)")
	addMetadata(cmd, &spec.Metadata)
	addUpstreamFlags(cmd, &spec)
	a.addFlags(cmd)
	return cmd
}

func parseLabels(given []string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, cli.Usagef("--label is missing: give at least one, e.g. --label app=api")
	}
	labels := make(map[string]string, len(given))
	for _, text := range given {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, cli.Usagef("--label %q: must be LABEL=VALUE, e.g. app=api", account.Shorten(text))
		}
		if _, duplicate := labels[key]; duplicate {
			return nil, cli.Usagef("--label %q: the label %s is given twice; a tunnel has one value for each",
				account.Shorten(text),
				account.Shorten(key))
		}
		labels[key] = value
	}
	return labels, nil
}
