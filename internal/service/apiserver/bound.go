// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// boundPageTime bounds the time for which selectors are evaluated for one page of bound endpoints,
// because a client wrote them and they may be slow. The page is answered as far as it got.
const boundPageTime = time.Second

// listBound answers with the endpoints that the operator's selectors match. A page may
// have fewer than the limit and still have a next one.
func (h *operatorHandlers) listBound(c *call) error {
	q := c.parseQuery()
	page := q.page()
	if err := q.err(); err != nil {
		return err
	}
	o, err := h.read(c, c.ID())
	if err != nil {
		return err
	}
	found, last, more := []account.Endpoint{}, "", false
	if o.Binding != nil && slices.Contains(o.EnabledFeatures, account.FeatureBindings) {
		matches, err := h.matchSelectors(o.Binding.EndpointSelectors)
		if err != nil {
			return err
		}
		if found, last, more, err = h.boundPage(c, page, matches); err != nil {
			return err
		}
	}
	for i := range found {
		h.uris.setEndpoint(&found[i])
	}
	return c.writeList(found, c.pageLinks(q, more, last, nil))
}

// boundPage reads the account's endpoints until the page is full or boundPageTime has passed. last
// is the ID of the last one that it has looked at; more reports whether there are others.
func (h *operatorHandlers) boundPage(
	c *call, page account.Page, matches func(*account.Endpoint) bool,
) (found []account.Endpoint, last string, more bool, err error) {
	limit := cmp.Or(page.Limit, account.DefaultPageLimit)
	found, last = []account.Endpoint{}, page.BeforeID
	for until := c.now().Add(boundPageTime); ; {
		some, err := h.endpoints.ListEndpoints(c.Context(), c.AccountID(),
			account.EndpointFilter{Bindings: []string{account.BindingKubernetes}},
			account.Page{BeforeID: last, Limit: account.MaxPageLimit})
		if err != nil {
			return nil, "", false, err
		}
		for i, e := range some.Endpoints {
			if last = e.ID; matches(&e) {
				found = append(found, e)
			}
			if len(found) == limit || c.now().After(until) {
				return found, last, some.More || i+1 < len(some.Endpoints), nil
			}
		}
		if !some.More {
			return found, last, false, nil
		}
	}
}
