// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// ownChild are backends of which this server uses one child.
type ownChild struct {
	*fake
	child string
}

func (o ownChild) ActiveChild(string, string) string { return o.child }

// childrenOf is the store, which knows what serves with other replicas.
type childrenOf struct {
	*fake
	children func(accountID string, ids []string) map[string]map[string]string
}

func (o childrenOf) ActiveChildren(_ context.Context, accountID string, ids []string) (
	map[string]map[string]string, error,
) {
	return o.children(accountID, ids), nil
}

// replicaList are Replicas.
type replicaList []Replica

func (r replicaList) Replicas() []Replica { return r }

// TestBackends_ShowActiveChildOfEachReplica shows a failover of which replicas find different
// children.
func TestBackends_ShowActiveChildOfEachReplica(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	failover := f.backends[3]
	first, second := failover.Children[0], failover.Children[1]
	for name, c := range map[string]struct {
		own        string
		byReplica  map[string]string
		list, page []string // parts of the pages
		not        []string // no parts of either
	}{
		"all agree": {first, map[string]string{"rp-1": first, "rp-2": first}, []string{first},
			[]string{"serves now<", "waits"}, []string{"rp-"}},
		"one differs": {first, map[string]string{"rp-1": first, "rp-2": second}, []string{"rp-2"},
			[]string{"serves now<", "serves now with", "rp-2"}, []string{"rp-1"}},
		"none is up with one": {first, map[string]string{"rp-1": first, "rp-2": ""}, []string{"rp-2", "none is up"},
			[]string{"serves now<", "No child is up for the replica", "rp-2"}, []string{"rp-1", "serves now with"}},
		"only another one knows": {"", map[string]string{"rp-2": second}, []string{second, "not the first"},
			[]string{"serves now<", "waits"}, []string{"rp-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := dashboardOf(t, f, func(o *Options) {
				o.Backends = ownChild{f, c.own}
				children := func(accountID string, ids []string) map[string]map[string]string {
					if accountID != mine || !slices.Contains(ids, failover.ID) {
						t.Errorf("asked for %s, %v", accountID, ids)
					}
					return map[string]map[string]string{failover.ID: c.byReplica}
				}
				o.Replicas, o.Store = replicaList{}, childrenOf{f, children}
			})
			b := signedInAs(t, srv, "flk_read")
			list := b.get("/ui/backends?kind=" + string(account.BackendFailover)).body
			page := b.get("/ui/backends/" + failover.ID).body
			for _, part := range c.list {
				if !strings.Contains(list, part) {
					t.Errorf("the list lacks %q", part)
				}
			}
			for _, part := range c.page {
				if !strings.Contains(page, part) {
					t.Errorf("the page lacks %q", part)
				}
			}
			for _, part := range c.not {
				if strings.Contains(list, part) || strings.Contains(page, part) {
					t.Errorf("a page has %q", part)
				}
			}
		})
	}
}
