// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package edge

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// rewrite makes the request to an upstream of the client's. Where it goes, and with which Host, each attempt says.
func (x *exchange) rewrite(p *httputil.ProxyRequest) {
	x.host = p.In.Host
	p.Out.URL.RawQuery = p.In.URL.RawQuery // as it came, also where Go cannot parse it
	p.Out.Trailer = p.In.Trailer           // filled in while the body is read
	// Also where no login action has done so: its rule does not hold, or it is gone.
	trafficpolicy.DropLoginCookies(p.Out.Header)
	x.setForwarded(p)
}

// setForwarded says to the upstream where the request comes from. What the client says is believed only where a trusted proxy has said it.
func (x *exchange) setForwarded(p *httputil.ProxyRequest) {
	if x.origin.Forwarded {
		for name, values := range p.In.Header {
			if forwarded(name) {
				p.Out.Header[name] = values // the proxy has left out some
			}
		}
		return
	}
	dropForwarded(p.Out.Header)
	p.SetXForwarded()
	if ip := x.origin.ClientIP; ip.IsValid() {
		p.Out.Header.Set("X-Forwarded-For", ip.String())
	}
	if x.origin.TLS {
		p.Out.Header.Set("X-Forwarded-Proto", "https")
	}
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

// dropForwarded removes what clients say about hops before us, however they spell it: servers that turn header names into variables do not
// tell "-" from "_", or from any other sign.
func dropForwarded(h http.Header) {
	for name := range h {
		if forwarded(name) {
			delete(h, name)
		}
	}
}

func forwarded(name string) bool {
	plain := strings.Map(plainly, name)
	return plain == "forwarded" || plain == "x-real-ip" || strings.HasPrefix(plain, "x-forwarded-")
}

// plainly makes "-" of what is no letter and no digit, and small letters of the others.
func plainly(r rune) rune {
	switch {
	case 'A' <= r && r <= 'Z':
		return r + 'a' - 'A'
	case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
		return r
	}
	return '-'
}

// identityPrefix begins the names of headers that say to an upstream who the caller is. Only the edge sets them.
const identityPrefix = "fairlead"

// dropIdentity removes them from what a client sends, however it spells them: some servers make one and the same of "-", "_", "." and whatever else is no
// letter and no digit.
func dropIdentity(h http.Header) {
	for name := range h {
		n := len(identityPrefix)
		if len(name) <= n || !strings.EqualFold(name[:n], identityPrefix) {
			continue
		}
		letter, digit := 'a' <= name[n]|0x20 && name[n]|0x20 <= 'z', '0' <= name[n] && name[n] <= '9'
		if !letter && !digit {
			delete(h, name)
		}
	}
}

// dropLoginCookies removes cookies of login actions from an upstream's answer: they are the edge's to set.
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

// dropUpgradeToHTTP2 removes an offer to go on in HTTP/2: a connection that took it would carry requests that nobody parses. RFC 9113 has
// dropped that upgrade; clients that offer it go on in HTTP/1.1.
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
