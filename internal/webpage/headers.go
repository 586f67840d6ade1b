// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package webpage

import (
	"net/http"
	"strings"
)

// contentSecurityPolicy lets a page load only its own style sheet, script and pictures, and connect
// only to its own server.
var contentSecurityPolicy = strings.Join([]string{
	"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
	"form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
	"require-trusted-types-for 'script'", "trusted-types 'none'",
}, "; ")

// SetHeaders sets the security headers of a page that is for one person: it runs only what its own
// server has sent, no other site frames it, and no cache keeps it.
func SetHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	h.Set("Cache-Control", "no-store")
}
