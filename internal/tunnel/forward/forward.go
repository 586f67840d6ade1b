// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package forward relays accepted connections to the service's edge, each as one stream of the
// tunnel. The operator's forwarder does so for pods, `fairlead connect` for programs of one machine.
//
// What comes in: connections with the URL that they call, and the session with the edge. What goes
// out: streams, sealed with internal/sealed where the caller asks for it, and on the connection an
// error response, or a reset, when no stream was opened.
// internal/tunnel/relay copies the bytes; the edge decides what to do with a stream.
package forward

import (
	"context"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// Connection is what a listener accepts: *net.TCPConn.
type Connection interface {
	net.Conn
	CloseWrite() error
	SetLinger(sec int) error
}

// TCP keep-alive of clients: a lost one is detected after a minute and a half.
const (
	keepAliveIdle     = 30 * time.Second
	keepAliveInterval = 15 * time.Second
	keepAliveProbes   = 4
)

// Listen opens a port for connections that are to be relayed.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var config net.ListenConfig
	keepAlive(&config)
	return config.Listen(ctx, "tcp", address)
}

// Sessions has the session with the edge. Implementations are safe for concurrent use.
type Sessions interface {
	// Session waits for a session that accepts streams.
	Session(ctx context.Context) (*tunnel.Session, error)
	// Live returns the established session, or nil.
	Live() *tunnel.Session
}

// Stats records what happens to a connection. Implementations do not block.
type Stats interface {
	// Opened records that the edge opened a stream, at this time.
	Opened(at time.Time)
	// Moved records how many bytes an open stream moved, and whether either side aborted it.
	Moved(fromClient, toClient int64, aborted bool)
}

// Timing has the durations that bound a connection before its stream is open.
type Timing struct {
	SessionWait time.Duration // how long a connection waits for a session with the edge
	// OpenTimeout is how long a connection waits for the edge to open its stream, including the wait
	// for a session.
	OpenTimeout time.Duration
	HeadTimeout time.Duration // how long a request's head may take before an error response is sent
	Linger      time.Duration // how long input is read and dropped after that response
}

// DefaultTiming returns durations with which a connection is answered within 5 s.
func DefaultTiming() Timing {
	return Timing{SessionWait: 3 * time.Second, OpenTimeout: 4 * time.Second, HeadTimeout: time.Second,
		Linger: time.Second}
}

// Relay relays connections to the edge. Its methods are safe for concurrent use.
type Relay struct {
	Sessions Sessions
	Timing   Timing
	Context  context.Context // Context ends all connections when it is done.

	spares spares
}

// Init sets the connection that has just been accepted, and the URL that it calls. Header and Stats
// are the caller's.
func (r *Relay) Init(c *Conn, accepted Connection, url account.EndpointURL) {
	c.Connection, c.URL, c.source, c.acceptedAt = accepted, url, relay.NewSource(accepted), time.Now()
	c.SessionDeadline = c.acceptedAt.Add(min(r.Timing.SessionWait, r.Timing.OpenTimeout))
}
