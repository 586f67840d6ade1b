// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package public

import (
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	forwardedFor   = "X-Forwarded-For"
	forwardedProto = "X-Forwarded-Proto"
	forwardedHost  = "X-Forwarded-Host"
)

// clientOf returns the client of a request: that of the connection, or the one that trusted proxies
// name in X-Forwarded-For: its last address that is no trusted proxy, as the client may have
// written those before it.
func (s *Server) clientOf(c *conn, r *http.Request) Client {
	client := Client{Addr: c.client, TLS: c.tls != nil, Upstreams: &c.upstreams}
	if r.ProtoMajor == 1 {
		client.Aborter = c
	}
	if c.tls != nil {
		client.ServerName = c.tls.ServerName
	}
	if !containsAddr(s.opt.TrustedProxies, c.client.Addr()) {
		return client
	}
	client.Upstreams = nil // the proxy may send several people's requests over one connection
	if hops := s.hops(c, r); len(hops) > 0 && hops[0] != c.client.Addr() {
		client.Addr = netip.AddrPortFrom(hops[0], 0)
	}
	if v := r.Header.Values(forwardedProto); len(v) == 1 && !client.TLS {
		client.TLS = strings.EqualFold(v[0], "https")
	}
	return client
}

// hops returns the client and the trusted proxies after it.
func (s *Server) hops(c *conn, r *http.Request) []netip.Addr {
	return hops(r, c.client.Addr(), s.opt.TrustedProxies)
}

// ForwardedClient returns the client of a request on a connection from the address. Where that is a
// trusted proxy it is the last address in X-Forwarded-For that is no trusted proxy, else the
// address itself.
func ForwardedClient(r *http.Request, from netip.Addr, trusted []netip.Prefix) netip.Addr {
	return hops(r, from.Unmap().WithZone(""), trusted)[0]
}

func hops(r *http.Request, from netip.Addr, trusted []netip.Prefix) []netip.Addr {
	hops := []netip.Addr{from}
	if !containsAddr(trusted, from) {
		return hops
	}
	given := strings.Split(strings.Join(r.Header.Values(forwardedFor), ","), ",")
	for _, text := range slices.Backward(given) {
		a, ok := parseHop(strings.TrimSpace(text))
		if !ok {
			break
		}
		hops = slices.Insert(hops, 0, a)
		if !containsAddr(trusted, a) {
			break
		}
	}
	return hops
}

func containsAddr(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// parseHop parses an address as proxies write it: bare, or with a port.
func parseHop(s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	if err != nil {
		at, err := netip.ParseAddrPort(s)
		if err != nil {
			return netip.Addr{}, false
		}
		a = at.Addr()
	}
	return a.Unmap().WithZone(""), true
}

// setForwarded replaces the request's X-Forwarded-* and Forwarded headers. Of a trusted proxy only
// X-Forwarded-For and -Proto are used: it passes on other names as clients send them.
func (s *Server) setForwarded(c *conn, r *http.Request, client Client, scheme string) {
	hops := s.hops(c, r)
	if len(hops) > 1 {
		hops = hops[:len(hops)-1] // the last proxy's address comes from the connection, not from the header
	}
	texts := make([]string, len(hops))
	for i, a := range hops {
		texts[i] = a.String()
	}
	maps.DeleteFunc(r.Header, func(name string, _ []string) bool { return account.IsForwardingHeader(name) })
	r.Header.Set(forwardedFor, strings.Join(texts, ", "))
	r.Header.Set(forwardedProto, scheme)
	r.Header.Set(forwardedHost, r.Host)
	r.RemoteAddr = client.Addr.String()
}
