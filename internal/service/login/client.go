// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/backend"
)

// Limits of requests to identity providers.
const (
	clientTimeout = 10 * time.Second
	maxResponse   = 1 << 20
	maxRedirects  = 3
)

// metadataServices are the addresses at which clouds give credentials to their machines. They are
// forbidden even if an allow list has them.
var metadataServices = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("fd00:ec2::/32"),
	netip.MustParsePrefix("100.100.100.200/32"), netip.MustParsePrefix("192.0.0.192/32"),
	netip.MustParsePrefix("168.63.129.16/32"),
}

// NewClient returns the client for URLs that tenants configure. It checks every address when it
// connects: private ones need an entry in allow. It follows redirects of GET within the same host
// only, waits 10 s and reads 1 MiB at most, and uses no proxy.
func NewClient(allow []backend.Allowed) *http.Client {
	guard := &backend.Guard{Allow: allow, Deny: metadataServices, Flag: "--login-allow"}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return guard.Dial(ctx, network, resolveLocalhost(address))
		},
		ForceAttemptHTTP2:     true,
		TLSHandshakeTimeout:   clientTimeout,
		ResponseHeaderTimeout: clientTimeout,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   2,
		MaxIdleConns:          64,
		MaxConnsPerHost:       32,

		MaxResponseHeaderBytes: 64 << 10,
	}
	return &http.Client{Transport: limitedTransport{t}, Timeout: clientTimeout, CheckRedirect: checkRedirect}
}

// resolveLocalhost maps names below localhost to localhost (RFC 6761): not every resolver does.
func resolveLocalhost(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err == nil && strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return net.JoinHostPort("localhost", port)
	}
	return address
}

var errRedirect = errors.New("the answer is a redirect to another host")

func checkRedirect(r *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > maxRedirects || first.Method != http.MethodGet || r.URL.Host != first.URL.Host ||
		r.URL.Scheme != first.URL.Scheme {
		return errRedirect
	}
	return nil
}

// limitedTransport limits the bodies of responses to maxResponse bytes.
type limitedTransport struct{ *http.Transport }

// RoundTrip implements http.RoundTripper. CloseIdleConnections is the transport's.
func (t limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	res.Body = &limitedBody{ReadCloser: res.Body, left: maxResponse}
	return res, nil
}

type limitedBody struct {
	io.ReadCloser
	left int
}

// Read fails past the limit, so that a truncated response is never taken for a complete one.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxResponse)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxResponse)
	}
	return n, err
}
