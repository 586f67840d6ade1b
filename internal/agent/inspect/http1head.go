// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// headInfo is what a header says about the bytes that follow it.
type headInfo struct {
	length      int64 // Content-Length; -1 = none
	chunked     bool
	websocket   bool // the head asks for or accepts a WebSocket
	deflate     bool // the WebSocket has permessage-deflate
	contentType string
	encoded     bool // there is a Content-Encoding
}

// scanHead reads the header fields that headInfo needs.
func scanHead(head []byte) headInfo {
	info := headInfo{length: -1}
	_, rest := cutLine(head)
	for len(rest) > 0 {
		var line []byte
		line, rest = cutLine(rest)
		colon := bytes.IndexByte(line, ':')
		if colon < 7 || colon > len("sec-websocket-extensions") {
			continue
		}
		info.setField(line[:colon], line[colon+1:])
	}
	return info
}

func (h *headInfo) setField(name, value []byte) {
	is := func(want string) bool { return len(name) == len(want) && strings.EqualFold(string(name), want) }
	switch len(name) { // most fields are none of these
	case 7:
		if is("upgrade") {
			h.websocket = strings.EqualFold(string(bytes.TrimSpace(value)), "websocket")
		}
	case 12:
		if is("content-type") {
			h.contentType = strings.ToLower(string(bytes.TrimSpace(value)))
		}
	case 14:
		if is("content-length") {
			if n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err == nil && n >= 0 {
				h.length = n
			}
		}
	case 16:
		if is("content-encoding") {
			h.encoded = !strings.EqualFold(string(bytes.TrimSpace(value)), "identity")
		}
	case 17:
		if is("transfer-encoding") {
			h.chunked = h.chunked || bytes.Contains(bytes.ToLower(value), []byte("chunked"))
		}
	case 24:
		if is("sec-websocket-extensions") {
			h.deflate = bytes.Contains(value, []byte("permessage-deflate"))
		}
	}
}

// cutLine cuts b after its first line, whose end is not part of line.
func cutLine(b []byte) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return b, nil
	}
	return bytes.TrimSuffix(b[:i], []byte("\r")), b[i+1:]
}

// cutRequestLine returns "" for what is missing.
func cutRequestLine(line []byte) (method, target, proto string) {
	method, rest, _ := strings.Cut(string(line), " ")
	if i := strings.LastIndexByte(rest, ' '); i >= 0 {
		return method, rest[:i], rest[i+1:]
	}
	return method, rest, ""
}

func cutStatusLine(line []byte) (proto string, status int) {
	proto, rest, _ := strings.Cut(string(line), " ")
	code, _, _ := strings.Cut(rest, " ")
	return proto, atoi(code)
}

// atoi returns 0 for what is no number.
func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// isRequest reports whether b begins with the request line of HTTP/1.
func isRequest(b []byte) bool {
	line, _ := cutLine(b)
	space := bytes.IndexByte(line, ' ')
	if space < 1 || space > maxMethod {
		return false
	}
	for _, c := range line[:space] {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	i := bytes.LastIndexByte(line, ' ')
	return i > space && bytes.HasPrefix(line[i+1:], []byte("HTTP/1."))
}

const maxMethod = 64

// isAnswer reports whether b begins with a status line of HTTP/1.
func isAnswer(b []byte) bool { return statusOf(b) >= 100 }

// statusOf returns the status of b's status line; 0 if it begins with none.
func statusOf(b []byte) int {
	const before = len("HTTP/1.1 ")
	if len(b) < before+3 || !bytes.HasPrefix(b, []byte("HTTP/1.")) || b[before-1] != ' ' {
		return 0
	}
	status := 0
	for _, c := range b[before : before+3] {
		if c < '0' || c > '9' {
			return 0
		}
		status = status*10 + int(c-'0')
	}
	return status
}

// blockEnd returns the index behind the empty line that ends b's first block of lines; -1 if there
// is none from from on.
func blockEnd(b []byte, from int) int {
	switch {
	case bytes.HasPrefix(b, []byte("\r\n")):
		return 2
	case bytes.HasPrefix(b, []byte("\n")):
		return 1
	}
	from = max(from-3, 0)
	end := -1
	search := b[from:]
	if i := bytes.Index(search, []byte("\n\r\n")); i >= 0 {
		end = from + i + 3
		search = search[:i]
	}
	if i := bytes.Index(search, []byte("\n\n")); i >= 0 {
		end = from + i + 2
	}
	return end
}

// parseFields parses header fields as far as that is possible.
func parseFields(block []byte) http.Header {
	h := make(http.Header)
	last := ""
	for len(block) > 0 {
		var line []byte
		line, block = cutLine(block)
		if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') && last != "" { // goes on from the line before
			values := h[last]
			values[len(values)-1] += " " + string(bytes.TrimSpace(line))
			continue
		}
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		last = textproto.CanonicalMIMEHeaderKey(string(name))
		h[last] = append(h[last], string(bytes.TrimSpace(value)))
	}
	return h
}
