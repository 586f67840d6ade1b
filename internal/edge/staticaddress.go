// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// dialStatic connects to a static address; with TLS the certificate must be valid for the address'
// host. Every error is a *staticDialError.
func (u *upstreams) dialStatic(
	ctx context.Context, address string, secure bool, protocols ...string,
) (relay.HalfCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, u.openTimeout)
	defer cancel()
	c, err := u.static.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, &staticDialError{err}
	}
	metered := meteredConn{c, u.meter}
	if !secure {
		return metered, nil
	}
	host, _, _ := net.SplitHostPort(address) // the dialer has checked it
	t := tls.Client(metered, &tls.Config{ServerName: host, NextProtos: protocols, MinVersion: tls.VersionTLS12,
		RootCAs: u.rootCAs})
	if err := t.HandshakeContext(ctx); err != nil {
		_ = c.Close()
		return nil, &staticDialError{err}
	}
	return t, nil
}

// meteredConn counts the bytes of a connection.
type meteredConn struct {
	net.Conn
	meter Meter
}

// Read reads and counts.
func (c meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.meter.CountBytes(0, n)
	return n, err
}

// Write writes and counts.
func (c meteredConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.meter.CountBytes(n, 0)
	return n, err
}

// CloseWrite ends the sending side.
func (c meteredConn) CloseWrite() error {
	if h, ok := c.Conn.(relay.HalfCloser); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

// SetLinger makes a Close after SetLinger(0) an abort.
func (c meteredConn) SetLinger(seconds int) error {
	if l, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		return l.SetLinger(seconds)
	}
	return nil
}

// staticConn is a connection to a static address; it is open from the start.
type staticConn struct {
	relay.HalfCloser
	source *relay.Source
}

func (*staticConn) waitOpened() error { return nil }

// Next returns the next bytes.
func (c *staticConn) Next() ([]byte, error) { return c.source.Next() }

// Abort resets the connection, so that the peer does not treat the bytes as complete.
func (c *staticConn) Abort() error {
	var below net.Conn = c.HalfCloser
	if t, ok := below.(*tls.Conn); ok {
		below = t.NetConn()
	}
	if s, ok := below.(interface{ SetLinger(int) error }); ok {
		_ = s.SetLinger(0)
	}
	return below.Close()
}

func (u *upstreams) newStaticTransport() *http.Transport {
	t := newTransport(func(ctx context.Context, _, address string) (net.Conn, error) {
		c, err := u.dialStatic(ctx, address, false)
		if err != nil {
			return nil, err
		}
		return pooledConn{c, newIdleCheck()}, nil
	})
	t.DialTLSContext = func(ctx context.Context, _, address string) (net.Conn, error) {
		c, err := u.dialStatic(ctx, address, true, "h2", "http/1.1")
		if t, ok := c.(*tls.Conn); err != nil || ok && t.ConnectionState().NegotiatedProtocol == "h2" {
			return c, err // HTTP/2 has no bytes without a stream
		}
		return pooledConn{c, newIdleCheck()}, nil
	}
	t.Protocols.SetHTTP1(true)
	t.Protocols.SetHTTP2(true)
	return t
}

// pooledConn is a connection to a static address, owned by a transport.
type pooledConn struct {
	relay.HalfCloser
	*idleCheck
}

// Read reads from the connection, and lets awaitIdle return.
func (c pooledConn) Read(p []byte) (int, error) {
	c.enter(reading)
	defer c.endRead()
	return c.HalfCloser.Read(p)
}

// Close closes the connection, and lets awaitIdle return.
func (c pooledConn) Close() error {
	c.enter(closed)
	return c.HalfCloser.Close()
}

// roundTripStatic sends a request to a static address. A body need not wait for the answer once the
// transport has a connection.
func roundTripStatic(t *http.Transport, r *http.Request, body *replayReader) (*http.Response, error) {
	if body == nil {
		trace := &httptrace.ClientTrace{GotConn: awaitIdle}
		return t.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	}
	body.body.rewind(r)
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		awaitIdle(info)
		body.body.deliver()
	}}
	res, err := t.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err == nil {
		body.body.answered()
	}
	return res, err
}

// staticHost returns the Host header for a static address: its own host, which with TLS is the one
// that was verified.
func staticHost(s *account.StaticAddress) string {
	usual := ":80"
	if s.TLS {
		usual = ":443"
	}
	return strings.TrimSuffix(s.Address, usual)
}

// fixedResponse returns the answer of an http_response backend.
func fixedResponse(r *http.Request, configured *account.HTTPResponse) *http.Response {
	res := &http.Response{
		StatusCode: configured.StatusCode, Status: http.StatusText(configured.StatusCode), Proto: "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     make(http.Header, len(configured.Headers)), Body: http.NoBody, Request: r,
	}
	for name, value := range configured.Headers {
		res.Header.Set(name, value)
	}
	res.Header.Del("Content-Length") // set from the body below
	if configured.StatusCode == http.StatusNoContent || configured.StatusCode == http.StatusNotModified {
		return res
	}
	res.Header.Set("Content-Length", strconv.Itoa(len(configured.Body)))
	if r.Method != http.MethodHead {
		res.ContentLength, res.Body = int64(len(configured.Body)), io.NopCloser(strings.NewReader(configured.Body))
	}
	return res
}
