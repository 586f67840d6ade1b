// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
)

const tunnelHelp = `Join tunnel groups: serve a port of this machine, or one that this machine reaches, to every tunnel_group backend of the account whose labels
this tunnel has. Cloud endpoints forward to such backends, by their policy or through a failover or weighted backend; what they are called by
(http or tcp) is for them to say. The tunnel itself has no URL, and any number of agents may carry the same labels: each new connection goes to
the one with the fewest.

TARGET is a PORT of this machine, HOST:PORT, or a URL without a path: http://, https:// (TLS from here to the upstream) or tcp://. The authtoken
needs a rule bind:<label>=<value> for each label, or bind:*. Ctrl-C ends the tunnel. Exit codes: fairlead --help.`

const tunnelExample = `  fairlead tunnel --label app=api --label site=a 8080
  fairlead tunnel --label app=api --label site=b https://10.0.0.7:8443`

func newTunnel(c console) *cobra.Command {
	f := &forward{console: c}
	var spec endpointSpec
	var labels []string
	cmd := &cobra.Command{
		Use:     "tunnel TARGET --label LABEL=VALUE [--label …]",
		Short:   "Join tunnel groups by labels, without a URL of its own",
		Long:    tunnelHelp,
		Example: tunnelExample,
		Args:    oneTarget("a PORT, HOST:PORT or URL", "fairlead tunnel --label app=api 8080"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.serveOne(cmd.Context(), func() (agent.Endpoint, error) {
				var err error
				if spec.labels, err = parseLabels(labels); err != nil {
					return agent.Endpoint{}, err
				}
				spec.upstream = args[0]
				e, wrong := spec.check()
				return e, wrong.asUsage()
			})
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&labels, "label", nil, "`LABEL=VALUE` that the tunnel has; may be repeated (at least one)")
	flags.StringVar(&spec.metadata, "metadata", "",
		fmt.Sprintf("`TEXT` for programs, at most %d bytes", account.MaxMetadata))
	addProtocol(cmd, &spec.protocol)
	f.addFlags(cmd)
	return cmd
}

func parseLabels(given []string) (map[string]string, error) {
	if len(given) == 0 {
		return nil, usagef("--label is missing: give at least one, e.g. --label app=api")
	}
	labels := make(map[string]string, len(given))
	for _, text := range given {
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usagef("--label %q: must be LABEL=VALUE, e.g. app=api", account.Shorten(text))
		}
		if _, twice := labels[key]; twice {
			return nil, usagef("--label %q: the label %s is given twice; a tunnel has one value for each", account.Shorten(text),
				account.Shorten(key))
		}
		labels[key] = value
	}
	return labels, nil
}
