// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package framing

import (
	"bytes"
	"encoding/hex"
	"math"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// headEnd returns where the head ends, 0 while it is incomplete. bad reports that it cannot become
// valid: a line does not end in CRLF.
func headEnd(b []byte) (end int, bad bool) {
	for at := 0; ; {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return 0, false
		}
		if line := b[at : at+i]; len(line) == 0 || line[len(line)-1] != '\r' {
			return 0, true
		} else if len(line) == 1 {
			return at + i + 1, false
		}
		at += i + 1
	}
}

// checkHead returns the body that a complete head announces. ok reports whether every program reads
// that alike: one of Content-Length and Transfer-Encoding, once and in its plain form; one Host; no
// folded lines, no space before a colon, no control characters.
func checkHead(head []byte) (length int64, chunked, ok bool) {
	line, rest, _ := bytes.Cut(head, []byte("\r\n"))
	http10, ok := checkRequestLine(line)
	if !ok {
		return 0, false, false
	}
	hosts, lengths, codings := 0, 0, 0
	for {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if len(line) == 0 {
			break
		}
		name, value, colon := bytes.Cut(line, []byte(":"))
		if !colon || !isToken(name) || !isText(value) {
			return 0, false, false
		}
		value = bytes.Trim(value, " \t")
		switch plain := normalizedName(name); plain {
		case "host", "content-length", "transfer-encoding":
			if bytes.IndexByte(name, '_') >= 0 { // taken for the same by servers that turn names into variables
				return 0, false, false
			}
			switch plain {
			case "host":
				hosts++
				ok = httpguts.ValidHostHeader(string(value))
			case "content-length":
				lengths++
				length, ok = parseLength(value)
			default:
				codings++
				ok = strings.EqualFold(string(value), "chunked")
			}
			if !ok {
				return 0, false, false
			}
		}
	}
	switch {
	case hosts > 1 || hosts == 0 && !http10, lengths+codings > 1, codings > 0 && http10:
		return 0, false, false
	}
	return length, codings > 0, true
}

// hasUpgrade reports whether a valid head has an Upgrade header.
func hasUpgrade(head []byte) bool {
	const name = "\r\nupgrade:"
	for i := 0; i+len(name) <= len(head); i++ {
		if head[i] == '\r' && strings.EqualFold(string(head[i:i+len(name)]), name) {
			return true
		}
	}
	return false
}

// checkRequestLine checks "METHOD TARGET HTTP/1.x"; http10 reports whether x is 0.
func checkRequestLine(line []byte) (http10, ok bool) {
	method, rest, ok1 := bytes.Cut(line, []byte(" "))
	target, version, ok2 := bytes.Cut(rest, []byte(" "))
	if !ok1 || !ok2 || !isToken(method) || len(target) == 0 ||
		target[0] != '/' && !isURL(string(method), string(target)) {
		return false, false
	}
	path, _, _ := bytes.Cut(target, []byte("?"))
	for i, c := range target {
		if c <= ' ' || c == 0x7f || c == '%' && i < len(path) && !startsWithEscape(path[i:]) {
			return false, false
		}
	}
	return string(version) == "HTTP/1.0", string(version) == "HTTP/1.0" || string(version) == "HTTP/1.1"
}

// isURL reports whether net/http can read a target that is no path: it would answer any other itself.
func isURL(method, target string) bool {
	if method == http.MethodConnect {
		target = "http://" + target
	}
	_, err := url.ParseRequestURI(target)
	return err == nil
}

// startsWithEscape reports whether two hexadecimal digits follow the first byte.
func startsWithEscape(b []byte) bool {
	_, err := hex.DecodeString(string(b[1:min(len(b), 3)]))
	return err == nil && len(b) > 2
}

// normalizedName returns the name in lower case with "-" for "_" if its length is that of a name
// that checkHead checks, else "".
func normalizedName(name []byte) string {
	switch len(name) {
	case len("host"), len("content-length"), len("transfer-encoding"):
		return strings.ReplaceAll(strings.ToLower(string(name)), "_", "-")
	}
	return ""
}

func isToken(b []byte) bool {
	for _, c := range b {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if digit := '0' <= c && c <= '9'; !letter && !digit && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return len(b) > 0
}

func isText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// parseLength parses decimal digits; values above an int64 are refused.
func parseLength(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' || n > (math.MaxInt64-9)/10 {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, len(b) > 0
}

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
