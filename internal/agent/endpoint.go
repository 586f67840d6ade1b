// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Endpoint is an endpoint with a URL or a labelled tunnel, and the upstream that the agent forwards
// to. A labelled tunnel has Labels, Metadata and Upstream only.
type Endpoint struct {
	// Key names the endpoint in events, and tells it from others of an Agent.Set. "" = its
	// position, from "0".
	Key         string
	URL         account.EndpointURL
	Labels      map[string]string
	Binding     string
	Name        string
	Description string
	Metadata    string
	// ServiceLabels are labels for the Services of clusters that admit them: KEY=VALUE,KEY=VALUE.
	ServiceLabels string
	// account.HostPassthrough, account.HostRewrite, or a host with an optional port; "" =
	// passthrough
	HostMode          string
	PoolingEnabled    bool   // share the URL with the account's other agents that enable pooling
	TrafficPolicy     string // YAML or JSON; "" = none
	TrafficPolicyFile string // path of TrafficPolicy, for messages; "" = none
	ReplacePoolPolicy bool   // give the other members of the pool this policy
	Upstream          Upstream
	Owner             *tunnel.Owner // the object that the endpoint is for; nil = none
	// Dial dials the upstream, whose host:port it gets; nil = Options.Dial. The agent then dials
	// for callers only, not to find out whether the upstream is up.
	Dial DialFunc
	// Serve serves the streams in this process, in place of an upstream: Upstream has at most a
	// Protocol. It must call Accept or Refuse, and returns when it does not use the stream any more;
	// one that is still open then is aborted. ctx ends with the stream's connection. nil = the
	// upstream is dialed.
	Serve func(ctx context.Context, st Incoming)
	// Seal makes the agent serve sealed connections only, by this certificate; nil = plain ones. The
	// endpoint is one that is dialed, or has a Serve.
	Seal *sealed.Identity
	// SealedServer applies TrafficPolicy, which the service does not get then, to sealed connections,
	// and serves those of an http endpoint; nil = all are relayed unread. The endpoint's next version has
	// another one.
	SealedServer SealedServer
	// Withheld makes the agent unbind the endpoint, as if it were not there, and refuse its streams at
	// once, whatever the service does.
	Withheld bool
}

// conn is a connection that can be half-closed, and aborted.
type conn interface {
	net.Conn
	CloseWrite() error
	Abort() error
}

// Incoming is a stream that waits for its answer: a *tunnel.Stream, or what is inside a seal. Its
// bytes are the caller's after Accept.
type Incoming interface {
	conn
	Header() tunnel.OpenHeader
	Accept() error
	Refuse(code tunnel.RefuseCode) error
}

// upstreamURL returns where the agent forwards to, "" with Serve.
func (e *Endpoint) upstreamURL() string {
	if e.Serve != nil {
		return ""
	}
	return e.Upstream.String()
}

func (e *Endpoint) identity() identity {
	id := identity{key: e.Key, binding: e.Binding, url: e.URL}
	if len(e.Labels) > 0 {
		id.labels = e.DisplayName()
	}
	return id
}

// EndpointInfo describes the endpoint that an event is about.
type EndpointInfo struct {
	Key      string // Endpoint.Key
	URL      string // "" for a labelled tunnel
	Name     string // --name; "" = none was given
	Labels   string // a labelled tunnel's labels, as in "app=api site=a"
	Upstream string // "" = this process
	SealKey  string // fingerprint of the key by which connections are sealed; "" = they are plain
}

// isHTTP reports whether the endpoint may carry HTTP; a labelled tunnel may.
func (t EndpointInfo) isHTTP() bool { return !strings.HasPrefix(t.URL, "tcp://") }

// DisplayName returns the endpoint's URL, or its labels.
func (t EndpointInfo) DisplayName() string {
	if t.URL != "" {
		return t.URL
	}
	return t.Labels
}

// DisplayName returns the endpoint's URL, or its labels as in "app=api site=a".
func (e *Endpoint) DisplayName() string {
	if len(e.Labels) == 0 {
		return e.URL.String()
	}
	texts := make([]string, 0, len(e.Labels))
	for key, value := range e.Labels {
		texts = append(texts, key+"="+value)
	}
	slices.Sort(texts)
	return strings.Join(texts, " ")
}

// info describes the endpoint for events.
func (e *Endpoint) info() EndpointInfo {
	i := EndpointInfo{Key: e.Key, Name: e.Name, Upstream: e.upstreamURL()}
	if e.Seal != nil {
		i.SealKey = sealed.FormatKey(e.Seal.Key())
	}
	if len(e.Labels) > 0 {
		i.Labels = e.DisplayName()
	} else {
		i.URL = e.URL.String()
	}
	return i
}

// AccountEndpoint returns the endpoint as an edge knows it, without an id.
func (e *Endpoint) AccountEndpoint() account.Endpoint {
	ep := account.NewEndpoint(e.Binding, e.URL)
	ep.Type, ep.HostPort = account.TypeAgent, e.URL.HostPort()
	ep.HostMode, ep.TrafficPolicy = e.HostMode, e.TrafficPolicy
	ep.UpstreamURL, ep.UpstreamProtocol = e.upstreamURL(), e.Upstream.Protocol
	return ep
}

// bindMessage returns the message that binds the endpoint, without a resume secret.
func (e *Endpoint) bindMessage() tunnel.Bind {
	b := tunnel.Bind{Labels: e.Labels, Binding: e.Binding, Name: e.Name, Description: e.Description,
		Metadata: e.Metadata, UpstreamURL: e.upstreamURL(), UpstreamProtocol: e.Upstream.Protocol,
		ServiceLabels: e.ServiceLabels, HostMode: e.HostMode, PoolingEnabled: e.PoolingEnabled,
		TrafficPolicy:     e.TrafficPolicy,
		ReplacePoolPolicy: e.ReplacePoolPolicy, Owner: e.Owner}
	if len(e.Labels) == 0 {
		b.URL = e.URL.String()
	}
	if e.Seal != nil {
		b.SealKey = sealed.FormatKey(e.Seal.Key())
		if e.SealedServer != nil {
			b.TrafficPolicy = ""
		}
	}
	return b
}

// isHTTP reports whether the stream carries HTTP. The edge then reports its requests, and the agent
// need not report its connection.
func (e *Endpoint) isHTTP(h tunnel.OpenHeader) bool {
	if len(e.Labels) > 0 {
		return h.Scheme == "http"
	}
	return e.URL.Scheme != "tcp"
}

// matches reports whether the stream's header names the endpoint's host and port. A labelled tunnel
// has neither and serves every endpoint that forwards to its group.
func (e *Endpoint) matches(h tunnel.OpenHeader) bool {
	return len(e.Labels) > 0 || h.Host == e.URL.Host && h.Port == e.URL.Port
}
