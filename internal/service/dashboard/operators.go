// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// quietAfter is after how long without a sign of life an operator counts as quiet. It says that it
// is there each minute.
const quietAfter = 3 * time.Minute

type operatorRow struct {
	account.Operator
	Quiet bool
}

// Name is what one calls the operator.
func (o operatorRow) Name() string {
	if o.Deployment.Name == "" {
		return o.ID
	}
	return o.Deployment.Namespace + "/" + o.Deployment.Name
}

// Selectors are those that narrow what it binds.
func (o operatorRow) Selectors() []string {
	if o.Binding == nil {
		return nil
	}
	return o.Binding.EndpointSelectors
}

// Binds says whether it projects endpoints at all.
func (o operatorRow) Binds() bool {
	return o.Binding != nil && slices.Contains(o.EnabledFeatures, account.FeatureBindings)
}

func (s *server) operatorRow(o account.Operator) operatorRow {
	return operatorRow{o, s.opt.Clock().Sub(o.LastSeenAt) > quietAfter}
}

type operatorsPage struct {
	Rows  []operatorRow
	Pager pager
}

func (s *server) operators(c *call) error {
	found, err := s.opt.Store.ListOperators(c.Context(), c.AccountID(), c.page())
	if err != nil {
		return err
	}
	p, last := operatorsPage{}, ""
	for _, o := range found.Operators {
		p.Rows, last = append(p.Rows, s.operatorRow(o)), o.ID
	}
	p.Pager = c.pagerOf(len(p.Rows), found.More, last, nil)
	return c.show(http.StatusOK, view{Page: "operators", Title: "Kubernetes operators", Nav: "kubernetes-operators",
		Live: "audit", Poll: true, Data: p})
}

type operatorPage struct {
	operatorRow
	Broken string // why its selectors cannot be applied
	Bound  []account.Endpoint
	Pager  pager
}

func (s *server) operator(c *call) error {
	o, err := s.opt.Store.Operator(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	p := operatorPage{operatorRow: s.operatorRow(*o)}
	if p.Binds() {
		if err := s.bound(c, &p); err != nil {
			return err
		}
	}
	return c.show(http.StatusOK, view{Page: "operator", Title: p.Name(), Nav: "kubernetes-operators",
		Crumb: &link{"Kubernetes operators", Path + "kubernetes-operators"},
		Live:  "endpoints audit", Poll: true, Data: p})
}

// bound finds the endpoints that the operator's selectors admit.
func (s *server) bound(c *call, p *operatorPage) error {
	admits, err := s.opt.MatchSelectors(p.Selectors())
	if account.CodeOf(err) == account.CodeInvalid {
		p.Broken = account.FirstRule(err)
		return nil
	}
	if err != nil {
		return err
	}
	read := func(page account.Page) ([]account.Endpoint, bool, error) {
		found, err := s.opt.Store.ListEndpoints(c.Context(), c.AccountID(),
			account.EndpointFilter{Binding: account.BindingKubernetes}, page)
		if err != nil {
			return nil, false, err
		}
		return found.Endpoints, found.More, nil
	}
	rows, last, more, err := scan(c, len(p.Selectors()) > 0, read, func(e *account.Endpoint) string {
		return e.ID
	}, admits)
	if err != nil {
		return err
	}
	p.Bound, p.Pager = rows, c.pagerOf(len(rows), more, last, nil)
	return nil
}
