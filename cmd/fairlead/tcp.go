// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/agent"
)

const tcpHelp = `Serve any TCP server of this machine, or one that this machine reaches, as a tcp endpoint: a database, a broker, an SSH server.

TARGET is a PORT of this machine or HOST:PORT. Connections appear on the screen when they open and when they have ended. When the
upstream is down, callers' connections are closed; when the service is out of reach, the agent reconnects for as long as it takes and
keeps the endpoint's id. Ctrl-C removes the endpoint. Exit codes: fairlead --help.

Several agents serve one URL when all of them were started with --pooling-enabled: new connections then go to the agent that has the
fewest, and to the others when one is gone. Connections stay where they are.`

const tcpExample = `  fairlead tcp 5432 --url tcp://postgres.demo:5432                # pods connect to postgres.demo:5432
  fairlead tcp db.intern:5432 --url tcp://orders.db:5432 --description "orders, staging"
  fairlead tcp '[fd00::7]:22' --url tcp://build.hosts:22`

func newTCP(c console) *cobra.Command {
	f := &forward{console: c, scheme: "tcp"}
	cmd := &cobra.Command{
		Use:     "tcp TARGET --url tcp://SERVICE.NAMESPACE:PORT",
		Short:   "Serve any TCP server as an endpoint",
		Long:    tcpHelp,
		Example: tcpExample,
		Args:    oneTarget("a PORT or HOST:PORT", "fairlead tcp 5432 --url tcp://postgres.demo:5432"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.serveOne(cmd.Context(), func() (agent.Endpoint, error) { return f.endpoint.read(f.scheme, args[0]) })
		},
	}
	f.endpoint.add(cmd, "tcp://postgres.demo:5432")
	f.addFlags(cmd)
	return cmd
}
