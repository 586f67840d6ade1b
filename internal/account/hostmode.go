// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"net"
	"strconv"
	"strings"
)

const ruleHostMode = "must be passthrough, rewrite, or a host name with an optional port"

// ValidateHTTPOptions checks the upstream protocol and the host mode, which only http endpoints
// have. Both may be empty; for a tcp endpoint the host mode may also be HostPassthrough. It lists
// every broken rule as CodeInvalid.
func ValidateHTTPOptions(scheme, upstreamProtocol, hostMode string) error {
	const none = "a tcp endpoint has none; leave it out"
	var r rules
	tcp := scheme == "tcp"
	if tcp && upstreamProtocol != "" {
		r.add("upstream_protocol", upstreamProtocol, none)
	}
	switch {
	case hostMode == "" || hostMode == HostPassthrough:
	case tcp:
		r.add("host_mode", hostMode, none)
	case !validHostMode(hostMode):
		r.add("host_mode", hostMode, ruleHostMode)
	}
	return r.err()
}

// validHostMode reports whether v is a mode or a valid Host header.
func validHostMode(v string) bool {
	if v == HostPassthrough || v == HostRewrite {
		return true
	}
	host := v
	if h, port, err := net.SplitHostPort(v); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
		host = h
	}
	if net.ParseIP(host) != nil {
		return true
	}
	outside := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_'
	}
	return host != "" && len(host) <= 253 && !strings.ContainsFunc(host, outside)
}
