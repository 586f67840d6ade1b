// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"net/http"

	"github.com/fairlead-dev/fairlead/internal/account"
)

type operatorList struct {
	Operators []account.Operator `json:"operators"`
	pageLinks
}

func (s *server) operators() kind[account.Operator] {
	return newKind(func(o *account.Operator) string { return o.ID },
		func(o *account.Operator) {
			o.URI = s.uri("kubernetes_operators", o.ID)
			s.setPrincipalURI(o.Principal)
		},
		func(operators []account.Operator, l pageLinks) any {
			return operatorList{operators, l}
		}, "kubernetes_operators")
}

// listOperators reads a page of the operators that the key may see.
func (s *server) listOperators(c *call, page account.Page) ([]account.Operator, bool, error) {
	if c.Key.HasAnyScope(account.ScopeRead) {
		found, err := s.opt.Store.ListOperators(c.Context(), c.AccountID(), page)
		if err != nil {
			return nil, false, err
		}
		return found.Operators, found.More, nil
	}
	limit := cmp.Or(page.Limit, account.DefaultPageLimit)
	own := []account.Operator{}
	for p := (account.Page{BeforeID: page.BeforeID, Limit: account.MaxPageLimit}); ; {
		all, err := s.opt.Store.ListOperators(c.Context(), c.AccountID(), p)
		if err != nil {
			return nil, false, err
		}
		for _, o := range all.Operators {
			if p.BeforeID = o.ID; !c.owns(&o) {
				continue
			}
			if len(own) == limit {
				return own, true, nil
			}
			own = append(own, o)
		}
		if !all.More {
			return own, false, nil
		}
	}
}

// owns reports whether the operator was registered with the key of the call.
func (c *call) owns(o *account.Operator) bool {
	return o.Principal != nil && o.Principal.ID == c.Key.ID
}

// readOperator reads an operator that the key may see. Others are answered as if they did not
// exist.
func (s *server) readOperator(c *call, id string) (*account.Operator, error) {
	return s.operatorWithScopes(c, id, account.ScopeRead)
}

// operatorWithScopes reads an operator if the key has one of the scopes or owns it.
func (s *server) operatorWithScopes(c *call, id string, scopes ...account.Scope) (*account.Operator, error) {
	o, err := s.opt.Store.Operator(c.Context(), c.AccountID(), id)
	if err != nil {
		return nil, err
	}
	if !c.Key.HasAnyScope(scopes...) && !c.owns(o) {
		return nil, account.Errorf(account.CodeNotFound, "there is no operator %q in this account", account.Shorten(id))
	}
	return o, nil
}

// upsertOperator registers an installation. A key that knows the cluster UID, namespace and name of
// a registered installation takes it over.
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
	o := account.Operator{AccountID: c.AccountID(), Principal: &account.Ref{ID: c.Key.ID}}
	if clusterUID != nil {
		o.ClusterUID = *clusterUID
	}
	o, err = patch.ApplyNew(o)
	if err := b.err(s.checkSelectors(patch, err)); err != nil {
		return err
	}
	registered, created, err := s.opt.Store.UpsertOperator(c.Context(), o)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return s.operators().answer(c, status, registered)
}

func (s *server) updateOperator(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	b, err := c.readBody()
	if err != nil {
		return err
	}
	existing, err := s.operatorWithScopes(c, c.ID())
	if err != nil {
		return err
	}
	b.top.checkID(c)
	patch := readOperatorPatch(b.top)
	_, err = patch.Apply(*existing) // to list all rules at once
	if err := b.err(s.checkSelectors(patch, err)); err != nil {
		return err
	}
	updated, err := s.opt.Store.PatchOperator(c.Context(), c.Caller(), existing.ID, patch)
	if err != nil {
		return err
	}
	return s.operators().answer(c, http.StatusOK, updated)
}

func (s *server) deleteOperator(c *call) error {
	if err := c.noQuery(); err != nil {
		return err
	}
	o, err := s.operatorWithScopes(c, c.ID())
	if err != nil {
		return err
	}
	if err := s.opt.Store.DeleteOperator(c.Context(), c.Caller(), o.ID); err != nil {
		return err
	}
	return c.writeNoContent()
}

// checkSelectors adds the patch's selectors that do not compile to the field errors of err, which
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

// readOperatorPatch reads the fields of an operator. binding.csr is ignored: forwarders
// authenticate by authtoken.
func readOperatorPatch(o *object) account.OperatorPatch {
	p := account.OperatorPatch{Description: o.text("description"), Metadata: o.text("metadata"),
		EnabledFeatures: o.texts("enabled_features"), Region: o.text("region")}
	if d, null := o.object("deployment"); d != nil {
		p.Deployment = account.DeploymentPatch{Name: d.text("name"), Namespace: d.text("namespace"),
			Version: d.text("version"), ClusterName: d.text("cluster_name")}
		d.rejectUnknown()
	} else if null {
		p.Deployment = account.DeploymentPatch{Name: new(string), Namespace: new(string), Version: new(string),
			ClusterName: new(string)}
	}
	if b, null := o.object("binding"); b != nil {
		p.Binding = account.BindingPatch{Set: true, EndpointSelectors: b.texts("endpoint_selectors"),
			IngressEndpoint: b.text("ingress_endpoint")}
		b.ignore("csr")
		b.rejectUnknown()
	} else if null {
		p.Binding.Clear = true
	}
	o.rejectUnknown()
	return p
}
