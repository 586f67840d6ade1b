// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// fieldErrors are the broken rules of an endpoint spec. Fields have the names of the config file.
type fieldErrors []account.FieldError

func (b *fieldErrors) add(field, value, rule string) {
	*b = append(*b, account.FieldError{Field: field, Value: value, Rule: rule})
}

// validateSpec returns the endpoint or labelled tunnel that the agent binds, and every broken rule.
func validateSpec(s *agentconfig.EndpointSpec) (agent.Endpoint, fieldErrors) {
	var broken fieldErrors
	if s.Tunnel {
		e := agent.Endpoint{Labels: s.Labels, Metadata: s.Metadata, Upstream: parseUpstream("", s, &broken)}
		broken = append(broken, account.FieldsOf(account.ValidateLabels(s.Labels))...)
		broken.checkText("metadata", s.Metadata, account.MaxMetadata)
		return e, broken
	}
	e := agent.Endpoint{
		URL: parseURL(s, &broken), Binding: s.Binding, Name: s.Name, Description: s.Description, Metadata: s.Metadata,
		HostMode: s.HostHeader, PoolingEnabled: s.PoolingEnabled, TrafficPolicy: s.TrafficPolicy,
		TrafficPolicyFile: s.TrafficPolicyFile, ReplacePoolPolicy: s.ReplacePoolPolicy,
	}
	scheme := commandOf(e.URL.Scheme)
	if scheme == "" { // the URL is invalid; the other fields are checked as those of an http endpoint
		scheme = "http"
	}
	e.Upstream = parseUpstream(scheme, s, &broken)
	for _, f := range account.FieldsOf(account.ValidateHTTPOptions(scheme, s.UpstreamProtocol, s.HostHeader)) {
		broken.add(strings.Replace(f.Field, "host_mode", "host_header", 1), f.Value, f.Rule)
	}
	broken.checkText("name", s.Name, account.MaxName)
	broken.checkText("description", s.Description, account.MaxDescription)
	broken.checkText("metadata", s.Metadata, account.MaxMetadata)
	broken.checkText("traffic_policy", s.TrafficPolicy, account.MaxTrafficPolicy)
	if s.ReplacePoolPolicy && !s.PoolingEnabled {
		broken.add("replace_pool_policy", "true",
			"belongs to a pool: it needs --pooling-enabled (pooling_enabled: true)")
	}
	return e, broken
}

func parseURL(s *agentconfig.EndpointSpec, broken *fieldErrors) account.EndpointURL {
	switch {
	case s.URL == "":
		broken.add("url", "", "is missing: give the URL at which the endpoint is called")
		return account.EndpointURL{}
	case !slices.Contains(account.Bindings(), s.Binding):
		broken.add("binding", s.Binding, "must be kubernetes, internal or public")
		return account.EndpointURL{}
	}
	u, err := account.ParseBindingURL(s.Binding, s.URL)
	for _, f := range account.FieldsOf(err) {
		broken.add("url", f.Value, f.Rule)
	}
	return u
}

// parseUpstream parses the upstream for the command http or tcp, or for a tunnel (scheme "").
func parseUpstream(scheme string, s *agentconfig.EndpointSpec, broken *fieldErrors) agent.Upstream {
	if s.Upstream == "" {
		broken.add("upstream", "", "is missing: give a PORT, HOST:PORT or URL to forward to")
		return agent.Upstream{}
	}
	u, err := agent.ParseUpstream(scheme, s.Upstream)
	for _, f := range account.FieldsOf(err) {
		broken.add("upstream", f.Value, f.Rule)
	}
	switch {
	case scheme == "tcp" || s.UpstreamProtocol == "":
	case s.UpstreamProtocol != agent.ProtocolHTTP1 && s.UpstreamProtocol != agent.ProtocolHTTP2:
		broken.add("upstream_protocol", s.UpstreamProtocol, "must be http1 or http2")
	default:
		u.Protocol = s.UpstreamProtocol
	}
	if s.UpstreamCAFile != "" {
		u.Roots = readUpstreamRoots(s.UpstreamCAFile, u, broken)
	}
	return u
}

func readUpstreamRoots(path string, u agent.Upstream, broken *fieldErrors) *x509.CertPool {
	if u.Scheme != "https" {
		broken.add("upstream_ca_file", path, "is for an upstream with TLS: give the upstream as https://HOST[:PORT]")
		return nil
	}
	config, err := trust.Options{CAFile: path}.ClientConfig()
	if err != nil {
		broken.add("upstream_ca_file", path, err.Error())
		return nil
	}
	return config.RootCAs
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
