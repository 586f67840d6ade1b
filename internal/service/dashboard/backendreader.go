// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"maps"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
)

// replicaChild is a child of a failover that serves with a replica, "" when none is up there.
type replicaChild struct{ Replica, Child string }

// backendReader reads backends as pages show them.
type backendReader struct {
	store    backendStore
	edge     httpkit.Backends
	replicas Replicas // replicas is nil where one server is alone.
}

// rows returns the backends with their active children.
func (r *backendReader) rows(c *call, backends ...account.Backend) ([]backendRow, error) {
	rows := make([]backendRow, len(backends))
	var failovers []string
	for i, b := range backends {
		rows[i] = backendRow{Backend: b, Active: r.edge.ActiveChild(c.AccountID(), b.ID)}
		if b.Kind == account.BackendFailover {
			failovers = append(failovers, b.ID)
		}
	}
	if r.replicas == nil || len(failovers) == 0 {
		return rows, nil
	}
	found, err := r.store.ActiveChildren(c.Context(), c.AccountID(), failovers)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].addReplicas(found[rows[i].ID])
	}
	return rows, nil
}

// addReplicas adds what serves with each replica: the first by id that knows where this server has
// not forwarded anything yet, and those with another child.
func (b *backendRow) addReplicas(children map[string]string) {
	ids := slices.Sorted(maps.Keys(children))
	if b.Active == "" {
		for _, id := range ids {
			if b.Active = children[id]; b.Active != "" {
				break
			}
		}
	}
	for _, id := range ids {
		if children[id] != b.Active {
			b.Elsewhere = append(b.Elsewhere, replicaChild{id, children[id]})
		}
	}
}

// named returns the backend that the call names.
func (r *backendReader) named(c *call) (*account.Backend, error) {
	kind := backendKindOf(c.ID())
	if kind == "" {
		return nil, errNoBackend(c.ID())
	}
	return r.store.Backend(c.Context(), c.AccountID(), kind, c.ID())
}

func errNoBackend(id string) error {
	return account.Errorf(account.CodeNotFound, "there is no backend %q", account.Shorten(id))
}

// parents returns the names of the backends that have the backend as a child.
func (r *backendReader) parents(c *call, id string) (names []string, err error) {
	for _, kind := range []account.BackendKind{account.BackendFailover, account.BackendWeighted} {
		all, err := r.all(c, kind)
		if err != nil {
			return nil, err
		}
		for _, b := range all {
			if _, weighted := b.Weights[id]; weighted || slices.Contains(b.Children, id) {
				names = append(names, backendRow{Backend: b}.Name())
			}
		}
	}
	return names, nil
}

// choices returns all backends of the account but one, by kind.
func (r *backendReader) choices(c *call, without string) (groups []choiceGroup, err error) {
	for _, kind := range account.BackendKinds() {
		all, err := r.all(c, kind)
		if err != nil {
			return nil, err
		}
		g := choiceGroup{Name: kindName(kind)}
		for _, b := range all {
			if b.ID == without {
				continue
			}
			text := b.ID
			if about := cmp.Or(b.Description, backendRow{Backend: b}.Summary()); about != "" {
				text = about + " · " + shortID(b.ID)
			}
			g.Choices = append(g.Choices, choice{b.ID, text})
		}
		if len(g.Choices) > 0 {
			groups = append(groups, g)
		}
	}
	return groups, nil
}

// all returns the backends of a kind. An account has at most account.MaxBackends, unless
// its server allows more.
func (r *backendReader) all(c *call, kind account.BackendKind) (all []account.Backend, err error) {
	page := account.Page{Limit: account.MaxPageLimit}
	for range maxBackendPages {
		found, more, err := r.store.ListBackends(c.Context(), c.AccountID(), kind, page)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
		if !more || len(found) == 0 {
			break
		}
		page.BeforeID = all[len(all)-1].ID
	}
	return all, nil
}

// maxBackendPages bounds how many backends of a kind a form offers.
const maxBackendPages = 5
