// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
)

// Handler is what the service makes of sessions.
type Handler interface {
	// Hello authenticates the first connection of a session; an *Error refuses it with that code and message, any other error with
	// INTERNAL. The handler makes the SessionID, the Server the JoinSecret.
	Hello(ctx context.Context, h Hello, remote net.Addr) (Welcome, error)
	// Up is called once, before any Bind, Unbind or Stream of the session.
	Up(s *Session)
	Bind(ctx context.Context, s *Session, b Bind) (Bound, error)
	Unbind(ctx context.Context, s *Session, endpointID string) error
	// Stream serves a stream that a forwarder opened, in a goroutine of its own.
	Stream(ctx context.Context, s *Session, st *Stream)
	// Down is called once, after the session's last connection ended and after its last Bind or Unbind returned.
	Down(s *Session, err error)
}

// ServerConfig is what a Server needs.
type ServerConfig struct {
	Handler Handler
	Logger  *slog.Logger
	// MaxPending is the number of connections that may be between TLS and Welcome at a time; further ones are closed at once. Default 256.
	MaxPending int
}

// Server accepts sessions.
type Server struct{}

// NewServer makes a Server.
func NewServer(cfg ServerConfig) *Server { return &Server{} }

// ServeConn serves one connection whose TLS handshake is done and whose ALPN is fairlead/1. It blocks until the connection has ended.
func (s *Server) ServeConn(ctx context.Context, c *tls.Conn) error { panic("tunnel: not built yet") }

// Sessions returns the live sessions.
func (s *Server) Sessions() []*Session { panic("tunnel: not built yet") }
