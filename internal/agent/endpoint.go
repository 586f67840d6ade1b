// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Endpoint is what the agent binds, and where it forwards to: an endpoint with a URL, or a labelled
// tunnel. That has Labels, Metadata and Upstream only.
type Endpoint struct {
	URL         account.EndpointURL
	Labels      map[string]string
	Binding     string
	Name        string
	Description string
	Metadata    string
	// account.HostPassthrough, account.HostRewrite, or a host with an optional port; "" = passthrough
	HostMode          string
	PoolingEnabled    bool   // share the URL with the account's other agents that do
	TrafficPolicy     string // YAML or JSON; "" = none
	TrafficPolicyFile string // where TrafficPolicy was read, for messages; "" = in no file of its own
	ReplacePoolPolicy bool   // give the other members of the pool this policy
	Upstream          Upstream
}

// EndpointInfo describes the endpoint that an event is about.
type EndpointInfo struct {
	Index    int    // in Options.Endpoints
	URL      string // "" for a labelled tunnel
	Name     string // --name; "" = none was given
	Labels   string // of a labelled tunnel, as in "app=api site=a"
	Upstream string
}

// DisplayName returns the endpoint's URL, or its labels.
func (t EndpointInfo) DisplayName() string {
	if t.URL != "" {
		return t.URL
	}
	return t.Labels
}

func (e *Endpoint) target(index int) EndpointInfo {
	t := EndpointInfo{Index: index, Name: e.Name, Upstream: e.Upstream.String()}
	if len(e.Labels) == 0 {
		t.URL = e.URL.String()
		return t
	}
	texts := make([]string, 0, len(e.Labels))
	for key, value := range e.Labels {
		texts = append(texts, key+"="+value)
	}
	slices.Sort(texts)
	t.Labels = strings.Join(texts, " ")
	return t
}

// bind is the message that asks for the endpoint.
func (e *Endpoint) bind(resumeSecret string) tunnel.Bind {
	if len(e.Labels) > 0 {
		return tunnel.Bind{Labels: e.Labels, Metadata: e.Metadata, UpstreamURL: e.Upstream.String(),
			UpstreamProtocol: e.Upstream.Protocol, ResumeSecret: resumeSecret}
	}
	return tunnel.Bind{
		URL: e.URL.String(), Binding: e.Binding, Name: e.Name, Description: e.Description, Metadata: e.Metadata,
		UpstreamURL: e.Upstream.String(), UpstreamProtocol: e.Upstream.Protocol, HostMode: e.HostMode,
		PoolingEnabled: e.PoolingEnabled,
		TrafficPolicy:  e.TrafficPolicy, ReplacePoolPolicy: e.ReplacePoolPolicy, ResumeSecret: resumeSecret,
	}
}

// http says whether the edge reports the requests of a stream, so that the agent need not report
// its connection.
func (e *Endpoint) http(h tunnel.OpenHeader) bool {
	if len(e.Labels) > 0 {
		return h.Scheme == "http"
	}
	return e.URL.Scheme != "tcp"
}

// fits says whether the stream's header names the endpoint's host and port. A labelled tunnel has
// none: it serves whatever endpoint its group is behind.
func (e *Endpoint) fits(h tunnel.OpenHeader) bool {
	return len(e.Labels) > 0 || h.Host == e.URL.Host && h.Port == e.URL.Port
}
