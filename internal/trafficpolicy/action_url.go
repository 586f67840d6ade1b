// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxURL is the length in bytes of the longest URL that patterns are matched with.
const maxURL = 16 << 10

// urlSubstitution is common to redirect and url-rewrite: a pattern for the whole URL of a request,
// and the replacement of its matches.
type urlSubstitution struct {
	pattern *pattern // nil with a dynamic one, and with none
	from    *template
	to      *template
}

func (a *urlSubstitution) provision(c *config) {
	if a.from = c.template("from"); a.from != nil {
		if text, fixed := a.from.fixed(); fixed {
			a.pattern = c.pattern(c.values["from"], text)
		}
	}
	if a.to = c.template("to"); !c.has("to") {
		c.missing("to", "the URL, or what the matches of from become")
	}
	if a.from != nil && a.to != nil && !c.c.policy.options.Stored {
		a.checkGroups(c)
	}
}

// checkGroups reports references such as $2 in to for which from has no group: they would become
// nothing.
func (a *urlSubstitution) checkGroups(c *config) {
	pattern := a.parseGroups(c)
	if pattern == nil {
		return
	}
	n := c.values["to"]
	for at, text := 0, n.Value; ; {
		i := strings.IndexByte(text[at:], '$')
		if i < 0 {
			return
		}
		at += i
		length, name := reference(text[at:])
		if name != "" && !hasGroup(pattern, name) {
			line, column := c.c.lines.position(n, utf8.RuneCountInString(text[:at]))
			c.c.problems = append(c.c.problems, Problem{line, column, text[at : at+length], noGroup(pattern, name)})
		}
		at += length
	}
}

// parseGroups returns a pattern with the groups of from; nil where they are unknown.
func (a *urlSubstitution) parseGroups(c *config) *syntax.Regexp {
	text := ""
	for _, p := range a.from.parts {
		if text += p.text; p.e != nil {
			text += "x" // expressions are taken literally: they make no groups
		}
	}
	c.c.cost += patternCost * uint64(len(text))
	if c.c.cost > documentCost {
		return nil
	}
	pattern, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil
	}
	return pattern
}

var groupName = regexp.MustCompile(`^[\pL\pN_]+`)

// reference reads the reference at the $ that begins text: its length in bytes, and the group that
// it names, which is "" for $$, ${expressions} and a $ alone.
func reference(text string) (length int, name string) {
	rest := text[1:]
	switch {
	case strings.HasPrefix(rest, "${"):
		if name, _, ok := strings.Cut(rest[2:], "}"); ok {
			return len(name) + 4, name
		}
		return 3, ""
	case strings.HasPrefix(rest, "$"):
		return 2, ""
	case strings.HasPrefix(rest, "{"):
		return 2 + max(expressionEnd(rest[1:]), 0), ""
	}
	name = groupName.FindString(rest)
	return 1 + len(name), name
}

func hasGroup(pattern *syntax.Regexp, name string) bool {
	if n, err := strconv.Atoi(name); err == nil {
		return n <= pattern.MaxCap()
	}
	return slices.Contains(pattern.CapNames(), name)
}

func noGroup(pattern *syntax.Regexp, name string) string {
	digits := name[:len(name)-len(strings.TrimLeft(name, "0123456789"))]
	switch {
	case digits == name:
		return fmt.Sprintf("the pattern of from has no group %s: it has %d; write $$ for the character $",
			name, pattern.MaxCap())
	case digits != "":
		return fmt.Sprintf("the pattern of from has no group %q; for group %s with %s after it write $${%s}%s",
			name, digits, name[len(digits):], digits, name[len(digits):])
	}
	return fmt.Sprintf("the pattern of from has no group %q; write $$ for the character $", name)
}

// apply returns the URL of the request after the substitution. changed is false when the pattern
// does not match, or changes nothing.
func (a *urlSubstitution) apply(x *exchange) (result string, changed bool, err error) {
	before := x.scheme() + "://" + x.r.Host + requestURI(x.r.URL)
	if len(before) > maxURL {
		return "", false, fmt.Errorf("matching a URL of %d bytes: at most %d are looked at", len(before), maxURL)
	}
	var escape func(string) string
	if a.from != nil { // $1 of a client's must not become a match
		escape = func(s string) string { return strings.ReplaceAll(s, "$", "$$") }
	}
	to, err := a.to.render(x, escape)
	if err != nil {
		return "", false, err
	}
	pattern := a.pattern
	switch {
	case a.from == nil:
		return to, to != before, nil
	case pattern == nil:
		from, err := a.from.render(x, regexp.QuoteMeta)
		if err != nil {
			return "", false, err
		}
		if !x.spend(compileSteps * len(from)) {
			return "", false, errCost
		}
		if pattern, err = compilePattern(from); err != nil {
			return "", false, err
		}
	}
	after, err := pattern.replaceAll(x, before, to)
	return after, err == nil && after != before, err
}

// redirect sends the client to another URL.
type redirect struct {
	urlSubstitution
	status  int
	headers []header
}

func (a *redirect) provision(c *config) {
	a.urlSubstitution.provision(c)
	if a.status = c.number("status_code", http.StatusFound, 300, 399); a.status == http.StatusNotModified {
		c.c.problem(c.values["status_code"], "304", "304 is no redirect")
	}
	a.headers = c.headers("headers", false)
}

func (a *redirect) serve(x *exchange) {
	to, changed, err := a.apply(x)
	switch {
	case err != nil:
		x.fail()
		return
	case !changed:
		x.next()
		return
	}
	u, err := url.Parse(to)
	if err != nil || !validHeaderValue("Location", to) {
		x.fail()
		return
	}
	headers := renderHeaders(x, a.headers)
	headers.Set("Location", u.String())
	x.respond(a.status, headers, "")
}

// urlRewrite changes path and query of a request before it is forwarded. The host stays.
type urlRewrite struct{ urlSubstitution }

func (a *urlRewrite) serve(x *exchange) {
	to, changed, err := a.apply(x)
	if err != nil {
		x.fail()
		return
	}
	if changed {
		u, err := url.Parse(to)
		if err != nil || u.Opaque != "" || u.Path != "" && u.Path[0] != '/' {
			x.fail()
			return
		}
		if u.Path == "" {
			u.Path, u.RawPath = "/", ""
		}
		r := x.mutableRequest()
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery, r.URL.ForceQuery, r.URL.Opaque = u.Path, u.RawPath, u.RawQuery,
			u.ForceQuery, ""
	}
	x.next()
}
