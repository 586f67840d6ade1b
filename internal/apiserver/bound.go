// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// boundTime is after how long a page of bound endpoints is answered as far as it got: selectors are
// somebody else's, and may be slow.
const boundTime = time.Second

type boundList struct {
	Endpoints   []account.Endpoint `json:"endpoints"`
	URI         string             `json:"uri"`
	NextPageURI *string            `json:"next_page_uri"`
}

// listBound answers with the endpoints that the operator's selectors admit. A page may be short and
// have a next one.
func (s *server) listBound(c *call) error {
	q := c.parseQuery("before_id", "limit")
	page := q.page()
	if err := q.err(); err != nil {
		return err
	}
	o, err := s.operator(c, account.ScopeRead)
	if err != nil {
		return err
	}
	list := boundList{Endpoints: []account.Endpoint{}, URI: s.uri("kubernetes_operators", o.ID, "bound_endpoints")}
	if o.Binding != nil && slices.Contains(o.EnabledFeatures, account.FeatureBindings) {
		admits, err := s.opt.MatchSelectors(o.Binding.EndpointSelectors)
		if err != nil {
			return err
		}
		found, last, more, err := s.boundPage(c, page, admits)
		if err != nil {
			return err
		}
		list.Endpoints, list.NextPageURI = found, c.nextPage(more, list.URI, last, q, nil)
	}
	for i := range list.Endpoints {
		s.fillEndpoint(&list.Endpoints[i])
	}
	return c.writeJSON(http.StatusOK, list)
}

// boundPage reads the account's endpoints until the page is full or boundTime has passed. last is
// the last one that was looked at; more says that there are others.
func (s *server) boundPage(
	c *call, page account.Page, admits func(*account.Endpoint) bool,
) (found []account.Endpoint, last string, more bool, err error) {
	limit := page.Limit
	if limit == 0 {
		limit = account.DefaultPageLimit
	}
	found, last = []account.Endpoint{}, page.BeforeID
	for until := s.opt.Clock().Add(boundTime); ; {
		some, err := s.opt.Endpoints.ListEndpoints(c.r.Context(), c.accountID(),
			account.EndpointFilter{Binding: account.BindingKubernetes},
			account.Page{BeforeID: last, Limit: account.MaxPageLimit})
		if err != nil {
			return nil, "", false, err
		}
		for i, e := range some.Endpoints {
			if last = e.ID; admits(&e) {
				found = append(found, e)
			}
			if len(found) == limit || s.opt.Clock().After(until) {
				return found, last, some.More || i+1 < len(some.Endpoints), nil
			}
		}
		if !some.More {
			return found, last, false, nil
		}
	}
}
