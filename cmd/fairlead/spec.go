// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
)

// endpointSpec is an endpoint or a labelled tunnel as somebody wrote it, in flags or in the config
// file.
type endpointSpec struct {
	url, binding, name, description, metadata string
	upstream, protocol                        string
	hostHeader                                string // http only
	policy                                    string
	policyFile                                string // where policy was read; "" = in no file of its own
	pooling, replacePolicy                    bool
	labels                                    map[string]string // of a tunnel; not nil
}

// problems are everything that is wrong with a spec. Fields have the names of the config file.
type problems []account.FieldError

func (p *problems) add(field, value, rule string) {
	*p = append(*p, account.FieldError{Field: field, Value: value, Rule: rule})
}

// check returns what the spec stands for, and everything that is wrong with it.
func (s *endpointSpec) check() (agent.Endpoint, problems) {
	var p problems
	if s.labels != nil {
		e := agent.Endpoint{Labels: s.labels, Metadata: s.metadata, Upstream: s.parseUpstream("", &p)}
		p = append(p, account.FieldsOf(account.ValidateLabels(s.labels))...)
		p.text("metadata", s.metadata, account.MaxMetadata)
		return e, p
	}
	e := agent.Endpoint{
		Binding: s.binding, Name: s.name, Description: s.description, Metadata: s.metadata, HostMode: s.hostHeader,
		PoolingEnabled: s.pooling, TrafficPolicy: s.policy, TrafficPolicyFile: s.policyFile,
		ReplacePoolPolicy: s.replacePolicy,
	}
	e.URL = s.parseURL(&p)
	scheme := commandOf(e.URL.Scheme)
	if scheme == "" { // the URL is wrong; the upstream is looked at as far as that goes
		scheme = "http"
	}
	e.Upstream = s.parseUpstream(scheme, &p)
	s.checkHTTPOnly(scheme, &p)
	p.text("name", s.name, account.MaxName)
	p.text("description", s.description, account.MaxDescription)
	p.text("metadata", s.metadata, account.MaxMetadata)
	p.text("traffic_policy", s.policy, account.MaxTrafficPolicy)
	if s.replacePolicy && !s.pooling {
		p.add("replace_pool_policy", "true", "belongs to a pool: it needs --pooling-enabled (pooling_enabled: true)")
	}
	return e, p
}

func (s *endpointSpec) parseURL(p *problems) account.EndpointURL {
	switch {
	case s.url == "":
		p.add("url", "", "is missing: give the URL at which the endpoint is called")
		return account.EndpointURL{}
	case !slices.Contains(account.Bindings(), s.binding):
		p.add("binding", s.binding, "must be kubernetes, internal or public")
		return account.EndpointURL{}
	}
	u, err := account.ParseBindingURL(s.binding, s.url)
	for _, f := range account.FieldsOf(err) {
		p.add("url", f.Value, f.Rule)
	}
	return u
}

func (s *endpointSpec) parseUpstream(scheme string, p *problems) agent.Upstream {
	if s.upstream == "" {
		p.add("upstream", "", "is missing: give a PORT, HOST:PORT or URL to forward to")
		return agent.Upstream{}
	}
	u, err := agent.ParseUpstream(scheme, s.upstream)
	for _, f := range account.FieldsOf(err) {
		p.add("upstream", f.Value, f.Rule)
	}
	switch {
	case scheme == "tcp" && s.protocol != "":
		p.add("upstream_protocol", s.protocol, "a tcp endpoint has none; leave it out")
	case scheme != "tcp" && s.protocol != "" && s.protocol != agent.ProtocolHTTP1 && s.protocol != agent.ProtocolHTTP2:
		p.add("upstream_protocol", s.protocol, "must be http1 or http2")
	case scheme != "tcp" && s.protocol != "":
		u.Protocol = s.protocol
	}
	return u
}

func (s *endpointSpec) checkHTTPOnly(scheme string, p *problems) {
	switch {
	case s.hostHeader == "":
	case scheme == "tcp":
		p.add("host_header", s.hostHeader, "a tcp endpoint has none; leave it out")
	case !account.ValidHostMode(s.hostHeader):
		p.add("host_header", account.Shorten(s.hostHeader), account.RuleHostMode)
	}
}

// text checks what holds for every text.
func (p *problems) text(field, text string, limit int) {
	shown := text
	if len(shown) > 40 {
		shown = shown[:40] + "…"
	}
	switch {
	case len(text) > limit:
		p.add(field, shown, fmt.Sprintf("has %d bytes, and %d are allowed; shorten it", len(text), limit))
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		p.add(field, shown, "must be valid UTF-8 without NUL")
	}
}

// commandOf is the command that serves endpoints of the scheme: an https endpoint is an http one
// whose clients reach the service over TLS.
func commandOf(scheme string) string {
	if scheme == "https" {
		return "http"
	}
	return scheme
}

// sentence words a problem after the name that the field has for the user.
func sentence(name string, f account.FieldError) string {
	if f.Value == "" && strings.HasPrefix(f.Rule, "is missing") {
		return name + " " + f.Rule
	}
	return fmt.Sprintf("%s %q: %s", name, f.Value, f.Rule)
}

// flagName is the flag, or the argument, that gives the field.
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

// asUsage is the first problem in the words of a command line.
func (p problems) asUsage() error {
	if len(p) == 0 {
		return nil
	}
	return &usageError{sentence(flagName(p[0].Field), p[0])}
}
