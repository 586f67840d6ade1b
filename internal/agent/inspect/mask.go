// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Masked stands for a value that is not shown.
const Masked = "••••"

// linkHeaders hold URLs, whose queries are masked.
var linkHeaders = []string{"Location", "Content-Location", "Referer", "Refresh", "Link", "X-Original-Url",
	"X-Original-Uri", "X-Forwarded-Uri"}

// masking replaces secrets with Masked, by the names of values and by their shape, and collects
// what it has replaced.
type masking struct {
	marked []string // further names, in any case
	found  []string // what is looked for elsewhere in the exchange
}

// message returns m with secrets masked: in its URL, headers and trailers, and in a body without a
// Content-Encoding; of an encoded body, it removes the body. The frames of an exchange are not
// masked by it.
func (p *masking) message(m *Message) Message {
	out := *m
	out.Header, out.Trailer = p.header(m.Header), p.header(m.Trailer)
	out.URL = p.url(m.URL)
	switch {
	case len(m.Body) == 0:
	case isEncoded(m):
		out.Body, out.Truncated = nil, true
	default:
		out.Body = []byte(p.body(m.Header.Get("Content-Type"), string(m.Body)))
	}
	return out
}

// hide returns Masked for a secret, and remembers it.
func (p *masking) hide(secret string) string {
	if secret == "" || secret == Masked {
		return secret
	}
	p.found = append(p.found, atLeast(minParameter, secret)...)
	if plain, err := url.QueryUnescape(secret); err == nil && plain != secret {
		p.found = append(p.found, atLeast(minParameter, plain)...)
	}
	return Masked
}

func (p *masking) isSecret(name string) bool {
	return IsSecret(name) || slices.ContainsFunc(p.marked, func(m string) bool { return strings.EqualFold(m, name) })
}

func (p *masking) header(h http.Header) http.Header {
	out := maps.Clone(h)
	for name, values := range h {
		masked := make([]string, len(values))
		for i, v := range values {
			switch {
			case p.isSecret(name) && v != Masked:
				masked[i], p.found = Masked, append(p.found, partsOf(name, v)...)
			case slices.Contains(linkHeaders, name) || strings.Contains(v, "://"):
				masked[i] = p.url(v)
			default:
				masked[i] = p.shaped(v)
			}
		}
		out[name] = masked
	}
	return out
}

// url masks the user, the tokens of the path, and the parameters of a URL, or of a text with URLs.
func (p *masking) url(u string) string {
	u = p.shaped(u)
	path, rest := u, ""
	if i := strings.IndexAny(u, "?#"); i >= 0 {
		path, rest = u[:i], u[i:]
	}
	return p.maskPath(path) + p.parameters(rest, false)
}
