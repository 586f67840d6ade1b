// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
)

const httpHelp = `Serve a web server as an http endpoint. The server runs on this machine or on one that this
machine reaches.

TARGET is a PORT of this machine, HOST:PORT, or a URL without a path: http://HOST[:PORT] or
https://HOST[:PORT]. The certificate of an https upstream is verified against the system's
authorities, or those of --upstream-ca-file.

The screen shows each request. While the upstream is down, callers get a 502. While the service
cannot be reached, the agent keeps trying; the endpoint keeps its id. Ctrl-C removes the endpoint.
Exit codes: fairlead --help.

On a terminal the agent serves an inspector for this machine, at http://127.0.0.1:4040 or the next
free port: requests and answers as they come, and replay. It keeps the last 500 requests, in memory
only. --inspect=false turns it off, --inspect turns it on without a terminal.

Agents share one URL when all of them are started with --pooling-enabled. Each new request goes to
the agent with the fewest open requests, and to the others when one is gone.`

const httpExamples = `  fairlead http 8080 --url http://hello.demo                         # pods call http://hello.demo
  fairlead http http://10.0.0.7:3000 --url http://wiki.tools:8080    # a server on another machine
  fairlead http https://intranet.corp --url http://intranet.corp --host-header rewrite   # TLS upstream
  fairlead http '[::1]:50051' --url http://grpc.demo --upstream-protocol http2
  fairlead http 8080 --url http://hello.demo --pooling-enabled       # on several machines
  fairlead http 8080 --url https://app.example.com --binding public  # callable from the internet
  fairlead http 8080 --url http://hello.demo --log-format json | jq .`

const tcpHelp = `Serve any TCP server as a tcp endpoint: a database, a broker, an SSH server. The server runs on
this machine or on one that this machine reaches.

TARGET is a PORT of this machine or HOST:PORT.

The screen shows each connection when it opens and when it ends. While the upstream is down,
callers' connections are closed. While the service cannot be reached, the agent keeps trying; the
endpoint keeps its id. Ctrl-C removes the endpoint. Exit codes: fairlead --help.

Agents share one URL when all of them are started with --pooling-enabled. Each new connection goes
to the agent with the fewest, and to the others when one is gone. Open connections do not move.`

const tcpExamples = `  fairlead tcp 5432 --url tcp://postgres.demo:5432     # pods connect to postgres.demo:5432
  fairlead tcp db.intern:5432 --url tcp://orders.db:5432 --description "orders, staging"
  fairlead tcp '[fd00::7]:22' --url tcp://build.hosts:22`

// endpointCommand is `fairlead http` or `fairlead tcp`.
type endpointCommand struct {
	agentCommand

	scheme      string
	targetForms string // the forms of TARGET
	exampleURL  string
	spec        agentconfig.EndpointSpec
}

func newHTTP(c console) *cobra.Command {
	e := &endpointCommand{agentCommand: agentCommand{console: c}, scheme: "http",
		targetForms: "a PORT, HOST:PORT or URL", exampleURL: "http://hello.demo"}
	cmd := e.command(&cobra.Command{
		Use: "http TARGET --url http://SERVICE.NAMESPACE[:PORT]", Short: "Serve a web server as an endpoint",
		Long: httpHelp, Example: httpExamples,
	}, "fairlead http 8080 --url http://hello.demo")
	addUpstreamFlags(cmd, &e.spec)
	e.addInspectFlags(cmd)
	cmd.Flags().StringVar(&e.spec.HostHeader, "host-header", account.HostPassthrough,
		"the Host that the upstream gets: passthrough (as the caller sent it), rewrite (the upstream's own host and "+
			"port), or a `VALUE`")
	cli.CompleteValues(cmd, "host-header", account.HostPassthrough, account.HostRewrite)
	return cmd
}

func newTCP(c console) *cobra.Command {
	e := &endpointCommand{agentCommand: agentCommand{console: c}, scheme: "tcp",
		targetForms: "a PORT or HOST:PORT", exampleURL: "tcp://postgres.demo:5432"}
	return e.command(&cobra.Command{
		Use: "tcp TARGET --url tcp://SERVICE.NAMESPACE:PORT", Short: "Serve any TCP server as an endpoint",
		Long: tcpHelp, Example: tcpExamples,
	}, "fairlead tcp 5432 --url tcp://postgres.demo:5432")
}

// command completes cmd with the arguments, the flags and the action of both commands.
func (e *endpointCommand) command(cmd *cobra.Command, example string) *cobra.Command {
	cmd.Args = oneTarget(e.targetForms, example)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.serveOne(cmd.Context(), func() (agent.Endpoint, error) {
			e.spec.Upstream = args[0]
			return e.endpoint()
		})
	}
	e.addEndpointFlags(cmd)
	e.addFlags(cmd)
	return cmd
}

func (e *endpointCommand) addEndpointFlags(cmd *cobra.Command) {
	s, flags := &e.spec, cmd.Flags()
	flags.Var(&onceValue{to: &s.URL}, "url", "`URL` at which the endpoint is called, e.g. "+e.exampleURL+" (required)")
	flags.StringVar(&s.Binding, "binding", account.BindingKubernetes,
		"where the endpoint can be called from: kubernetes (pods of the account's clusters), internal (traffic "+
			"policies of the account, at a URL below .internal), or public (everywhere, at a URL below a domain "+
			"that the server grants to the account)")
	cli.CompleteValues(cmd, "binding", account.BindingKubernetes, account.BindingInternal, account.BindingPublic)
	flags.StringVar(&s.Name, "name", "", fmt.Sprintf("`NAME` of the endpoint, at most %d bytes", account.MaxName))
	flags.StringVar(&s.Description, "description", "",
		fmt.Sprintf("`TEXT` for people, at most %d bytes", account.MaxDescription))
	addMetadata(cmd, &s.Metadata)
	flags.BoolVar(&s.PoolingEnabled, "pooling-enabled", false,
		"share the URL with every other agent that is started with this flag: each new call goes to the agent that "+
			"serves the fewest. Members of such a pool are told apart by --name, or by an id that each agent keeps "+
			"in its state directory")
	flags.StringVar(&s.TrafficPolicyFile, "traffic-policy-file", "",
		fmt.Sprintf("`FILE` with the endpoint's traffic policy (YAML or JSON, at most %d KiB): who may call, and what "+
			"happens to calls; `fairlead policy check` checks one", account.MaxTrafficPolicy>>10))
	flags.BoolVar(&s.ReplacePoolPolicy, "replace-pool-policy", false,
		"give all members of the pool this agent's traffic policy; without it a member with another policy is refused")
}

func addMetadata(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "metadata", "", fmt.Sprintf("`TEXT` for programs, at most %d bytes", account.MaxMetadata))
}

func addUpstreamFlags(cmd *cobra.Command, s *agentconfig.EndpointSpec) {
	cmd.Flags().StringVar(&s.UpstreamCAFile, "upstream-ca-file", "",
		"PEM `FILE` of the certificate authorities to trust for an https upstream; default the system's")
	cmd.Flags().StringVar(&s.UpstreamProtocol, "upstream-protocol", agent.ProtocolHTTP1,
		"protocol of the upstream: http1 or http2 (gRPC)")
	cli.CompleteValues(cmd, "upstream-protocol", agent.ProtocolHTTP1, agent.ProtocolHTTP2)
}

// oneTarget is the Args of http, tcp and tunnel.
func oneTarget(forms, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return cli.Usagef("%s needs one argument, %s, and got %d; e.g. %s", cmd.CommandPath(), forms, len(args),
			example)
	}
}

// endpoint validates the flags.
func (e *endpointCommand) endpoint() (agent.Endpoint, error) {
	s := &e.spec
	if s.URL == "" {
		return agent.Endpoint{},
			cli.Usagef("--url is missing: give the URL at which the endpoint is called, e.g. --url %s",
				e.exampleURL)
	}
	if s.TrafficPolicyFile != "" {
		var err error
		if s.TrafficPolicy, err = agentconfig.ReadPolicyFile(s.TrafficPolicyFile); err != nil {
			return agent.Endpoint{}, cli.Usagef("--traffic-policy-file: %v", err)
		}
	}
	u, err := account.ParseBindingURL(s.Binding, s.URL)
	if command := commandOf(u.Scheme); err == nil && command != e.scheme {
		return agent.Endpoint{},
			cli.Usagef(
				"--url %q: `fairlead %s` serves %s endpoints; use `fairlead %s`, or a URL that begins with %s://",
				s.URL,
				e.scheme, e.scheme, command, e.scheme)
	}
	endpoint, broken := validateSpec(s)
	return endpoint, broken.usageError()
}

// onceValue is a flag's value that can be given once: of two URLs one would go unserved.
type onceValue struct {
	to    *string
	given bool
}

func (v *onceValue) String() string { return "" }
func (v *onceValue) Type() string   { return "string" }

func (v *onceValue) Set(text string) error {
	if v.given {
		return fmt.Errorf("an agent started so serves one URL, and %s was given before; write several into the config "+
			"file and run `fairlead start --all`, or run one agent for each", *v.to)
	}
	*v.to, v.given = text, true
	return nil
}
