// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/account"
)

const (
	pageSize = 50
	// maxScan and scanTime bound how much is looked at for one page of a filtered list; the next page
	// goes on from there.
	maxScan  = 20 * account.MaxPageLimit
	scanTime = time.Second
	maxQuery = 200 // bytes of what is searched for
)

var positionPattern = regexp.MustCompile(`^[a-z]{2,5}-[0-9a-v]{1,26}$`)

// page reads before_id. What is no id begins at the first page.
func (c *call) page() account.Page {
	p := account.Page{BeforeID: c.Request.URL.Query().Get("before_id"), Limit: pageSize}
	if !positionPattern.MatchString(p.BeforeID) {
		p.BeforeID = ""
	}
	return p
}

// asked is a value of the query that people typed: without spaces around it, and no longer than
// anything that could match.
func (c *call) asked(name string) string {
	text := strings.TrimSpace(strings.ReplaceAll(strings.ToValidUTF8(c.Request.URL.Query().Get(name), ""), "\x00", ""))
	for len(text) > maxQuery {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// oneOf is a value of the query that is one of the known; "" otherwise.
func (c *call) oneOf(name string, known ...string) string {
	given := c.Request.URL.Query().Get(name)
	for _, k := range known {
		if given == k {
			return given
		}
	}
	return ""
}

// pager says where in a list one is.
type pager struct {
	First string // link to the first page; "" on it
	Next  string // link to the next page; "" on the last
	Shown int
	More  bool

	FirstText, NextText string // of the links
}

// pagerOf keeps the filters of the page in its links.
func (c *call) pagerOf(shown int, more bool, last string, filters url.Values) pager {
	at := func(before string) string {
		q := url.Values{}
		for name, values := range filters {
			if len(values) > 0 && values[0] != "" {
				q[name] = values
			}
		}
		if before != "" {
			q.Set("before_id", before)
		}
		if len(q) == 0 {
			return c.Request.URL.Path
		}
		return c.Request.URL.Path + "?" + q.Encode()
	}
	p := pager{Shown: shown, More: more, FirstText: "Newest", NextText: "Older"}
	if c.page().BeforeID != "" {
		p.First = at("")
	}
	if more && last != "" {
		p.Next = at(last)
	}
	return p
}

// Count says how many there are, or at least how many are shown.
func (p pager) Count(one, many string) string {
	switch {
	case p.First != "":
		return count(p.Shown, one, many) + " on this page"
	case p.More:
		return "The newest " + strconv.Itoa(p.Shown) + " " + many
	}
	return count(p.Shown, one, many)
}

// scan reads a list until a page of what passes is full, there is no more, or too much was looked
// at. last is the id up to which it looked. Without a filter every one passes, and no more is read
// than is shown.
func scan[T any](
	c *call, filtered bool, read func(account.Page) ([]T, bool, error), idOf func(*T) string, passes func(*T) bool,
) (found []T, last string, more bool, err error) {
	p := c.page()
	last = p.BeforeID
	if filtered {
		p.Limit = account.MaxPageLimit
	}
	until, looked := c.server.opt.Clock().Add(scanTime), 0
	for {
		some, more, err := read(account.Page{BeforeID: last, Limit: p.Limit})
		if err != nil {
			return nil, "", false, err
		}
		for i := range some {
			last = idOf(&some[i])
			if !filtered || passes(&some[i]) {
				found = append(found, some[i])
			}
			if len(found) == pageSize {
				return found, last, more || i+1 < len(some), nil
			}
		}
		looked += len(some)
		if !more || len(some) == 0 || looked >= maxScan || c.server.opt.Clock().After(until) {
			return found, last, more && len(some) > 0, nil
		}
	}
}

// contains says whether one of the texts has the part, in any case.
func contains(part string, texts ...string) bool {
	part = strings.ToLower(part)
	for _, text := range texts {
		if strings.Contains(strings.ToLower(text), part) {
			return true
		}
	}
	return false
}
