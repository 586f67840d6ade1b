// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

type operatorList struct {
	Operators   []account.Operator `json:"operators"`
	URI         string             `json:"uri"`
	NextPageURI *string            `json:"next_page_uri"`
}

func (s *server) listOperators(c *call) error {
	q := c.parseQuery("before_id", "limit")
	page := q.page()
	if err := q.err(); err != nil {
		return err
	}
	found, err := s.operatorPage(c, page)
	if err != nil {
		return err
	}
	list := operatorList{Operators: found.Operators, URI: s.uri("kubernetes_operators")}
	for i := range list.Operators {
		s.fillOperator(&list.Operators[i])
	}
	if n := len(list.Operators); n > 0 {
		list.NextPageURI = c.nextPage(found.More, list.URI, list.Operators[n-1].ID, q, nil)
	}
	return c.writeJSON(http.StatusOK, list)
}

// operatorPage reads a page of the operators that the key may see.
func (s *server) operatorPage(c *call, page account.Page) (*account.OperatorPage, error) {
	if c.key.HasAnyScope(account.ScopeRead) {
		return s.opt.Operators.ListOperators(c.r.Context(), c.accountID(), page)
	}
	limit := page.Limit
	if limit == 0 {
		limit = account.DefaultPageLimit
	}
	own := &account.OperatorPage{Operators: []account.Operator{}}
	for p := (account.Page{BeforeID: page.BeforeID, Limit: account.MaxPageLimit}); ; {
		all, err := s.opt.Operators.ListOperators(c.r.Context(), c.accountID(), p)
		if err != nil {
			return nil, err
		}
		for _, o := range all.Operators {
			if p.BeforeID = o.ID; !c.owns(&o) {
				continue
			}
			if own.More = len(own.Operators) == limit; own.More {
				return own, nil
			}
			own.Operators = append(own.Operators, o)
		}
		if !all.More {
			return own, nil
		}
	}
}

// owns says whether the operator was registered with the key of this call.
func (c *call) owns(o *account.Operator) bool {
	return o.Principal != nil && o.Principal.ID == c.key.ID
}

// operator reads an operator that the key may see, with one of the scopes or as its owner. Others
// are as unknown as if they did not exist.
func (s *server) operator(c *call, scopes ...account.Scope) (*account.Operator, error) {
	id := c.r.PathValue("id")
	o, err := s.opt.Operators.Operator(c.r.Context(), c.accountID(), id)
	if err != nil {
		return nil, err
	}
	if !c.key.HasAnyScope(scopes...) && !c.owns(o) {
		return nil, account.Errorf(account.CodeNotFound, "there is no operator %q in this account", account.Shorten(id))
	}
	return o, nil
}

func (s *server) getOperator(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	o, err := s.operator(c, account.ScopeRead)
	if err != nil {
		return err
	}
	s.fillOperator(o)
	return c.writeJSON(http.StatusOK, o)
}

// upsertOperator registers an installation. Who knows its cluster uid, namespace and name speaks
// for it: it may come with a new key.
func (s *server) upsertOperator(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	b, err := c.readBody()
	if err != nil {
		return err
	}
	clusterUID := b.top.text("cluster_uid")
	patch := readOperatorPatch(b.top)
	o := account.Operator{AccountID: c.accountID(), Principal: &account.Ref{ID: c.key.ID}}
	if clusterUID != nil {
		o.ClusterUID = *clusterUID
	}
	o, err = patch.ApplyNew(o)
	if err := b.err(s.checkSelectors(patch, err)); err != nil {
		return err
	}
	made, created, err := s.opt.Operators.UpsertOperator(c.r.Context(), o)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	s.fillOperator(made)
	return c.writeJSON(status, made)
}

func (s *server) patchOperator(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	b, err := c.readBody()
	if err != nil {
		return err
	}
	existing, err := s.operator(c)
	if err != nil {
		return err
	}
	b.top.ownID(c)
	patch := readOperatorPatch(b.top)
	_, err = patch.Apply(*existing) // to list all rules at once
	if err := b.err(s.checkSelectors(patch, err)); err != nil {
		return err
	}
	patched, err := s.opt.Operators.PatchOperator(c.r.Context(), c.caller(), existing.ID, patch)
	if err != nil {
		return err
	}
	s.fillOperator(patched)
	return c.writeJSON(http.StatusOK, patched)
}

func (s *server) deleteOperator(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	o, err := s.operator(c)
	if err != nil {
		return err
	}
	if err := s.opt.Operators.DeleteOperator(c.r.Context(), c.caller(), o.ID); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkSelectors adds the patch's selectors that do not compile to the broken rules of err, which
// may be nil.
func (s *server) checkSelectors(p account.OperatorPatch, err error) error {
	selectors := p.Binding.EndpointSelectors
	if selectors == nil || len(*selectors) > account.MaxSelectors {
		return err
	}
	_, broken := s.opt.MatchSelectors(*selectors)
	switch {
	case err == nil:
		return broken
	case account.CodeOf(err) == account.CodeInvalid && account.CodeOf(broken) == account.CodeInvalid:
		return account.InvalidAll(append(account.FieldsOf(err), account.FieldsOf(broken)...))
	}
	return err
}

// readOperatorPatch takes the fields of an operator. binding.csr has no meaning here: forwarders
// authenticate by authtoken.
func readOperatorPatch(o *object) account.OperatorPatch {
	p := account.OperatorPatch{Description: o.text("description"), Metadata: o.text("metadata"),
		EnabledFeatures: o.texts("enabled_features"), Region: o.text("region")}
	if d, null := o.object("deployment"); d != nil {
		p.Deployment = account.DeploymentPatch{Name: d.text("name"), Namespace: d.text("namespace"),
			Version: d.text("version"), ClusterName: d.text("cluster_name")}
		d.done()
	} else if null {
		p.Deployment = account.DeploymentPatch{Name: new(string), Namespace: new(string), Version: new(string),
			ClusterName: new(string)}
	}
	if b, null := o.object("binding"); b != nil {
		p.Binding = account.BindingPatch{Set: true, EndpointSelectors: b.texts("endpoint_selectors"),
			IngressEndpoint: b.text("ingress_endpoint")}
		b.ignored("csr")
		b.done()
	} else if null {
		p.Binding.Clear = true
	}
	o.done()
	return p
}

// fillOperator sets the URIs.
func (s *server) fillOperator(o *account.Operator) {
	o.URI = s.uri("kubernetes_operators", o.ID)
	s.fillPrincipal(o.Principal)
}
