// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

const httpHelp = `Serve a web server of this machine, or one that this machine reaches, as an http endpoint.

TARGET is a PORT of this machine, HOST:PORT, or a URL without a path: http://HOST[:PORT] or https://HOST[:PORT]. The certificate of an
https upstream is verified against the system's authorities (SSL_CERT_FILE names others).

Requests appear on the screen. When the upstream is down, callers get a 502 until it is back; when the service is out of reach, the
agent reconnects for as long as it takes and keeps the endpoint's id. Ctrl-C removes the endpoint. Exit codes: fairlead --help.

Several agents serve one URL when all of them were started with --pooling-enabled: requests then go to the agent that has the fewest open,
and to the others when one is gone.`

const httpExample = `  fairlead http 8080 --url http://hello.demo                      # pods call http://hello.demo
  fairlead http http://10.0.0.7:3000 --url http://wiki.tools:8080  # another machine; pods call http://wiki.tools:8080
  fairlead http https://intranet.corp --url http://intranet.corp --host-header rewrite   # TLS from here to the upstream, which sees its own name
  fairlead http '[::1]:50051' --url http://grpc.demo --upstream-protocol http2
  fairlead http 8080 --url http://hello.demo --pooling-enabled      # here and on other machines: they share the calls
  fairlead http 8080 --url https://app.example.com --binding public  # everybody calls https://app.example.com
  fairlead http 8080 --url http://hello.demo --log-format json | jq .`

func newHTTP(c console) *cobra.Command {
	f := &forward{console: c, scheme: "http"}
	cmd := &cobra.Command{
		Use:     "http TARGET --url http://SERVICE.NAMESPACE[:PORT]",
		Short:   "Serve a web server as an endpoint",
		Long:    httpHelp,
		Example: httpExample,
		Args:    oneTarget("a PORT, HOST:PORT or URL", "fairlead http 8080 --url http://hello.demo"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.serveOne(cmd.Context(), func() (agent.Endpoint, error) { return f.endpoint.read(f.scheme, args[0]) })
		},
	}
	f.endpoint.add(cmd, "http://hello.demo")
	addProtocol(cmd, &f.endpoint.protocol)
	cmd.Flags().StringVar(&f.endpoint.hostHeader, "host-header", account.HostPassthrough,
		"the Host that the upstream sees: "+
			"passthrough (what the caller sent), rewrite (the upstream's own host and port), or a `VALUE`")
	cli.CompleteValues(cmd, "host-header", account.HostPassthrough, account.HostRewrite)
	f.addFlags(cmd)
	return cmd
}
