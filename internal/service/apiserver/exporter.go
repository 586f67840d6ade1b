// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"slices"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// A key of the scope exporter keeps the endpoints of objects in one cluster. Endpoints without an
// owner in that cluster do not exist for it, but for the exports of Services, which it lists and
// watches to tell what conflicts with its own; its rules bound what it makes.

// listsExports reports whether the filter selects exports of Services and nothing else.
func listsExports(f account.EndpointFilter) bool {
	return len(f.Bindings) == 1 && f.Bindings[0] == account.BindingClusterset && f.Type == account.TypeCloud
}

// listFilter restricts the filter of a list or watch to the endpoints that the key may know.
func (c *call) listFilter(f account.EndpointFilter, watch bool) (account.EndpointFilter, error) {
	cluster := c.Caller().OwnerCluster
	switch {
	case cluster == "" || listsExports(f):
		return f, nil
	case watch:
		return f, account.Errorf(account.CodeScope,
			"a key with the scope exporter watches the exports of Services and "+
				"no other endpoints; give binding=clusterset&type=cloud, or leave watch out")
	case f.OwnerCluster != "" && c.Key.ClusterUID != "" && f.OwnerCluster != cluster:
		return f, account.ErrOtherCluster(c.Key.ID, cluster, f.OwnerCluster)
	}
	f.OwnerCluster = cluster
	return f, nil
}

// read reads an endpoint that the key may know.
func (h *endpointHandlers) read(c *call, id string) (*account.Endpoint, error) {
	e, err := h.store.Endpoint(c.Context(), c.AccountID(), id)
	if err == nil && !c.Caller().MayKnow(e) {
		return nil, account.Errorf(account.CodeNotFound, "there is no endpoint %q in this account", account.Shorten(id))
	}
	return e, err
}

// requireOwner rejects a new endpoint without an owner from a key of the scope exporter, and one
// with an owner from other keys.
func (f *endpointFields) requireOwner(c *call, b *body) {
	switch {
	case c.Key.IsExporter() && f.owner == nil && !b.hasError("owner"):
		b.top.reject("owner", "", "is required with a key of the scope exporter: the object in its cluster that the "+
			"endpoint is for")
	case !c.Key.IsExporter() && f.owner != nil:
		b.top.reject("owner", f.owner.String(), "needs a key with the scope exporter; leave it out")
	}
}

// checkExport returns CodeScope unless the key's rules admit the endpoint's owner and URL, and what
// it forwards to: the backend, which may be "", and those of the facts of a policy. The URL of
// BindingClusterset is that of its owner and needs no rule.
func (c *call) checkExport(e *account.Endpoint, facts account.PolicyFacts, backendID string) error {
	if !c.Key.IsExporter() {
		return nil
	}
	whose := "API key " + c.Key.ID
	if err := c.checkOwnerRule(e.Owner); err != nil {
		return err
	}
	if !slices.Contains(e.Bindings, account.BindingClusterset) && !c.Key.ACL.MayBind(e.URL) {
		return account.ErrNoRule(whose, "bind", e.URL)
	}
	if problem := c.Key.ACL.CheckForwards(whose, facts, backendID); problem != nil {
		return problem
	}
	return nil
}

// checkOwnerRule returns CodeScope unless the key's rules admit the owner.
func (c *call) checkOwnerRule(o *account.Owner) error {
	if c.Key.IsExporter() && !c.Key.ACL.MayExport(o.Namespace, o.Name) {
		return account.ErrNoRule("API key "+c.Key.ID, "export", o.Namespace+"/"+o.Name)
	}
	return nil
}

// admitExport checks a new endpoint against the key. It makes the cluster of its owner the one that
// the key belongs to, if it belongs to none.
func (h *endpointHandlers) admitExport(c *call, e *account.Endpoint, facts account.PolicyFacts) error {
	if !c.Key.IsExporter() {
		return nil
	}
	if err := c.checkExport(e, facts, e.BackendID); err != nil {
		return err
	}
	switch c.Key.ClusterUID {
	case e.Owner.Cluster:
		return nil
	case "":
		return h.store.PinCluster(c.Context(), c.AccountID(), c.Key.ID, e.Owner.Cluster)
	}
	return account.ErrOtherCluster(c.Key.ID, c.Key.ClusterUID, e.Owner.Cluster)
}

// remove deletes an endpoint that the key may know. A key of the scope exporter needs a
// rule for its owner, not for its URL: what it does not admit any more can still be removed.
func (h *endpointHandlers) remove(c *call) error {
	if c.Key.IsExporter() {
		e, err := h.read(c, c.ID())
		if err == nil {
			err = c.checkOwnerRule(e.Owner)
		}
		if err != nil {
			return err
		}
	}
	return c.noContent(h.store.DeleteEndpoint(c.Context(), c.Caller(), c.ID()))
}

// rejectExport rejects a service_export from keys of other scopes than exporter, which say what
// clusters export by nothing else.
func (f *endpointFields) rejectExport(c *call, b *body) {
	if f.ServiceExport != nil && !c.Key.IsExporter() {
		b.top.reject("service_export", "", "needs a key with the scope exporter; leave it out")
	}
}
