// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hsts owns the header Strict-Transport-Security (RFC 6797) of Fairlead's own responses:
// the API and the dashboard at the base URL, and the pages and redirects of a login. It is not for
// responses of upstreams, or over plain http.
package hsts

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// headerValue keeps browsers on https for 180 days after the last answer. Subdomains are not
// included: they may be other hosts of the owner.
const headerValue = "max-age=15552000"

// Set sets the header of a response over TLS; host is the request's, with or without a port. The
// header applies to all ports of a host, so Set skips localhost, whose other ports often serve
// plain http, and IP addresses, for which browsers ignore the header.
func Set(h http.Header, host string) {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if _, err := netip.ParseAddr(host); err == nil || host == "" || host == "localhost" ||
		strings.HasSuffix(host, ".localhost") {
		return
	}
	h.Set("Strict-Transport-Security", headerValue)
}
