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

// clientOf says who sent the request: the connection's client, or whom a trusted proxy names in
// X-Forwarded-For. Of the addresses there, the last that is no trusted proxy counts: what stands
// before it, the client may have written.
func (e *Server) clientOf(c *conn, r *http.Request) Client {
	client := Client{Addr: c.client, TLS: c.tls != nil}
	if r.ProtoMajor == 1 {
		client.Abort = c.sever
	}
	if c.tls != nil {
		client.ServerName = c.tls.ServerName
	}
	if !contains(e.opt.TrustedProxies, c.client.Addr()) {
		return client
	}
	if hops := e.hops(c, r); len(hops) > 0 && hops[0] != c.client.Addr() {
		client.Addr = netip.AddrPortFrom(hops[0], 0)
	}
	if v := r.Header.Values(forwardedProto); len(v) == 1 && !client.TLS {
		client.TLS = strings.EqualFold(v[0], "https")
	}
	return client
}

// hops are the client and the trusted proxies after it.
func (e *Server) hops(c *conn, r *http.Request) []netip.Addr {
	return hops(r, c.client.Addr(), e.opt.TrustedProxies)
}

// ForwardedClient says whom a request over a connection from the address is of: of the addresses in
// a trusted proxy's X-Forwarded-For the last that is no trusted proxy. Of a connection from
// elsewhere it is that address.
func ForwardedClient(r *http.Request, from netip.Addr, trusted []netip.Prefix) netip.Addr {
	return hops(r, from.Unmap().WithZone(""), trusted)[0]
}

func hops(r *http.Request, from netip.Addr, trusted []netip.Prefix) []netip.Addr {
	hops := []netip.Addr{from}
	if !contains(trusted, from) {
		return hops
	}
	given := strings.Split(strings.Join(r.Header.Values(forwardedFor), ","), ",")
	for _, text := range slices.Backward(given) {
		a, ok := parseHop(strings.TrimSpace(text))
		if !ok {
			break
		}
		hops = slices.Insert(hops, 0, a)
		if !contains(trusted, a) {
			break
		}
	}
	return hops
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// parseHop reads an address as proxies write it: bare, or with a port.
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

// setForwarded replaces what the request says about hops before us by what is true. A trusted proxy
// is believed as well in X-Forwarded-For and -Proto only: it passes on other names as clients send
// them.
func (e *Server) setForwarded(c *conn, r *http.Request, client Client, scheme string) {
	hops := e.hops(c, r)
	if len(hops) > 1 {
		hops = hops[:len(hops)-1] // the last proxy's own address is the connection's, not the client's story
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
