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
