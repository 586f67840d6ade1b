// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"net/http"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Requests that replace a refused head; the connection ends with them.
const (
	refusedMethod = "REFUSED"
	refusedEnd    = " HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n"
	malformedHead = refusedMethod + " *" + refusedEnd
	tooLargeHead  = refusedMethod + " /" + refusedEnd
)

// CheckRequest returns the answer to a request whose head is refused, or that net/http accepts
// although other programs might read it differently; nil when nothing is wrong. The target of one
// that passes has no scheme and host any more: net/http has put the latter in place of the Host
// header's (RFC 9112, section 3.2.2).
func CheckRequest(r *http.Request) *account.Error {
	if r.Method == refusedMethod && r.RequestURI == "/" {
		return account.Errorf(account.CodeHeaderTooLarge,
			"The request's header is larger than %d KiB, which is the limit.", MaxHeaderBytes>>10)
	}
	if problem := findProblem(r); problem != "" {
		return account.Errorf(account.CodeBadRequest, "%s", problem)
	}
	return nil
}

// findProblem returns why programs might read the request differently; "" when they do not.
func findProblem(r *http.Request) string {
	switch {
	case r.Method == refusedMethod && r.RequestURI == "*":
		return "The request's head is malformed, or other programs might read it differently: its lines, " +
			"its Host, its lengths, or a % in its path without two hexadecimal digits. Correct the client."
	case !isToken([]byte(r.Method)):
		return "The request's method has characters that no method has."
	case r.Method == http.MethodConnect:
		return "CONNECT is not a request to an endpoint."
	case strings.HasPrefix(r.RequestURI, "/"), r.RequestURI == "*" && r.Method == http.MethodOptions:
	case r.ProtoMajor == 2 || !setOriginForm(r):
		return "The request's target must be a path, or an http or https URL."
	}
	if r.ProtoMajor != 2 {
		return ""
	}
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && hosts[0] != r.Host {
		return "The request names two hosts."
	}
	return checkLengths(r)
}

// setOriginForm makes an absolute target a path. It returns false where it is no URL of http.
func setOriginForm(r *http.Request) bool {
	u := r.URL
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return false
	}
	_, rest, _ := strings.Cut(r.RequestURI, "://")
	r.RequestURI = strings.TrimLeftFunc(rest, func(c rune) bool { return c != '/' && c != '?' })
	if u.Scheme, u.Host = "", ""; u.Path == "" {
		u.Path = "/"
		if r.Method == http.MethodOptions && r.RequestURI == "" { // section 3.2.4
			u.Path = "*"
		}
		r.RequestURI = u.Path + r.RequestURI
	}
	return true
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
