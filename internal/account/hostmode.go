// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"net"
	"strconv"
	"strings"
)

// RuleHostMode is what ValidHostMode asks for.
const RuleHostMode = "must be passthrough, rewrite, or a host name with an optional port"

// ValidHostMode says whether the value is a mode or can stand in a Host header.
func ValidHostMode(v string) bool {
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
