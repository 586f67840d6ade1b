// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import "strings"

// CodeHeader is the response header by which programs tell a page of Fairlead's from an answer of
// the upstream: it carries the Code.
const CodeHeader = "Fairlead-Error-Code"

// ReservedPath begins the paths that the service keeps for itself on the hosts of endpoints with a
// login action.
const ReservedPath = "/_fairlead/"

// IsReservedHeader reports whether the name of a header or trailer is the service's own:
// "Fairlead-" and more, in any spelling. Servers that turn names into variables do not tell "-"
// from "_", nor from any other sign.
func IsReservedHeader(name string) bool {
	const prefix = "fairlead"
	n := len(prefix)
	return len(name) > n && strings.EqualFold(name[:n], prefix) && plain(name[n]) == '-'
}

// forwardingHeaders are the names under which proxies pass on the client's address, and programs
// look for it.
var forwardingHeaders = map[string]bool{
	"forwarded": true, "forwarded-for": true, "x-forwarded": true, "x-original-forwarded-for": true,
	"client-ip": true, "true-client-ip": true, "x-client-ip": true, "x-cluster-client-ip": true,
	"fastly-client-ip": true, "fly-client-ip": true, "proxy-client-ip": true, "wl-proxy-client-ip": true,
	"cf-connecting-ip": true, "cf-connecting-ipv6": true, "cf-pseudo-ipv4": true, "do-connecting-ip": true,
	"x-real-ip": true, "x-remote-ip": true, "x-remote-addr": true, "x-originating-ip": true,
	"x-appengine-user-ip": true, "x-azure-clientip": true, "x-azure-socketip": true,
	"x-envoy-external-address": true,
}

// IsForwardingHeader reports whether a header or trailer claims whom a request is of, or how it
// came to the proxy before: X-Forwarded-For, True-Client-IP and the like, in any spelling.
func IsForwardingHeader(name string) bool {
	var buf [32]byte // longer than each of the names
	n := min(len(name), len(buf))
	for i := range n {
		buf[i] = plain(name[i])
	}
	return strings.HasPrefix(string(buf[:n]), "x-forwarded-") || forwardingHeaders[string(buf[:n])]
}

// plain returns letters in lower case, digits as they are, and "-" for all else.
func plain(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c + 'a' - 'A'
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		return c
	}
	return '-'
}
