// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package webpage

import (
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzhttp"
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

// Compressed returns a handler that compresses what h answers to GET with gzip, except for streams of
// events.
//
// The size of a compressed page that repeats part of its request tells who measures it how much of
// that part the page holds elsewhere (the attack BREACH). So a request that a page of another origin
// makes, a sibling host among them, is answered uncompressed, and so is every form that was posted:
// those answers are the only ones with new credentials.
func Compressed(h http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(gzhttp.EnableZstd(false))
	if err != nil {
		panic(err) // the options are ours
	}
	compressed := wrap(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site") // "" = no browser, or one that cannot tell
		if r.Method != http.MethodGet || r.Header.Get("Accept") == "text/event-stream" || site == "cross-site" ||
			site == "same-site" {
			h.ServeHTTP(w, r)
			return
		}
		compressed(w, r)
	})
}
