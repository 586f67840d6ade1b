// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// upstreamTimeout bounds the dial of an upstream, its TLS handshake included.
const upstreamTimeout = 10 * time.Second

// DialFunc opens a connection, as (*net.Dialer).DialContext does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// dialUpstream connects to the upstream of an endpoint within the time-out. The certificate of an
// https upstream is verified by the Upstream's Roots, else by UpstreamTLS, else by the system's.
func (o *Options) dialUpstream(ctx context.Context, s *spec, timeout time.Duration) (relay.HalfCloser, error) {
	dial, u := o.Dial, s.Upstream
	if s.Dial != nil {
		dial = s.Dial
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	raw, err := dial(ctx, "tcp", u.Address())
	if err != nil {
		return nil, err
	}
	if u.Scheme == "https" {
		return u.handshake(ctx, raw, o.UpstreamTLS)
	}
	conn, ok := raw.(relay.HalfCloser)
	if !ok {
		return nil, errors.Join(fmt.Errorf("dialing %s: a %T cannot be half-closed", u, raw), raw.Close())
	}
	return conn, nil
}

func (u Upstream) handshake(ctx context.Context, raw net.Conn, config *tls.Config) (relay.HalfCloser, error) {
	cfg := &tls.Config{}
	if config != nil {
		cfg = config.Clone()
	}
	cfg.MinVersion, cfg.ServerName, cfg.NextProtos = tls.VersionTLS12, u.Host, []string{"http/1.1"}
	if u.Roots != nil {
		cfg.RootCAs = u.Roots
	}
	if u.Protocol == ProtocolHTTP2 {
		cfg.NextProtos = []string{"h2"}
	}
	conn := tls.Client(raw, cfg)
	err := conn.HandshakeContext(ctx)
	if err == nil && u.Protocol == ProtocolHTTP2 && conn.ConnectionState().NegotiatedProtocol != "h2" {
		err = errors.New("it does not speak HTTP/2; leave out --upstream-protocol http2")
	}
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", u, err)
	}
	return conn, nil
}
