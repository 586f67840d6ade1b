// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"maps"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// replicaChild is a child of a failover that serves with a replica, "" when none is up there.
type replicaChild struct{ Replica, Child string }

// backendRows returns the backends with their active children.
func (s *server) backendRows(
	ctx context.Context, accountID string, backends ...account.Backend,
) ([]backendRow, error) {
	rows := make([]backendRow, len(backends))
	var failovers []string
	for i, b := range backends {
		rows[i] = backendRow{Backend: b, Active: s.opt.Backends.ActiveChild(accountID, b.ID)}
		if b.Kind == account.BackendFailover {
			failovers = append(failovers, b.ID)
		}
	}
	if s.opt.Replicas == nil || len(failovers) == 0 {
		return rows, nil
	}
	found, err := s.opt.Store.ActiveChildren(ctx, accountID, failovers)
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
