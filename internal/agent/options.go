// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

// Options configure an Agent. Fields without a comment about a default are required.
type Options struct {
	ServerOptions
	UpstreamOptions
	ShutdownOptions

	// ClusterUID is the UID of the cluster whose objects own the endpoints: that of its namespace
	// kube-system. "" = endpoints have no owners.
	ClusterUID string
	InstanceID string // this installation's name; may be empty
	// Endpoints are those of the first Agent.Set: at least one, with KeepRunning any number.
	Endpoints []Endpoint
	// KeepRunning makes Run end with its context only. Every refusal of an endpoint concerns that
	// one alone, and a session that the server refuses is tried again, with the Token of then.
	// Otherwise Run returns a *Failure when the server refuses all the endpoints, or the only one.
	KeepRunning bool
	// RebindDelay is the first pause before a refused one of several endpoints is bound again; it
	// doubles up to a minute. 0 = 2 s.
	RebindDelay time.Duration

	Observer Observer
	Terminal Terminal // nil = there is none to restore
	Logger   *slog.Logger
}

// ServerOptions say how the agent connects to the server.
type ServerOptions struct {
	Server  string      // https://host:port, for messages
	Address string      // host:port of the server
	TLS     *tls.Config // from internal/trust
	// Authorities learns those that the server announces; nil = none.
	Authorities *trust.Authorities
	Token       func() string // the authtoken; called for every session
	// RenewToken makes live sessions present what Token returns when that has changed: for tokens
	// that expire, of which the next one is the same subject's.
	RenewToken bool
	// RetryUntrusted lists the problems of the server's certificate that are tried again at the
	// start, too; every other one ends Run then. A server that was trusted once is always tried
	// again.
	RetryUntrusted []trust.Problem
	DialServer     DialFunc      // the server; nil = a net.Dialer, without a proxy
	MaxBackoff     time.Duration // between attempts to reach the server; 0 = 10 s
	PingInterval   time.Duration // between measurements of the latency; 0 = none
}

// UpstreamOptions say how the agent connects to upstreams, and who inspects what passes.
type UpstreamOptions struct {
	Dial        DialFunc    // upstreams of endpoints without a Dial of their own; nil = a net.Dialer
	UpstreamTLS *tls.Config // roots for https upstreams; nil = the system's
	// Inspect records what http endpoints carry, for the person who runs the agent; nil = nothing
	// stands in the way of their bytes.
	Inspect    *inspect.Recorder
	InspectURL string // where that person reads it, for the event Inspecting; "" = nowhere
}

// ShutdownOptions say what happens to endpoints and connections when the agent ends.
type ShutdownOptions struct {
	UnbindTimeout time.Duration // for the server's answers at the shutdown; 0 = 2 s
	// DrainTimeout is for open connections, at the shutdown and of an endpoint that was removed; 0
	// = 3 s.
	DrainTimeout time.Duration
	// LeaveBound is called at the shutdown. If it returns true, the endpoints are not unbound: they
	// are offline when the session has ended, and the service keeps them for the next agent. It
	// must return soon. nil = they are unbound.
	LeaveBound func() bool
}

// Observer receives the agent's events.
type Observer interface {
	// Observe is called from many goroutines and must not block.
	Observe(e Event)
}

// Terminal is a terminal whose state the agent restores when one of its goroutines panics, before
// the process crashes.
type Terminal interface {
	Leave()
}

func (o *Options) setDefaults() {
	if o.Inspect != nil {
		o.Observer = &inspectingObserver{recorder: o.Inspect, Observer: o.Observer}
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Dial == nil {
		o.Dial = (&net.Dialer{}).DialContext
	}
	o.MaxBackoff = cmp.Or(o.MaxBackoff, 10*time.Second)
	o.UnbindTimeout = cmp.Or(o.UnbindTimeout, 2*time.Second)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 3*time.Second)
	o.RebindDelay = cmp.Or(o.RebindDelay, 2*time.Second)
}

// reportPanic restores the terminal before a panic ends the process. Callbacks of other packages
// defer it.
func (o *Options) reportPanic() {
	if why := recover(); why != nil {
		if o.Terminal != nil {
			o.Terminal.Leave()
		}
		panic(why)
	}
}
