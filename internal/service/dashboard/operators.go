// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
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

func newOperatorRow(o account.Operator, now time.Time) operatorRow {
	return operatorRow{o, now.Sub(o.LastSeenAt) > silentAfter}
}

// operatorReader reads operators, and compiles which endpoints they bind.
type operatorReader struct {
	store          account.Operators
	matchSelectors httpkit.SelectorCompiler
}

// bindingOperator is an operator that binds endpoints.
type bindingOperator struct {
	operatorRow
	matches func(*account.Endpoint) bool
	problem string // why its selectors do not compile; "" = they do
}

// cluster returns the name of the operator's cluster, the operator's own without one.
func (o bindingOperator) cluster() string { return cmp.Or(o.Deployment.ClusterName, o.Name()) }

// binding returns the operators of the account that bind endpoints.
func (r *operatorReader) binding(c *call) ([]bindingOperator, error) {
	page, _, err := r.store.ListOperators(c.Context(), c.AccountID(), account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return nil, err
	}
	var all []bindingOperator
	for _, o := range page {
		op := bindingOperator{operatorRow: newOperatorRow(o, c.now())}
		if !op.Binds() {
			continue
		}
		if op.matches, err = r.matchSelectors(op.Selectors()); account.CodeOf(err) == account.CodeInvalid {
			op.problem = account.FirstRule(err)
		} else if err != nil {
			return nil, err
		}
		all = append(all, op)
	}
	return all, nil
}

// operatorHandlers serve the pages of operators.
type operatorHandlers struct {
	reader    *operatorReader
	endpoints account.Endpoints
}

type operatorsPage struct {
	Rows  []operatorRow
	Pager pager
}

func (h *operatorHandlers) list(c *call) error {
	found, more, err := h.reader.store.ListOperators(c.Context(), c.AccountID(), c.page())
	if err != nil {
		return err
	}
	p := operatorsPage{Pager: pagerOf(c, found, more, operatorID, nil)}
	for _, o := range found {
		p.Rows = append(p.Rows, newOperatorRow(o, c.now()))
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

func (h *operatorHandlers) show(c *call) error {
	o, err := h.reader.store.Operator(c.Context(), c.AccountID(), c.ID())
	if err != nil {
		return err
	}
	p := operatorPage{operatorRow: newOperatorRow(*o, c.now())}
	if p.Binds() {
		if err := h.addBoundEndpoints(c, &p); err != nil {
			return err
		}
	}
	return c.show(http.StatusOK, view{Page: "operator", Title: p.Name(), Nav: "kubernetes-operators",
		Crumb: &link{"Kubernetes operators", Path + "kubernetes-operators"},
		Live:  "endpoints audit", Poll: true, Data: p})
}

// addBoundEndpoints adds a page of the endpoints that the operator's selectors match.
func (h *operatorHandlers) addBoundEndpoints(c *call, p *operatorPage) error {
	matches, err := h.reader.matchSelectors(p.Selectors())
	if account.CodeOf(err) == account.CodeInvalid {
		p.SelectorProblem = account.FirstRule(err)
		return nil
	}
	if err != nil {
		return err
	}
	if len(p.Selectors()) == 0 {
		matches = nil
	}
	rows, last, more, err := scanEndpoints(c, h.endpoints,
		account.EndpointFilter{Bindings: []string{account.BindingKubernetes}}, matches)
	if err != nil {
		return err
	}
	p.Bound, p.Pager = rows, c.newPager(len(rows), more, last, nil)
	return nil
}
