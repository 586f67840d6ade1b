// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
)

// PrivateUpstreams are the connections with upstreams that serve one client connection alone,
// because an upstream may have authenticated the connection in place of the request, as with NTLM
// and Negotiate (RFC 4559, section 6). There are none until the client presents such credentials or
// is asked for them; from then on all its requests use them, one at a time for each agent and
// static address. The zero value is ready. It is safe for concurrent use.
type PrivateUpstreams struct {
	inUse   atomic.Bool
	private pools
}

// connectionSchemes are the schemes of HTTP authentication that authenticate a connection.
var connectionSchemes = []string{"NTLM", "Negotiate", "Kerberos", "Nego2"}

// hasConnectionScheme reports whether one of the headers has a scheme that authenticates a
// connection. Challenges can stand in one header, separated by commas (RFC 9110, section 11.6.1).
func hasConnectionScheme(h http.Header, names ...string) bool {
	for _, name := range names {
		for _, value := range h[name] {
			for challenge := range strings.SplitSeq(value, ",") {
				scheme, _, _ := strings.Cut(strings.TrimSpace(challenge), " ")
				if slices.ContainsFunc(connectionSchemes, func(s string) bool { return strings.EqualFold(s, scheme) }) {
					return true
				}
			}
		}
	}
	return false
}

// pools returns the pools for a request, which must not use a connection that other clients use, too,
// when it has credentials of a connection. They are for one request where the client's connection is
// not known.
func (p *PrivateUpstreams) pools(u *upstreams, r *http.Request) *pools {
	bound := hasConnectionScheme(r.Header, "Authorization", "Proxy-Authorization")
	switch {
	case p == nil && bound:
		return &pools{use: byRequest}
	case p == nil:
		return &u.shared
	case bound:
		p.inUse.Store(true)
	}
	if p.inUse.Load() {
		return &p.private
	}
	return &u.shared
}

// observe makes the client's further requests private when the answer asks for credentials of a
// connection.
func (p *PrivateUpstreams) observe(res *http.Response) {
	if p == nil || res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusProxyAuthRequired ||
		!hasConnectionScheme(res.Header, "Www-Authenticate", "Proxy-Authenticate") {
		return
	}
	p.inUse.Store(true)
}

// Close ends the connections once no request uses them.
func (p *PrivateUpstreams) Close() { p.private.closeIdle() }
