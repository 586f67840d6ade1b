// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// query reads the parameters of a request one by one and collects every broken rule.
type query struct {
	values url.Values
	broken []account.FieldError
}

// parseQuery refuses parameters that the route does not know or that are given twice.
func (c *call) parseQuery(known ...string) *query {
	values, err := url.ParseQuery(c.r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.bad("query", c.r.URL.RawQuery, "must be of the form name=value&name=value, percent-encoded")
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case !slices.Contains(known, name):
			q.bad(account.Shorten(name), values.Get(name), "unknown query parameter")
		case len(values[name]) > 1:
			q.bad(name, values.Get(name), "is given more than once")
		}
	}
	return q
}

func (q *query) bad(field, value, rule string) {
	q.broken = append(q.broken, account.FieldError{Field: field, Value: account.Shorten(value), Rule: rule})
}

// err returns CodeInvalid with every broken rule, or nil.
func (q *query) err() error {
	if len(q.broken) == 0 {
		return nil
	}
	return account.InvalidAll(q.broken)
}

func (q *query) flag(name string) bool {
	switch v := q.values.Get(name); {
	case v == "true":
		return true
	case v != "false" && q.values.Has(name):
		q.bad(name, v, "must be true or false")
	}
	return false
}

// version reads a resource version; nil when there is none.
func (q *query) version(name string) *account.ResourceVersion {
	if !q.values.Has(name) {
		return nil
	}
	v, err := account.ParseResourceVersion(q.values.Get(name))
	if err != nil {
		q.broken = append(q.broken, account.FieldsOf(err)...)
	}
	return &v
}

// watchable checks what goes with watch=true and what does not.
func (q *query) watchable(watch bool, version *account.ResourceVersion) {
	if !watch {
		return
	}
	for _, name := range paging {
		if q.values.Has(name) {
			q.bad(name, q.values.Get(name), "goes with a list, not with watch=true")
		}
	}
	if version == nil {
		q.bad("resource_version", "", "is required with watch=true; take it from a list")
	}
}

func (q *query) endpointFilter() account.EndpointFilter {
	var f account.EndpointFilter
	if q.values.Has("binding") {
		f.Binding = q.values.Get("binding")
		if !slices.Contains(bindings, f.Binding) {
			q.bad("binding", f.Binding, "must be kubernetes, internal or public")
		}
	}
	if q.values.Has("url") {
		u, err := account.ParseAnyURL(q.values.Get("url"))
		if err != nil {
			q.broken = append(q.broken, account.FieldsOf(err)...)
		} else {
			f.URL = u.String()
		}
	}
	return f
}

var positionPattern = regexp.MustCompile(`^[0-9A-Za-z_-]{1,64}$`)

func (q *query) page() account.Page {
	var p account.Page
	if q.values.Has("before_id") {
		p.BeforeID = q.values.Get("before_id")
		if !positionPattern.MatchString(p.BeforeID) {
			q.bad("before_id", p.BeforeID, "must be an id: 1 to 64 letters, digits, '-' or '_'")
		}
	}
	if q.values.Has("limit") {
		text := q.values.Get("limit")
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > account.MaxPageLimit {
			q.bad("limit", text, fmt.Sprintf("must be a number from 1 to %d", account.MaxPageLimit))
		}
		p.Limit = n
	}
	return p
}

// uri is the absolute address of a path of the API.
func (s *server) uri(elements ...string) string {
	text := s.opt.BaseURL
	for _, e := range elements {
		text += "/" + url.PathEscape(e)
	}
	return text
}

// nextPage is the address of the list's page after the one that ends with lastID, with the same
// filters; nil when there is none.
func (c *call) nextPage(more bool, uri, lastID string, q *query, extra url.Values) *string {
	if !more {
		return nil
	}
	values := url.Values{"before_id": {lastID}}
	for _, name := range []string{"limit", "binding", "url", "type", "object_id", "q", "provider", "user_id",
		"endpoint", "ip", "country", "sort"} {
		if q.values.Has(name) {
			values.Set(name, q.values.Get(name))
		}
	}
	for name := range extra {
		values.Set(name, extra.Get(name))
	}
	next := uri + "?" + values.Encode()
	return &next
}

// noQuery refuses every query parameter.
func (c *call) noQuery() error { return c.parseQuery().err() }
