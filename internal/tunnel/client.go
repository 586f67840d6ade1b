// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"
)

// ClientConfig is what a Client needs. Address, TLS and Hello are required.
type ClientConfig struct {
	Address     string      // host:port
	TLS         *tls.Config // ServerName is taken from Address when empty; NextProtos and the minimum version are set by the Client
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	Hello       func() Hello
	Connections int           // default 2; the server's wish has precedence
	MaxBackoff  time.Duration // default 10 s

	OnUp          func(ctx context.Context, s *Session) error
	OnDown        func(err error, retryIn time.Duration)
	OnStream      func(ctx context.Context, s *Session, st *Stream)
	OnRequestLine func(RequestLine)
	Logger        *slog.Logger
}

// Client keeps one session with the server for ever.
type Client struct{}

// NewClient makes a Client; Run starts it.
func NewClient(cfg ClientConfig) *Client { return &Client{} }

// Run connects, and connects again, until ctx is done (nil) or the server says that it is useless (*Error).
func (c *Client) Run(ctx context.Context) error { panic("tunnel: not built yet") }

// Session returns the session that is up, or nil.
func (c *Client) Session() *Session { panic("tunnel: not built yet") }

// Wait returns the session that is up, as soon as there is one.
func (c *Client) Wait(ctx context.Context) (*Session, error) { panic("tunnel: not built yet") }
