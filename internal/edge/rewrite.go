// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// rewrite prepares the outgoing request. Its address and Host are set for each target.
func (d *delivery) rewrite(p *httputil.ProxyRequest) {
	d.host = p.In.Host
	p.Out.URL.RawQuery = p.In.URL.RawQuery                    // unchanged, even where Go cannot parse it
	p.Out.Trailer = p.In.Trailer                              // filled in while the body is read
	if agents := p.In.Header["User-Agent"]; len(agents) > 1 { // the transports send the first of one spelling
		p.Out.Header["User-Agent"], p.Out.Header["user-agent"] = agents[:1], agents[1:]
	}
	// An upstream that answers without "100 Continue" may leave the body unread, as the next request.
	p.Out.Close = p.Out.Header["Expect"] != nil
	// Login actions drop these cookies too, but only where their rule applies.
	trafficpolicy.DropLoginCookies(p.Out.Header)
	for name, values := range p.In.Header {
		if account.IsForwardingHeader(name) {
			p.Out.Header[name] = values // the proxy drops some of them
		}
	}
}

// setForwardingHeaders sets X-Forwarded-* of a request before policies read and change them. What
// the client sent is dropped, unless ClientInfo.Forwarded.
func (info *ClientInfo) setForwardingHeaders(r *http.Request) {
	if info.Forwarded {
		return
	}
	h := r.Header
	client := info.ClientIP.String()
	if !info.ClientIP.IsValid() {
		client, _, _ = net.SplitHostPort(r.RemoteAddr)
	}
	if info.AppendForwarded {
		appendForwarded(r, client)
		return
	}
	maps.DeleteFunc(h, isForwardingHeader)
	if client != "" {
		h.Set("X-Forwarded-For", client)
	}
	h.Set("X-Forwarded-Host", r.Host)
	h.Set("X-Forwarded-Proto", "http")
	if info.TLS {
		h.Set("X-Forwarded-Proto", "https")
	}
}

// proxyHeaders are the forwarding headers that are kept of a proxy in the cluster. Others it may have
// passed on from its own client.
var proxyHeaders = []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "Forwarded"}

// appendForwarded keeps what a proxy says about its client, and appends the proxy's address.
func appendForwarded(r *http.Request, proxy string) {
	h := r.Header
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		return account.IsForwardingHeader(name) && !slices.Contains(proxyHeaders, name)
	})
	if proxy != "" {
		h.Set("X-Forwarded-For", strings.Join(append(h["X-Forwarded-For"], proxy), ", "))
		if before := h["Forwarded"]; before != nil {
			node := "for=" + proxy
			if strings.Contains(proxy, ":") {
				node = `for="[` + proxy + `]"` // RFC 7239, section 6
			}
			h.Set("Forwarded", strings.Join(append(before, node), ", "))
		}
	}
	if h["X-Forwarded-Host"] == nil {
		h.Set("X-Forwarded-Host", r.Host)
	}
	if h["X-Forwarded-Proto"] == nil {
		h.Set("X-Forwarded-Proto", "http")
	}
}

func isForwardingHeader(name string, _ []string) bool { return account.IsForwardingHeader(name) }

func isReservedHeader(name string, _ []string) bool { return account.IsReservedHeader(name) }

// sanitizeTrailer removes reserved and forwarding headers from a request's trailers.
func sanitizeTrailer(trailer http.Header) {
	maps.DeleteFunc(trailer, isReservedHeader)
	maps.DeleteFunc(trailer, isForwardingHeader)
}

// upstreamHost returns the Host header that the upstream gets; given is the client's.
func upstreamHost(ep *account.Endpoint, given string) string {
	switch ep.HostMode {
	case account.HostPassthrough, "":
		if given != "" {
			return given
		}
		return ep.HostPort // HTTP/1.0 without a Host
	case account.HostRewrite:
		if u, err := url.Parse(ep.UpstreamURL); err == nil && u.Host != "" {
			return u.Host
		}
		return given
	}
	return ep.HostMode
}

// withUpstreamOrigin returns the request with the upstream's scheme and host in Origin and Referer
// where they name the endpoint's own, if Host is rewritten, too: an upstream compares them. given is
// the client's Host; X-Forwarded-Host is the edge's, or that of a proxy that is believed. The request
// itself is not changed, as another upstream may get it next.
func withUpstreamOrigin(r *http.Request, ep *account.Endpoint, given string) *http.Request {
	if ep.HostMode != account.HostRewrite || r.Header["Origin"] == nil && r.Header["Referer"] == nil {
		return r
	}
	u, err := url.Parse(ep.UpstreamURL)
	if err != nil || u.Host == "" {
		return r
	}
	origin := "http://" + strings.TrimSuffix(u.Host, ":80")
	if u.Scheme == "https" {
		origin = "https://" + strings.TrimSuffix(u.Host, ":443")
	}
	out := r.WithContext(r.Context())
	out.Header = maps.Clone(r.Header)
	for _, name := range []string{"Origin", "Referer"} {
		scheme, rest, _ := strings.Cut(out.Header.Get(name), "://")
		end := strings.IndexAny(rest, "/?#")
		if end < 0 {
			end = len(rest)
		}
		host := rest[:end]
		if (scheme == "http" || scheme == "https") && (sameHost(host, given) || sameHost(host, ep.HostPort) ||
			sameHost(host, r.Header.Get("X-Forwarded-Host"))) {
			out.Header[name] = []string{origin + rest[end:]}
		}
	}
	return out
}

// sameHost reports whether two hosts are the same, with or without the default port of their scheme.
func sameHost(a, b string) bool {
	trim := func(host string) string { return strings.TrimSuffix(strings.TrimSuffix(host, ":80"), ":443") }
	return a != "" && strings.EqualFold(trim(a), trim(b))
}

// dropLoginCookies removes cookies of login actions from an upstream's answer: only the edge sets
// them.
func dropLoginCookies(h http.Header) {
	all := h["Set-Cookie"]
	if !slices.ContainsFunc(all, trafficpolicy.IsLoginCookie) {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(all), trafficpolicy.IsLoginCookie)
	if h["Set-Cookie"] = kept; len(kept) == 0 {
		delete(h, "Set-Cookie")
	}
}

// dropUpgradeToHTTP2 removes an offer to upgrade to h2c: the requests on such a connection would
// not be parsed. RFC 9113 has dropped that upgrade; clients that offer it go on in HTTP/1.1.
func dropUpgradeToHTTP2(h http.Header) {
	for _, v := range h.Values("Upgrade") {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "h2c") {
				h.Del("Upgrade")
				h.Del("Http2-Settings")
				return
			}
		}
	}
}
