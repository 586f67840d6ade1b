// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// maxURL is the most bytes of a URL that patterns are tried on.
const maxURL = 16 << 10

// rewriting is what redirect and url-rewrite have in common: a pattern on the whole URL of a request, and what its matches become.
type rewriting struct {
	pattern *regexp.Regexp // nil with a dynamic one, and with none
	from    *template
	to      *template
}

func (a *rewriting) provision(c *config) {
	if a.from = c.template("from", regexp.QuoteMeta); a.from != nil {
		if text, fixed := a.from.fixed(); fixed {
			var err error
			if a.pattern, err = compilePattern(text); err != nil {
				c.c.problem(c.values["from"], text, "%v", err)
			}
		}
	}
	var escape func(string) string
	if a.from != nil { // $1 of a client's must not become a match
		escape = func(s string) string { return strings.ReplaceAll(s, "$", "$$") }
	}
	if a.to = c.template("to", escape); !c.has("to") {
		c.missing("to", "the URL, or what the matches of from become")
	}
}

// apply returns what becomes of the URL of the request. changed is false when the pattern does not match, or changes nothing.
func (a *rewriting) apply(x *exchange) (result string, changed bool, err error) {
	before := x.scheme() + "://" + x.r.Host + requestURI(x.r.URL)
	if len(before) > maxURL {
		return "", false, fmt.Errorf("matching a URL of %d bytes: at most %d are looked at", len(before), maxURL)
	}
	to, err := a.to.render(x)
	if err != nil {
		return "", false, err
	}
	pattern := a.pattern
	switch {
	case a.from == nil:
		return to, to != before, nil
	case pattern == nil:
		from, err := a.from.render(x)
		if err != nil {
			return "", false, err
		}
		if pattern, err = compilePattern(from); err != nil {
			return "", false, err
		}
	}
	after := pattern.ReplaceAllString(before, to)
	return after, after != before, nil
}

// redirect sends the client to another URL.
type redirect struct {
	rewriting
	status  int
	headers []header
}

func (a *redirect) provision(c *config) {
	a.rewriting.provision(c)
	if a.status = c.number("status_code", http.StatusFound, 300, 399); a.status == http.StatusNotModified {
		c.c.problem(c.values["status_code"], "304", "304 is no redirect")
	}
	a.headers = c.headers("headers", false)
}

func (a *redirect) serve(x *exchange) {
	to, changed, err := a.apply(x)
	switch {
	case err != nil:
		x.broken()
		return
	case !changed:
		x.next()
		return
	}
	u, err := url.Parse(to)
	if err != nil || !validHeaderValue("Location", to) {
		x.broken()
		return
	}
	headers := renderHeaders(x, a.headers)
	if headers == nil {
		headers = http.Header{}
	}
	headers.Set("Location", u.String())
	x.respond(a.status, headers, "")
}

// urlRewrite changes path and query of a request on its way to the upstream. The host stays.
type urlRewrite struct{ rewriting }

func (a *urlRewrite) serve(x *exchange) {
	to, changed, err := a.apply(x)
	if err != nil {
		x.broken()
		return
	}
	if changed {
		u, err := url.Parse(to)
		if err != nil || u.Opaque != "" || u.Path != "" && u.Path[0] != '/' {
			x.broken()
			return
		}
		if u.Path == "" {
			u.Path, u.RawPath = "/", ""
		}
		r := x.edit()
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.URL.ForceQuery, r.URL.Opaque = u.Path, u.RawPath, u.RawQuery, u.ForceQuery, ""
	}
	x.next()
}
