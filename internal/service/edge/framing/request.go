// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"net/http"
	"strings"
)

// CheckRequest returns what is wrong with a request that net/http accepts although other programs
// might read it differently, as a sentence for the client; "" when nothing is. The caller answers
// such a request with 400.
func CheckRequest(r *http.Request) string {
	switch {
	case !isToken([]byte(r.Method)):
		return "The request's method has characters that no method has."
	case r.Method == http.MethodConnect:
		return "CONNECT is not a request to an endpoint."
	case !strings.HasPrefix(r.RequestURI, "/") && (r.RequestURI != "*" || r.Method != http.MethodOptions):
		return "The request's target must be a path."
	case r.ProtoMajor != 2:
		return ""
	}
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && hosts[0] != r.Host {
		return "The request names two hosts."
	}
	return checkLengths(r)
}

// checkLengths checks the Content-Length of an HTTP/2 request (RFC 9113, section 8.1.1): net/http
// takes the first of several, and does not compare it with an absent body.
func checkLengths(r *http.Request) string {
	lengths := r.Header["Content-Length"]
	if len(lengths) == 0 {
		return ""
	}
	n, ok := parseLength([]byte(lengths[0]))
	switch {
	case len(lengths) > 1:
		return "The request has more than one Content-Length."
	case !ok:
		return "The request's Content-Length is not a number."
	case n > 0 && r.ContentLength != n:
		return "The request's Content-Length is not the length of its body."
	}
	return ""
}
