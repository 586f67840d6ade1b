// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	pageSize = 50
	// maxScan objects or scanTime, whichever comes first, are spent on one page of a filtered list;
	// the next page continues from there.
	maxScan  = 20 * account.MaxPageLimit
	scanTime = time.Second
	maxQuery = 200 // bytes of a search
)

var idPattern = regexp.MustCompile(`^[a-z]{2,5}-[0-9a-v]{1,26}$`)

// page returns the page that before_id asks for, the first one if it is not an ID.
func (c *call) page() account.Page {
	p := account.Page{BeforeID: c.Request.URL.Query().Get("before_id"), Limit: pageSize}
	if !idPattern.MatchString(p.BeforeID) {
		p.BeforeID = ""
	}
	return p
}

// queryText returns a query parameter, trimmed and cut to maxQuery bytes.
func (c *call) queryText(name string) string {
	text := strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(c.Request.URL.Query().Get(name), ""), "\x00", ""))
	for len(text) > maxQuery {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// queryEnum returns a query parameter that has one of the known values, "" otherwise.
func (c *call) queryEnum(name string, known ...string) string {
	if value := c.Request.URL.Query().Get(name); slices.Contains(known, value) {
		return value
	}
	return ""
}

// variant returns the page's path and query with another value of a parameter; "" removes it.
func (c *call) variant(name, value string) string {
	q := url.Values{"window": {c.queryEnum("window", "day")}, "requests": {c.queryEnum("requests", "failing")}}
	q.Set(name, value)
	return c.withQuery(q)
}

// withQuery returns the page's path with those parameters that are not empty.
func (c *call) withQuery(parameters url.Values) string {
	q := url.Values{}
	for name, values := range parameters {
		if len(values) > 0 && values[0] != "" {
			q[name] = values
		}
	}
	if len(q) == 0 {
		return c.Request.URL.Path
	}
	return c.Request.URL.Path + "?" + q.Encode()
}

// pager links a page of a list to others.
type pager struct {
	First string // link to the first page; "" on it
	Next  string // link to the next page; "" on the last
	Shown int
	More  bool

	FirstText, NextText string // texts of the links
}

// pagerOf returns the pager of a page with the objects, whose ID id returns.
func pagerOf[T any](c *call, objects []T, more bool, id func(*T) string, filters url.Values) pager {
	last := ""
	if n := len(objects); n > 0 {
		last = id(&objects[n-1])
	}
	return c.newPager(len(objects), more, last, filters)
}

func agentID(t *account.TunnelSession) string   { return t.ID }
func auditEventID(e *account.AuditEvent) string { return e.ID }
func backendID(b *account.Backend) string       { return b.ID }
func clusterID(c *account.Cluster) string       { return c.ID }
func operatorID(o *account.Operator) string     { return o.ID }
func userID(u *account.User) string             { return u.ID }

// newPager returns the pager of a page that shows so many objects and ends at the ID last. Its
// links keep the filters.
func (c *call) newPager(shown int, more bool, last string, filters url.Values) pager {
	pageURL := func(before string) string {
		q := url.Values{"before_id": {before}}
		maps.Copy(q, filters)
		return c.withQuery(q)
	}
	p := pager{Shown: shown, More: more, FirstText: "Newest", NextText: "Older"}
	if c.page().BeforeID != "" {
		p.First = pageURL("")
	}
	if more && last != "" {
		p.Next = pageURL(last)
	}
	return p
}

// Count returns how many objects there are, or are shown, with their noun.
func (p pager) Count(one, many string) string {
	switch {
	case p.First != "":
		return count(p.Shown, one, many) + " on this page"
	case p.More:
		return "The newest " + strconv.Itoa(p.Shown) + " " + many
	}
	return count(p.Shown, one, many)
}

// scanEndpoints reads endpoints until the page is full of those that matches accepts, the list ends,
// or maxScan or scanTime is reached. last is the ID up to which it has read. Without matches it reads
// one page and accepts every endpoint.
func scanEndpoints(
	c *call, store account.Endpoints, filter account.EndpointFilter, matches func(*account.Endpoint) bool,
) (found []account.Endpoint, last string, more bool, err error) {
	p := c.page()
	if matches != nil {
		p.Limit = account.MaxPageLimit
	}
	until, scanned := c.now().Add(scanTime), 0
	for {
		some, err := store.ListEndpoints(c.Context(), c.AccountID(), filter, p)
		if err != nil {
			return nil, "", false, err
		}
		for i, e := range some.Endpoints {
			p.BeforeID = e.ID
			if matches == nil || matches(&e) {
				found = append(found, e)
			}
			if len(found) == pageSize {
				return found, p.BeforeID, some.More || i+1 < len(some.Endpoints), nil
			}
		}
		scanned += len(some.Endpoints)
		if !some.More || len(some.Endpoints) == 0 || scanned >= maxScan || c.now().After(until) {
			return found, p.BeforeID, some.More && len(some.Endpoints) > 0, nil
		}
	}
}

// eachEndpoint calls f for the endpoints that the filter selects, the newest first, until f returns
// false. It reads at most maxScan; more reports whether there are others.
func eachEndpoint(
	c *call, store account.Endpoints, filter account.EndpointFilter, f func(*account.Endpoint) bool,
) (more bool, err error) {
	page := account.Page{Limit: account.MaxPageLimit}
	for range maxScan / account.MaxPageLimit {
		found, err := store.ListEndpoints(c.Context(), c.AccountID(), filter, page)
		if err != nil {
			return false, err
		}
		for i := range found.Endpoints {
			if page.BeforeID = found.Endpoints[i].ID; !f(&found.Endpoints[i]) {
				return true, nil
			}
		}
		if !found.More || len(found.Endpoints) == 0 {
			return false, nil
		}
	}
	return true, nil
}

// contains reports whether one of the texts contains the part, in upper or lower case.
func contains(part string, texts ...string) bool {
	part = strings.ToLower(part)
	for _, text := range texts {
		if strings.Contains(strings.ToLower(text), part) {
			return true
		}
	}
	return false
}
