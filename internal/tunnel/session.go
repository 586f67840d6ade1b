// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"net"
	"time"
)

// Session is one peer over one or more connections.
type Session struct{}

// ID returns the session's id.
func (s *Session) ID() string { panic("tunnel: not built yet") }

// Role returns what the dialling side is.
func (s *Session) Role() Role { panic("tunnel: not built yet") }

// Hello returns the client's first message without its secrets, on the server's side.
func (s *Session) Hello() Hello { panic("tunnel: not built yet") }

// Welcome returns the server's answer.
func (s *Session) Welcome() Welcome { panic("tunnel: not built yet") }

// RemoteAddr returns the peer's address on the session's first connection.
func (s *Session) RemoteAddr() net.Addr { panic("tunnel: not built yet") }

// Open opens a data stream without waiting for an answer.
func (s *Session) Open(ctx context.Context, h OpenHeader) (*Stream, error) {
	panic("tunnel: not built yet")
}

// Bind asks the server for an endpoint. It returns an *Error when the server refused.
func (s *Session) Bind(ctx context.Context, b Bind) (Bound, error) { panic("tunnel: not built yet") }

// Unbind gives an endpoint back.
func (s *Session) Unbind(ctx context.Context, endpointID string) error {
	panic("tunnel: not built yet")
}

// SendRequestLine shows a line on the agent's screen; it never blocks and drops lines when the agent is slow.
func (s *Session) SendRequestLine(l RequestLine) { panic("tunnel: not built yet") }

// Drain tells the peer that this side stops within d.
func (s *Session) Drain(d time.Duration) error { panic("tunnel: not built yet") }

// PeerDraining is closed when the peer said that it stops.
func (s *Session) PeerDraining() <-chan struct{} { panic("tunnel: not built yet") }

// Stop tells the peer why and ends the session.
func (s *Session) Stop(code Code, msg string) { panic("tunnel: not built yet") }

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { panic("tunnel: not built yet") }

// Err returns why the session ended, nil while it lives.
func (s *Session) Err() error { panic("tunnel: not built yet") }

// Close ends the session and aborts its streams.
func (s *Session) Close() error { panic("tunnel: not built yet") }

// Streams returns the number of live data streams.
func (s *Session) Streams() int { panic("tunnel: not built yet") }
