// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// operatorHandlers serve operators, and the endpoints that they bind.
type operatorHandlers struct {
	store          account.Operators
	endpoints      account.Endpoints
	uris           uris
	matchSelectors httpkit.SelectorCompiler
}

func (h *operatorHandlers) kind() kind[account.Operator] {
	return newKind(func(o *account.Operator) string { return o.ID },
		func(o *account.Operator) {
			o.URI = h.uris.at(resource.Operators, o.ID)
			h.uris.setPrincipal(o.Principal)
		})
}

// list reads a page of the operators that the key may see.
func (h *operatorHandlers) list(c *call, page account.Page) ([]account.Operator, bool, error) {
	if c.Key.HasAnyScope(account.ScopeRead) {
		return h.store.ListOperators(c.Context(), c.AccountID(), page)
	}
	limit := cmp.Or(page.Limit, account.DefaultPageLimit)
	own := []account.Operator{}
	for p := (account.Page{BeforeID: page.BeforeID, Limit: account.MaxPageLimit}); ; {
		all, more, err := h.store.ListOperators(c.Context(), c.AccountID(), p)
		if err != nil {
			return nil, false, err
		}
		for _, o := range all {
			if p.BeforeID = o.ID; !isOf(c.Key, &o) {
				continue
			}
			if len(own) == limit {
				return own, true, nil
			}
			own = append(own, o)
		}
		if !more {
			return own, false, nil
		}
	}
}

// isOf reports whether the operator was registered with the key.
func isOf(key *account.APIKey, o *account.Operator) bool {
	return o.Principal != nil && o.Principal.ID == key.ID
}

// read reads an operator that the key may see. Others are answered as if they did not
// exist.
func (h *operatorHandlers) read(c *call, id string) (*account.Operator, error) {
	return h.withScopes(c, id, account.ScopeRead)
}

// withScopes reads an operator if the key has one of the scopes or owns it.
func (h *operatorHandlers) withScopes(c *call, id string, scopes ...account.Scope) (*account.Operator, error) {
	o, err := h.store.Operator(c.Context(), c.AccountID(), id)
	if err != nil {
		return nil, err
	}
	if !c.Key.HasAnyScope(scopes...) && !isOf(c.Key, o) {
		return nil, account.Errorf(account.CodeNotFound, "there is no operator %q in this account", account.Shorten(id))
	}
	return o, nil
}

// upsert registers an installation. A key that knows the cluster UID, namespace and name of
// a registered installation takes it over.
func (h *operatorHandlers) upsert(c *call) error {
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
	if err := b.err(h.checkSelectors(patch, err)); err != nil {
		return err
	}
	registered, created, err := h.store.UpsertOperator(c.Context(), o)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return h.kind().answer(c, status, registered, err)
}

func (h *operatorHandlers) update(c *call) error {
	b, err := c.readRequest()
	if err != nil {
		return err
	}
	existing, err := h.withScopes(c, c.ID())
	if err != nil {
		return err
	}
	patch := readOperatorPatch(b.top)
	_, err = patch.Apply(*existing) // to list all rules at once
	if err := b.err(h.checkSelectors(patch, err)); err != nil {
		return err
	}
	updated, err := h.store.PatchOperator(c.Context(), c.Caller(), existing.ID, patch)
	return h.kind().answer(c, http.StatusOK, updated, err)
}

func (h *operatorHandlers) remove(c *call) error {
	o, err := h.withScopes(c, c.ID())
	if err == nil {
		err = h.store.DeleteOperator(c.Context(), c.Caller(), o.ID)
	}
	return c.noContent(err)
}

// checkSelectors adds the patch's selectors that do not compile to the field errors of err, which
// may be nil.
func (h *operatorHandlers) checkSelectors(p account.OperatorPatch, err error) error {
	selectors := p.Binding.EndpointSelectors
	if selectors == nil || len(*selectors) > account.MaxSelectors {
		return err
	}
	_, broken := h.matchSelectors(*selectors)
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
