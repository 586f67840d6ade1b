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

// rewrite makes the request to an upstream of the client's. Where it goes, and with which Host,
// each attempt says.
func (x *exchange) rewrite(p *httputil.ProxyRequest) {
	x.host = p.In.Host
	p.Out.URL.RawQuery = p.In.URL.RawQuery // as it came, also where Go cannot parse it
	p.Out.Trailer = p.In.Trailer           // filled in while the body is read
	// Also where no login action has done so: its rule does not hold, or it is gone.
	trafficpolicy.DropLoginCookies(p.Out.Header)
	for name, values := range p.In.Header {
		if account.IsForwardingHeader(name) {
			p.Out.Header[name] = values // the proxy has left out some
		}
	}
}

// stateClient makes the request's header say where it comes from, before policies read and change
// it. What the client says goes; a listener that has done so is believed.
func (x *exchange) stateClient() {
	if x.origin.Forwarded {
		return
	}
	h := x.r.Header
	maps.DeleteFunc(h, isForwarding)
	if ip := x.origin.ClientIP; ip.IsValid() {
		h.Set("X-Forwarded-For", ip.String())
	} else if host, _, err := net.SplitHostPort(x.r.RemoteAddr); err == nil {
		h.Set("X-Forwarded-For", host)
	}
	h.Set("X-Forwarded-Host", x.r.Host)
	h.Set("X-Forwarded-Proto", "http")
	if x.origin.TLS {
		h.Set("X-Forwarded-Proto", "https")
	}
}

func isForwarding(name string, _ []string) bool { return account.IsForwardingHeader(name) }

func isReserved(name string, _ []string) bool { return account.IsReservedHeader(name) }

// dropFromTrailer removes from a request's trailers what only a header of ours may say.
func dropFromTrailer(trailer http.Header) {
	maps.DeleteFunc(trailer, isReserved)
	maps.DeleteFunc(trailer, isForwarding)
}

// upstreamHost is the Host that the upstream sees.
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

// dropLoginCookies removes cookies of login actions from an upstream's answer: they are the edge's
// to set.
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

// dropUpgradeToHTTP2 removes an offer to go on in HTTP/2: a connection that took it would carry
// requests that nobody parses. RFC 9113 has dropped that upgrade; clients that offer it go on in
// HTTP/1.1.
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
