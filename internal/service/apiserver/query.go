// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// query reads the parameters of a request one by one and collects every broken rule.
type query struct {
	values      url.Values
	fieldErrors []account.FieldError
}

// parseQuery rejects parameters that the operation does not have or that are given twice.
func (c *call) parseQuery() *query {
	values, err := url.ParseQuery(c.Request.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.reject("query", c.Request.URL.RawQuery, "must be of the form name=value&name=value, percent-encoded")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.ContainsFunc(c.method.Query, func(f resource.Field) bool { return f.Name == name }):
			q.reject(account.Shorten(name), values.Get(name), "unknown query parameter")
		case len(values[name]) > 1:
			q.reject(name, values.Get(name), "is given more than once")
		}
	}
	return q
}

func (q *query) reject(field, value, rule string) {
	q.fieldErrors = append(q.fieldErrors, account.FieldError{Field: field, Value: account.Shorten(value), Rule: rule})
}

// err returns CodeInvalid with every field error, or nil.
func (q *query) err() error {
	if len(q.fieldErrors) == 0 {
		return nil
	}
	return account.InvalidAll(q.fieldErrors)
}

func (q *query) boolean(name string) bool {
	switch v := q.values.Get(name); {
	case v == "true":
		return true
	case v != "false" && q.values.Has(name):
		q.reject(name, v, "must be true or false")
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
		q.fieldErrors = append(q.fieldErrors, account.FieldsOf(err)...)
	}
	return &v
}

// checkWatch rejects parameters of paging beside watch=true, and a watch without a version.
func (q *query) checkWatch(watch bool, version *account.ResourceVersion) {
	if !watch {
		return
	}
	for _, name := range []string{"before_id", "limit"} {
		if q.values.Has(name) {
			q.reject(name, q.values.Get(name), "goes with a list, not with watch=true")
		}
	}
	if version == nil {
		q.reject("resource_version", "", "is required with watch=true; take it from a list")
	}
}

func (q *query) endpointFilter() account.EndpointFilter {
	var f account.EndpointFilter
	if q.values.Has("binding") {
		f.Bindings = strings.Split(q.values.Get("binding"), ",")
		for i, b := range f.Bindings {
			if !slices.Contains(resource.Bindings(), b) || slices.Contains(f.Bindings[:i], b) {
				q.reject("binding", b,
					"must be one or more of kubernetes, internal, public and clusterset, each once, with "+
						"commas between them")
			}
		}
	}
	if q.values.Has("type") {
		f.Type = q.values.Get("type")
		if f.Type != account.TypeAgent && f.Type != account.TypeCloud {
			q.reject("type", f.Type, "must be agent or cloud")
		}
	}
	if q.values.Has("url") {
		u, err := account.ParseAnyURL(q.values.Get("url"))
		if err != nil {
			q.fieldErrors = append(q.fieldErrors, account.FieldsOf(err)...)
		} else {
			f.URL = u.String()
		}
	}
	if q.values.Has("owner_cluster") {
		f.OwnerCluster = q.values.Get("owner_cluster")
		err := account.ValidateClusterUID("owner_cluster", f.OwnerCluster)
		q.fieldErrors = append(q.fieldErrors, account.FieldsOf(err)...)
	}
	return f
}

var positionPattern = regexp.MustCompile(resource.PositionPattern)

func (q *query) page() account.Page {
	var p account.Page
	if q.values.Has("before_id") {
		p.BeforeID = q.values.Get("before_id")
		if !positionPattern.MatchString(p.BeforeID) {
			q.reject("before_id", p.BeforeID, "must be an id: 1 to 64 letters, digits, '-' or '_'")
		}
	}
	if q.values.Has("limit") {
		text := q.values.Get("limit")
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > account.MaxPageLimit {
			q.reject("limit", text, fmt.Sprintf("must be a number from 1 to %d", account.MaxPageLimit))
		}
		p.Limit = n
	}
	return p
}

// nextPage returns the parameters of the page after the one that ends with lastID: those of this
// page, with its position and extra.
func (q *query) nextPage(lastID string, extra url.Values) url.Values {
	values := maps.Clone(q.values)
	maps.Copy(values, extra)
	values.Set("before_id", lastID)
	values.Del("watch")
	return values
}
