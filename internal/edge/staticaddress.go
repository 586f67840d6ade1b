// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/relay"
)

// dial connects to a static address; with TLS the certificate must be that of the address' host.
// Every error is a *notConnected.
func (e *Edge) dial(ctx context.Context, address string, secure bool, protocols ...string) (relay.HalfCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, e.opt.OpenTimeout)
	defer cancel()
	c, err := e.opt.DialStatic(ctx, "tcp", address)
	if err != nil {
		return nil, &notConnected{err}
	}
	metered := meteredConn{c, e.opt.Meter}
	if !secure {
		return metered, nil
	}
	host, _, _ := net.SplitHostPort(address) // Dial has read it
	t := tls.Client(metered, &tls.Config{ServerName: host, NextProtos: protocols, MinVersion: tls.VersionTLS12,
		RootCAs: e.opt.RootCAs})
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, &notConnected{err}
	}
	return t, nil
}

// meteredConn counts what passes.
type meteredConn struct {
	net.Conn
	meter Meter
}

// Read counts what comes.
func (c meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.meter.CountBytes(0, n)
	return n, err
}

// Write counts what goes.
func (c meteredConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.meter.CountBytes(n, 0)
	return n, err
}

// CloseWrite ends one direction.
func (c meteredConn) CloseWrite() error {
	if h, ok := c.Conn.(relay.HalfCloser); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

// SetLinger lets a connection be aborted.
func (c meteredConn) SetLinger(seconds int) error {
	if l, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		return l.SetLinger(seconds)
	}
	return nil
}

// staticLine is a connection to a static address; it is open from the start.
type staticLine struct {
	relay.HalfCloser
	in *relay.Source
}

func newStaticLine(c relay.HalfCloser) *staticLine {
	return &staticLine{HalfCloser: c, in: relay.NewSource(c)}
}

func (*staticLine) opened() error { return nil }

// Next returns what comes.
func (l *staticLine) Next() ([]byte, error) { return l.in.Next() }

// Abort resets the connection: its peer must not take what it got for all.
func (l *staticLine) Abort() error {
	var below net.Conn = l.HalfCloser
	if t, ok := below.(*tls.Conn); ok {
		below = t.NetConn()
	}
	if s, ok := below.(interface{ SetLinger(int) error }); ok {
		_ = s.SetLinger(0)
	}
	return below.Close()
}

// staticTransport is the way to the static addresses of an account. A connection to an address is
// never shared between accounts.
func (e *Edge) staticTransport(accountID string) *http.Transport {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.statics[accountID]; t != nil {
		return t
	}
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return e.dial(ctx, address, false) },
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return e.dial(ctx, address, true, "h2", "http/1.1")
		},
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		ExpectContinueTimeout:  expectTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		Protocols:              new(http.Protocols),
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(true)
	e.statics[accountID] = t
	return t
}

// staticHost is the Host that a static address gets: its own, which with TLS is the one that was
// verified.
func staticHost(s *account.StaticAddress) string {
	usual := ":80"
	if s.TLS {
		usual = ":443"
	}
	return strings.TrimSuffix(s.Address, usual)
}

// canned is the answer of an http_response backend.
func canned(r *http.Request, c *account.HTTPResponse) *http.Response {
	res := &http.Response{
		StatusCode: c.StatusCode, Status: http.StatusText(c.StatusCode), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header, len(c.Headers)), Body: http.NoBody, Request: r,
	}
	for name, value := range c.Headers {
		res.Header.Set(name, value)
	}
	res.Header.Del("Content-Length") // it is the body's
	if c.StatusCode == http.StatusNoContent || c.StatusCode == http.StatusNotModified {
		return res
	}
	res.Header.Set("Content-Length", strconv.Itoa(len(c.Body)))
	if r.Method != http.MethodHead {
		res.ContentLength, res.Body = int64(len(c.Body)), io.NopCloser(strings.NewReader(c.Body))
	}
	return res
}
