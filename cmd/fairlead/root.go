// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

const rootHelp = `fairlead makes a port of this machine a private endpoint that pods in your Kubernetes clusters can
call. Nothing becomes public unless you give --binding public.

First time:
  fairlead config add-authtoken - --server https://fairlead.example.net:8443 --ca-file ca.crt
  fairlead http 8080 --url http://hello.demo        # then, in a pod: curl http://hello.demo
  fairlead status                                   # what is in force, and what is wrong with it

Settings come from flags, else from the environment (FAIRLEAD_SERVER_URL, FAIRLEAD_AUTHTOKEN,
FAIRLEAD_API_KEY, FAIRLEAD_CA_FILE, FAIRLEAD_CA_SHA256, FAIRLEAD_CONFIG), else from the config file
(~/.config/fairlead/config.yaml). Connections to the server honour HTTPS_PROXY, ALL_PROXY and
NO_PROXY.

Exit codes:
  0  stopped with Ctrl-C, SIGTERM or SIGHUP
  1  any other failure
  2  wrong usage: a flag, an argument or a setting; a traffic policy with mistakes
  3  the authtoken is missing, was refused or was revoked; the API key was refused
  4  another agent holds the URL
  5  the service ended the session for good, or speaks another protocol version
  6  the server is not trusted: wrong authority, fingerprint, host name or date. Agents keep trying,
     unless the fingerprint is wrong and a person is at the terminal`

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, c console) int {
	if c.plugin {
		c.err = pluginWriter{c.err}
	}
	root := newRoot(c)
	root.SetArgs(args)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	if err := root.ExecuteContext(ctx); err != nil {
		return report(c, err)
	}
	return 0
}

func newRoot(c console) *cobra.Command {
	root := &cobra.Command{
		Use:           "fairlead",
		Short:         "Private endpoints from anywhere, bound into your Kubernetes clusters",
		Long:          rootHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newHTTP(c), newTCP(c), newTunnel(c), newStart(c), newConnect(c), newDoctor(c), newExplain(c),
		newAPI(c), newPolicy(c), newConfig(c), newLogin(c), newLogout(c), newStatus(c), newSeal(c))
	cli.Setup(root, cli.TerminalColumns(c.out, c.env))
	if c.plugin {
		describePlugin(root)
	}
	return root
}

// flagError turns an error of the flag library, which names flag and value, into a usage error.
func flagError(cmd *cobra.Command, err error) error {
	if strings.Contains(err.Error(), "--authtoken") && strings.HasPrefix(err.Error(), "unknown flag") {
		return &cli.UsageError{
			Message: "there is no flag --authtoken: every user of this machine can read process arguments; " +
				agentconfig.AuthtokenHint + ", or give --authtoken-file"}
	}
	return cli.FlagError(cmd, err)
}
