// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

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
authorities, those of --upstream-ca-file, or the fingerprint of --upstream-ca-sha256, for its host
or the --upstream-server-name.

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
  fairlead http 8080 --url http://hello.demo --sealed hello          # the service cannot read it: fairlead seal --help
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
  fairlead tcp '[fd00::7]:22' --url tcp://build.hosts:22
  fairlead tcp 25 --url tcp://mail.demo:25 --proxy-protocol 2   # the server logs callers' addresses`

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
	addProxyProtocol(cmd, &e.spec) // refused, with a sentence about X-Forwarded-For
	_ = cmd.Flags().MarkHidden("proxy-protocol")
	e.addInspectFlags(cmd)
	cmd.Flags().StringVar(&e.spec.HostMode, "host-header", account.HostPassthrough,
		"the Host that the upstream gets: passthrough (as the caller sent it), rewrite (the upstream's own host and "+
			"port), or a `VALUE`")
	cli.CompleteValues(cmd, "host-header", account.HostPassthrough, account.HostRewrite)
	return cmd
}

func newTCP(c console) *cobra.Command {
	e := &endpointCommand{agentCommand: agentCommand{console: c}, scheme: "tcp",
		targetForms: "a PORT or HOST:PORT", exampleURL: "tcp://postgres.demo:5432"}
	cmd := e.command(&cobra.Command{
		Use: "tcp TARGET --url tcp://SERVICE.NAMESPACE:PORT", Short: "Serve any TCP server as an endpoint",
		Long: tcpHelp, Example: tcpExamples,
	}, "fairlead tcp 5432 --url tcp://postgres.demo:5432")
	addProxyProtocol(cmd, &e.spec)
	return cmd
}

func addProxyProtocol(cmd *cobra.Command, s *agentconfig.EndpointSpec) {
	cmd.Flags().StringVar(&s.Upstream.ProxyProtocol, "proxy-protocol", "",
		"`VERSION`, 1 or 2, of the PROXY protocol's header that a tcp upstream reads: it names the caller")
	cli.CompleteValues(cmd, "proxy-protocol", agent.ProxyProtocol1, agent.ProxyProtocol2)
}

// command completes cmd with the arguments, the flags and the action of both commands.
func (e *endpointCommand) command(cmd *cobra.Command, example string) *cobra.Command {
	cmd.Args = oneTarget(e.targetForms, example)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return e.serveOne(cmd.Context(), func() (agent.Endpoint, error) {
			e.spec.Target = args[0]
			return e.endpoint()
		})
	}
	e.addEndpointFlags(cmd)
	e.addFlags(cmd)
	return cmd
}

func (e *endpointCommand) addEndpointFlags(cmd *cobra.Command) {
	s, flags := &e.spec, cmd.Flags()
	flags.Var(&onceValue{to: &s.URLText}, "url",
		"`URL` at which the endpoint is called, e.g. "+e.exampleURL+" (required)")
	flags.StringVar(&s.Binding, "binding", account.BindingKubernetes,
		"where the endpoint can be called from: kubernetes (pods of the account's clusters), internal (traffic "+
			"policies of the account, at a URL below .internal), or public (everywhere, at a URL below a domain "+
			"that the server grants to the account)")
	cli.CompleteValues(cmd, "binding", account.BindingKubernetes, account.BindingInternal, account.BindingPublic)
	flags.StringVar(&s.Name, "name", "", fmt.Sprintf("`NAME` of the endpoint, at most %d bytes", account.MaxName))
	flags.StringVar(&s.Description, "description", "",
		fmt.Sprintf("`TEXT` for people, at most %d bytes", account.MaxDescription))
	addMetadata(cmd, &s.Metadata)
	flags.StringVar(&s.ServiceLabels, "service-labels", "",
		"`KEY=VALUE,KEY=VALUE` of labels for the endpoint's Services, in clusters whose owners admit the keys")
	flags.BoolVar(&s.PoolingEnabled, "pooling-enabled", false,
		"share the URL with every other agent that is started with this flag: each new call goes to the agent that "+
			"serves the fewest. Members of such a pool are told apart by --name, or by an id that each agent keeps "+
			"in its state directory")
	flags.StringVar(&s.TrafficPolicyFile, "traffic-policy-file", "",
		fmt.Sprintf("`FILE` with the endpoint's traffic policy (YAML or JSON, at most %d KiB): who may call, and what "+
			"happens to calls; `fairlead policy check` checks one", account.MaxTrafficPolicy>>10))
	flags.BoolVar(&s.ReplacePoolPolicy, "replace-pool-policy", false,
		"give all members of the pool this agent's traffic policy; without it a member with another policy is refused")
	flags.StringVar(&s.Sealed, "sealed", "",
		"`FOLDER` with tls.crt and tls.key, as fairlead seal and cert-manager write them: connections are encrypted "+
			"from the caller's cluster to this agent, which serves no others and applies the traffic policy itself")
	flags.StringVar(&s.SealCallers, "seal-callers", "",
		"PEM `FILE` of the authorities that have signed the certificates of clusters: callers without one are refused")
	flags.StringVar(&s.SealClusters, "seal-clusters", "",
		"`FILE` of fairlead seal clusters, signed by one of these authorities: it admits callers by their "+
			"ServiceAccounts' tokens, too")
}

func addMetadata(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "metadata", "", fmt.Sprintf("`TEXT` for programs, at most %d bytes", account.MaxMetadata))
}

func addUpstreamFlags(cmd *cobra.Command, s *agentconfig.EndpointSpec) {
	cmd.Flags().StringVar(&s.Trust.CAFile, "upstream-ca-file", "",
		"PEM `FILE` of the certificate authorities to trust for an https upstream; default the system's")
	cmd.Flags().StringVar(&s.Trust.CASHA256, "upstream-ca-sha256", "",
		"SHA-256 `FINGERPRINT` of the key of an authority, or of the certificate itself, to trust for an https "+
			"upstream instead")
	cmd.Flags().StringVar(&s.ServerName, "upstream-server-name", "",
		"`NAME` that the certificate of an https upstream is for, sent as SNI; default the upstream's host")
	cmd.Flags().StringVar(&s.Upstream.Protocol, "upstream-protocol", agent.ProtocolHTTP1,
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
	if s.URLText == "" {
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
	endpoint, broken := validateSpec(s)
	if command := commandOf(endpoint.URL.Scheme); command != "" && command != e.scheme {
		return agent.Endpoint{},
			cli.Usagef(
				"--url %q: `fairlead %s` serves %s endpoints; use `fairlead %s`, or a URL that begins with %s://",
				s.URLText, e.scheme, e.scheme, command, e.scheme)
	}
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

// fieldErrors are the broken rules of an endpoint spec. Fields have the names of the config file.
type fieldErrors []account.FieldError

func (b *fieldErrors) add(field, value, rule string) {
	*b = append(*b, account.FieldError{Field: field, Value: value, Rule: rule})
}

// validateSpec returns the endpoint or labelled tunnel that the agent binds, and every broken rule.
func validateSpec(s *agentconfig.EndpointSpec) (agent.Endpoint, fieldErrors) {
	var broken fieldErrors
	e := s.Endpoint
	if s.Tunnel {
		e.Name, e.Upstream = "", parseUpstream("", s, &broken) // the name is the config file's
		broken = append(broken, account.FieldsOf(account.ValidateLabels(s.Labels))...)
		broken.checkText("metadata", s.Metadata, account.MaxMetadata)
		return e, broken
	}
	e.URL = parseURL(s, &broken)
	scheme := commandOf(e.URL.Scheme)
	if scheme == "" { // the URL is invalid; the other fields are checked as those of an http endpoint
		scheme = "http"
	}
	e.Upstream = parseUpstream(scheme, s, &broken)
	for _, f := range account.FieldsOf(account.ValidateHTTPOptions(scheme, s.Upstream.Protocol, s.HostMode)) {
		broken.add(strings.Replace(f.Field, "host_mode", "host_header", 1), f.Value, f.Rule)
	}
	broken.checkText("name", s.Name, account.MaxName)
	broken.checkText("description", s.Description, account.MaxDescription)
	broken.checkText("metadata", s.Metadata, account.MaxMetadata)
	if _, err := account.ParseServiceLabels(s.ServiceLabels); err != nil {
		broken.add("service_labels", s.ServiceLabels, err.Error())
	}
	e.Seal = sealOf(s, e.URL, &broken)
	broken.checkText("traffic_policy", s.TrafficPolicy, account.MaxTrafficPolicy)
	if s.Sealed != "" {
		checkSealedPolicy(s, scheme, &broken)
	}
	if s.ReplacePoolPolicy && !s.PoolingEnabled {
		broken.add("replace_pool_policy", "true",
			"belongs to a pool: it needs --pooling-enabled (pooling_enabled: true)")
	}
	return e, broken
}

func parseURL(s *agentconfig.EndpointSpec, broken *fieldErrors) account.EndpointURL {
	switch {
	case s.URLText == "":
		broken.add("url", "", "is missing: give the URL at which the endpoint is called")
		return account.EndpointURL{}
	case !slices.Contains(account.Bindings(), s.Binding):
		broken.add("binding", s.Binding, "must be kubernetes, internal or public")
		return account.EndpointURL{}
	}
	u, err := account.ParseBindingURL(s.Binding, s.URLText)
	for _, f := range account.FieldsOf(err) {
		broken.add("url", f.Value, f.Rule)
	}
	return u
}

// parseUpstream parses the upstream for the command http or tcp, or for a tunnel (scheme "").
func parseUpstream(scheme string, s *agentconfig.EndpointSpec, broken *fieldErrors) agent.Upstream {
	if s.Target == "" {
		broken.add("upstream", "", "is missing: give a PORT, HOST:PORT or URL to forward to")
		return agent.Upstream{}
	}
	u, err := agent.ParseUpstream(scheme, s.Target)
	for _, f := range account.FieldsOf(err) {
		broken.add("upstream", f.Value, f.Rule)
	}
	switch protocol := s.Upstream.Protocol; {
	case scheme == "tcp" || protocol == "":
	case protocol != agent.ProtocolHTTP1 && protocol != agent.ProtocolHTTP2:
		broken.add("upstream_protocol", protocol, "must be http1 or http2")
	default:
		u.Protocol = protocol
	}
	for _, err := range []error{u.SetTrust(s.Trust, s.ServerName), u.SetProxyProtocol(s.Upstream.ProxyProtocol)} {
		for _, f := range account.FieldsOf(err) {
			broken.add(f.Field, f.Value, f.Rule)
		}
	}
	return u
}

// checkText checks the length in bytes and the encoding of a text.
func (b *fieldErrors) checkText(field, text string, limit int) {
	switch {
	case len(text) > limit:
		b.add(field, account.Shorten(text), fmt.Sprintf("has %d bytes, and %d are allowed; shorten it", len(text),
			limit))
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		b.add(field, account.Shorten(text), "must be valid UTF-8 without NUL")
	}
}

// commandOf returns the command that serves endpoints of the scheme. It is http for https too: the
// clients of such an endpoint reach the service over TLS.
func commandOf(scheme string) string {
	if scheme == "https" {
		return "http"
	}
	return scheme
}

// errorText returns a sentence about a broken rule; name is what the user calls the field.
func errorText(name string, f account.FieldError) string {
	if f.Value == "" && strings.HasPrefix(f.Rule, "is missing") {
		return name + " " + f.Rule
	}
	return fmt.Sprintf("%s %q: %s", name, f.Value, f.Rule)
}

// flagName returns the flag, or the argument, of a field.
func flagName(field string) string {
	switch field {
	case "upstream":
		return "the upstream"
	case "labels":
		return "--label"
	case "traffic_policy":
		return "--traffic-policy-file"
	}
	return "--" + strings.ReplaceAll(field, "_", "-")
}

// usageError returns the first broken rule as an error of the command line; nil when there is none.
func (b fieldErrors) usageError() error {
	if len(b) == 0 {
		return nil
	}
	return &cli.UsageError{Message: errorText(flagName(b[0].Field), b[0])}
}
