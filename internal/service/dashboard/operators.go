// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// silentAfter is the time without a heartbeat after which an operator is shown as silent. It sends
// one each minute.
const silentAfter = 3 * time.Minute

type operatorRow struct {
	account.Operator
	Silent bool
}

// Name returns the namespace and name of the deployment, or the ID without them.
func (o operatorRow) Name() string {
	if o.Deployment.Name == "" {
		return o.ID
	}
	return o.Deployment.Namespace + "/" + o.Deployment.Name
}

// Selectors returns the selectors of the endpoints that it binds; none selects all.
func (o operatorRow) Selectors() []string {
	if o.Binding == nil {
		return nil
	}
	return o.Binding.EndpointSelectors
}

// Binds reports whether it binds endpoints at all.
func (o operatorRow) Binds() bool {
	return o.Binding != nil && slices.Contains(o.EnabledFeatures, account.FeatureBindings)
}

func (s *server) operatorRow(o account.Operator) operatorRow {
	return operatorRow{o, s.opt.Clock().Sub(o.LastSeenAt) > silentAfter}
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
	p := operatorsPage{Pager: pagerOf(c, found.Operators, found.More, operatorID, nil)}
	for _, o := range found.Operators {
		p.Rows = append(p.Rows, s.operatorRow(o))
	}
	return c.show(http.StatusOK, view{Page: "operators", Title: "Kubernetes operators", Nav: "kubernetes-operators",
		Live: "audit", Poll: true, Data: p})
}

type operatorPage struct {
	operatorRow
	SelectorProblem string // why its selectors do not compile; "" = they do
	Bound           []account.Endpoint
	Pager           pager
}

func (s *server) operator(c *call) error {
	o, err := s.opt.Store.Operator(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	p := operatorPage{operatorRow: s.operatorRow(*o)}
	if p.Binds() {
		if err := s.addBoundEndpoints(c, &p); err != nil {
			return err
		}
	}
	return c.show(http.StatusOK, view{Page: "operator", Title: p.Name(), Nav: "kubernetes-operators",
		Crumb: &link{"Kubernetes operators", Path + "kubernetes-operators"},
		Live:  "endpoints audit", Poll: true, Data: p})
}

// addBoundEndpoints adds a page of the endpoints that the operator's selectors match.
func (s *server) addBoundEndpoints(c *call, p *operatorPage) error {
	matches, err := s.opt.MatchSelectors(p.Selectors())
	if account.CodeOf(err) == account.CodeInvalid {
		p.SelectorProblem = account.FirstRule(err)
		return nil
	}
	if err != nil {
		return err
	}
	read := func(page account.Page) ([]account.Endpoint, bool, error) {
		found, err := s.opt.Store.ListEndpoints(c.Context(), c.AccountID(),
			account.EndpointFilter{Bindings: []string{account.BindingKubernetes}}, page)
		if err != nil {
			return nil, false, err
		}
		return found.Endpoints, found.More, nil
	}
	rows, last, more, err := scan(c, len(p.Selectors()) > 0, read, endpointID, matches)
	if err != nil {
		return err
	}
	p.Bound, p.Pager = rows, c.newPager(len(rows), more, last, nil)
	return nil
}
