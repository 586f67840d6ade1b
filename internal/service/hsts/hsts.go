// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hsts owns the header Strict-Transport-Security (RFC 6797) of the answers that are
// Fairlead's own: the API and the dashboard at the base URL, and the pages and redirects of a
// login. What an upstream answers, and what is served over plain http, never gets it from here.
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

// Set sets the header of an answer over TLS of the host, which is that of the request and may have
// a port. The header holds for every port of a host, so localhost, on whose other ports people
// develop over http, does not get it, nor does an IP address, for which browsers ignore it.
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
