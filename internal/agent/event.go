// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Event is one of the types of this file: what the agent reports to its user. Texts may come from
// the network and may hold control characters.
type Event interface{ event() }

// Starting is the first event, before the first connection.
type Starting struct {
	Version, Server string
	Endpoints       []EndpointInfo
}

// Inspecting reports, after Starting, the URL of the inspector in a browser.
type Inspecting struct{ URL string }

// Listening reports, after Starting, where a client that calls an endpoint listens for it.
type Listening struct{ URL, Address string }

// CallFailed reports why a connection to a Listening address did not reach the endpoint, once for each
// cause until one does. An http endpoint's caller got a page.
type CallFailed struct{ URL, Cause string }

// Connected reports a new session; the endpoints it binds follow. AccountID and Region may be
// empty.
type Connected struct {
	SessionID, Server, ServerVersion string
	AccountID, Region                string
	Carrier                          tunnel.Carrier
}

// Replicas reports how many replicas of the service the session is connected to, and how many it
// should be, shortly after that changed. There is none with a server without replicas.
type Replicas struct {
	Connected, Wanted int
	// ids of replicas that the session is connected to now, that are about to stop, and to which
	// the connection was lost
	Found, Draining, Lost []string
}

// Initial reports whether the session was connected to none of its replicas before, as in its first
// event.
func (r Replicas) Initial() bool {
	return len(r.Found) == r.Connected && len(r.Draining) == 0 && len(r.Lost) == 0
}

// Online reports that an endpoint is bound: on each session, and after each change. Reconnected is
// false the first time.
type Online struct {
	EndpointInfo

	Reconnected     bool
	EndpointID      string // the endpoint's id; a labelled tunnel's id
	OwnerEndpointID string // the oldest endpoint of the same owner at the URL; "" without an owner
	AssignedURL     string // AssignedURL is the server's URL; "" for a labelled tunnel.
	// ListenerURL is the URL at which the server's own listener answers for a public endpoint, as it
	// has said: URL, perhaps with another port; "" for other bindings, and from older servers.
	ListenerURL                      string
	SessionID, Server, ServerVersion string
}

// Unreachable reports, after the first Online of a public endpoint, why clients may not reach it.
type Unreachable struct {
	EndpointInfo

	Cause   string
	Command string // Command calls the endpoint all the same; "" = there is none.
}

// AlsoAt returns the URL, but the endpoint's own, at which the server's listener answers; "" without
// one.
func (o *Online) AlsoAt() string {
	if o.ListenerURL == o.AssignedURL {
		return ""
	}
	return o.ListenerURL
}

// BindRefused reports that one of several endpoints is not bound, once for each cause. The others
// are served, and the agent keeps trying this one.
type BindRefused struct {
	EndpointInfo

	Cause      string
	Code       tunnel.Code // "" = no answer
	StillBound bool        // StillBound reports that it is served as before its change.
}

// Removed reports that an endpoint which the last Agent.Set did not have is not bound any more.
// Unbound is false when the server could not be told: it keeps the endpoint offline for a while.
// Open connections may still end.
type Removed struct {
	EndpointInfo

	Unbound bool
}

// Latency is the round-trip time to the server, over the session's present carrier.
type Latency struct {
	RoundTrip time.Duration
	Carrier   tunnel.Carrier
}

// Retrying reports that there is no session, or that the only endpoint could not be bound again:
// once when a session is lost, then for each new cause.
type Retrying struct {
	Server    string
	Cause     string        // a sentence without a full stop
	Code      tunnel.Code   // "" = the server was not reached, or did not say why
	Untrusted trust.Problem // what is wrong with the server's certificate
	RetryIn   time.Duration // until the next attempt
	WasOnline bool          // false: no endpoint was ever bound by this process
}

// Draining reports that the server is about to stop and that the agent connects to its successor.
type Draining struct{ Server string }

// UpstreamDown reports that an endpoint's upstream cannot be reached, once until UpstreamUp.
type UpstreamDown struct {
	EndpointInfo

	Cause string
	HTTP  bool // callers get a 502; otherwise their connections are closed
}

// UpstreamUp reports that the upstream can be reached again.
type UpstreamUp struct{ EndpointInfo }

// HostRefused reports, once for each endpoint, that its upstream does not accept the Host that callers
// send.
type HostRefused struct{ EndpointInfo }

// SealProblem reports why the connections of a sealed endpoint are refused, or soon will be: its
// certificate, or the file of its callers' authorities. It is reported when Cause changes; "" = all is
// well again.
type SealProblem struct {
	EndpointInfo

	Cause string
}

// Request is one request to an http endpoint, as the edge reports it.
type Request struct {
	EndpointInfo

	Method, Path string
	Status       int
	Duration     time.Duration
}

// Connection is one connection to an endpoint, reported when it opens and when it has ended.
type Connection struct {
	EndpointInfo

	HTTP              bool   // the edge reports its requests
	Client            string // host:port, "" when unknown
	Pod               string // namespace/name as the forwarder states it, "" when unknown
	Caller            string // who has proven itself at a sealed endpoint; "" = the caller has not
	Ended             bool
	Refused           bool  // it never opened: the upstream could not be reached, or the seal failed
	BytesIn, BytesOut int64 // bytes to and from the upstream
	Duration          time.Duration
	Cause             string // why it broke or could not be opened; "" when both sides ended it
}

// Stopping reports that the agent is shutting down and waits for connections to end.
type Stopping struct {
	Connections int
	Timeout     time.Duration
}

// Stopped is the last event. ServerTold is false when the server could not be told: it keeps the
// endpoints offline until their grace period ends. With Options.LeaveBound it keeps them anyway.
type Stopped struct{ ServerTold bool }

func (Starting) event()     {}
func (Inspecting) event()   {}
func (Listening) event()    {}
func (CallFailed) event()   {}
func (Connected) event()    {}
func (Replicas) event()     {}
func (Online) event()       {}
func (Unreachable) event()  {}
func (BindRefused) event()  {}
func (Removed) event()      {}
func (Latency) event()      {}
func (Retrying) event()     {}
func (Draining) event()     {}
func (UpstreamDown) event() {}
func (UpstreamUp) event()   {}
func (HostRefused) event()  {}
func (SealProblem) event()  {}
func (Request) event()      {}
func (Connection) event()   {}
func (Stopping) event()     {}
func (Stopped) event()      {}
