// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// row returns another cluster's record with an id and a version.
func row(id string, seq int64) account.Endpoint {
	e := other(nil)
	e.ID, e.Type, e.ResourceVersion = id, account.TypeCloud, version(seq)
	return e
}

func version(seq int64) account.ResourceVersion { return account.ResourceVersion{Epoch: 1, Seq: seq} }

// notifications counts what records report.
type notifications struct{ names, states int }

func (n *notifications) notify(types.NamespacedName) { n.names++ }
func (n *notifications) notifyAll()                  { n.states++ }

func TestRecords_KeepNewest(t *testing.T) {
	t.Parallel()
	counted := &notifications{}
	s := newRecords(counted)
	expect := func(what string, wantChanges int, ids ...string) {
		t.Helper()
		var got []string
		for _, r := range s.of(hello) {
			got = append(got, r.ID)
		}
		slices.Sort(got)
		if !slices.Equal(got, ids) || counted.names != wantChanges {
			t.Errorf("%s: %v and %d changes, want %v and %d", what, got, counted.names, ids, wantChanges)
		}
	}
	put := func(e account.Endpoint, isNew bool) {
		r, ok := recordOf(&e)
		if !ok {
			t.Fatalf("%+v is no record", e)
		}
		s.put(r, isNew)
	}
	s.replace([]account.Endpoint{row("ep-1", 3), row("ep-2", 4)}, version(5))
	expect("a list", 2, "ep-1", "ep-2")
	put(row("ep-1", 3), true)
	put(row("ep-1", 2), true)
	expect("states that are not newer", 2, "ep-1", "ep-2")
	put(row("ep-3", 7), true)
	expect("one that was made", 3, "ep-1", "ep-2", "ep-3")
	put(row("ep-4", 8), false)
	expect("a change of one that is gone", 3, "ep-1", "ep-2", "ep-3")
	s.replace([]account.Endpoint{row("ep-1", 3)}, version(6))
	expect("a list that is older than what was made", 4, "ep-1", "ep-3")
	s.replace([]account.Endpoint{row("ep-1", 3)}, version(7))
	expect("a list that is not", 5, "ep-1")
	deleted := row("ep-1", 9)
	s.apply(account.EndpointEvent{Type: account.Deleted, Endpoint: &deleted, ResourceVersion: version(9)})
	expect("a deletion", 6)
	put(row("ep-1", 12), true)
	s.apply(account.EndpointEvent{Type: account.Deleted, Endpoint: &deleted, ResourceVersion: version(11)})
	expect("a late deletion of one that was made again", 7, "ep-1")
	s.apply(account.EndpointEvent{Type: account.Deleted, Endpoint: &deleted, ResourceVersion: version(13)})
	expect("another deletion", 8)
	if counted.states != 1 || len(s.byName) > 0 {
		t.Errorf("the state changed %d times; names %v", counted.states, s.byName)
	}
}

// TestFeed_ListsAgain: a watch whose version is gone, and a record that was refused as taken, need
// a complete list.
func TestFeed_ListsAgain(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		h.export(hello)
		lists := h.account.listCount()
		h.r.feed.refresh.Send()
		h.settle()
		if h.account.listCount() != lists {
			t.Error("a list was read at once")
		}
		time.Sleep(refreshInterval)
		h.settle()
		if h.account.listCount() != lists+1 {
			t.Errorf("%d more lists", h.account.listCount()-lists)
		}
		h.account.endVersion()
		h.r.feed.refresh.Send()
		time.Sleep(2 * refreshInterval)
		h.settle()
		if n := h.account.listCount() - lists; n != 3 {
			t.Errorf("%d more lists after a version that is gone", n)
		}
		h.account.add(other(func(s *account.ServiceExport) { s.Type = account.ExportHeadless }))
		h.settle()
		h.expect(hello,
			"Conflict=True TypeConflict, Ready=True Exported, Valid=True Valid, fairlead.dev/Carried=True Carried")
	})
}
