// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import "time"

// Event is something that a person at the agent's screen wants to know: one of the types of this file. Texts in it may come from the
// network and may hold control characters.
type Event interface{ event() }

// Starting comes first, before the first connection.
type Starting struct{ Version, Server, URL, Upstream string }

// Online says that the endpoint is bound. Again is false the first time.
type Online struct {
	Again                            bool
	EndpointID, URL, Upstream        string
	SessionID, Server, ServerVersion string
}

// Retrying says that there is no session, or that the endpoint could not be bound again. One comes when a session is lost, and then one
// for each new cause.
type Retrying struct {
	Server    string
	Cause     string        // a sentence without a full stop
	In        time.Duration // until the next attempt
	WasOnline bool          // false: the endpoint was never bound by this process
}

// Draining says that the server is about to stop and that the agent moves to its successor.
type Draining struct{ Server string }

// UpstreamDown says that the upstream cannot be reached, once until UpstreamUp.
type UpstreamDown struct {
	Upstream, Cause string
	HTTP            bool // callers get a 502; otherwise their connections are closed
}

// UpstreamUp says that the upstream can be reached again.
type UpstreamUp struct{ Upstream string }

// Request is one request to an http endpoint, as the edge saw it.
type Request struct {
	Method, Path string
	Status       int
	Duration     time.Duration
}

// Connection is one connection to a tcp endpoint: when it opens, and when it has ended.
type Connection struct {
	Client   string // host:port, "" when unknown
	Pod      string // namespace/name as the forwarder states it, "" when unknown
	Ended    bool
	In, Out  int64 // bytes to and from the upstream
	Duration time.Duration
	Cause    string // why it broke or could not be opened; "" when both sides ended it
}

// Stopping says that the agent was asked to stop and waits for connections to end.
type Stopping struct {
	Connections int
	Within      time.Duration
}

// Stopped comes last. Told is false when the server could not be told: it keeps the endpoint offline until its grace period ends.
type Stopped struct{ Told bool }

func (Starting) event()     {}
func (Online) event()       {}
func (Retrying) event()     {}
func (Draining) event()     {}
func (UpstreamDown) event() {}
func (UpstreamUp) event()   {}
func (Request) event()      {}
func (Connection) event()   {}
func (Stopping) event()     {}
func (Stopped) event()      {}
