// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// TestReconcile_AwaitsBinds: the first status has the answers to the binds, and a later one changes
// with them.
func TestReconcile_AwaitsBinds(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		h.ports.answer(80, PortState{Asked: time.Now()})
		h.export(hello)
		h.expect(hello, "")
		time.Sleep(answerWait)
		h.settle()
		const rest = ", Valid=True Valid, fairlead.dev/Carried=True Carried"
		h.expect(hello, "Conflict=False NoConflicts, Ready=False Pending"+rest, "tcp port 80 is being bound")
		h.ports.answer(80, PortState{Reason: "Rejected", Message: "update fairlead-server"})
		h.request(hello)
		h.expect(hello, "Conflict=False NoConflicts, Ready=False Failed"+rest,
			"tcp port 80 is not carried: update fairlead-server")
		h.ports.answer(80, PortState{Bound: true})
		h.request(hello)
		h.expect(hello, exportedWell)
		h.ports.answer(80, PortState{Asked: time.Now()}) // as after a restart
		h.request(hello)
		time.Sleep(time.Hour)
		h.expect(hello, exportedWell)
		h.ports.mu.Lock()
		h.ports.unreachable = "connection refused"
		h.ports.mu.Unlock()
		h.request(hello)
		h.expect(hello, "Conflict=False NoConflicts, Ready=False Pending"+rest, "no session with the service")
	})
}

func TestReconcile_Refusals(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want string
		part string
		most int // attempts in an hour
	}{
		"rule": {account.Errorf(account.CodeScope, "the key may not export demo/hello: give it the rule export:demo/*"),
			"Failed", "the account refuses the export: the key may not export demo/hello: give it the rule", 30},
		"field": {account.Invalid("service_export.labels", "ä", "must be a label"), "Failed",
			"spec.exportedLabels", 30},
		"away": {account.Errorf(account.CodeUnreachable, "connection refused"), "Pending",
			"the account has not taken the export yet: connection refused", 400},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.account.set(func(string, string) error { return tt.err }, nil)
				h.service(hello, tcp("web", 80))
				h.export(hello)
				const rest = ", Valid=True Valid, fairlead.dev/Carried=True Carried"
				h.expect(hello, "Conflict=False NoConflicts, Ready=False "+tt.want+rest, tt.part)
				h.account.take()
				time.Sleep(time.Hour)
				if n := len(h.account.take()); n < 10 || n > tt.most {
					t.Errorf("%d attempts in an hour", n)
				}
				h.account.set(nil, nil)
				time.Sleep(lastRetry * 2)
				h.expect(hello, exportedWell)
			})
		})
	}
}

// TestReconcile_LostAnswer loses the answer to a creation: the record is found by the watch.
func TestReconcile_LostAnswer(t *testing.T) {
	run(t, func(h *harness) {
		h.account.set(nil, func(call string) bool { return call == "POST" })
		h.service(hello, tcp("web", 80))
		h.export(hello)
		h.settle()
		h.expect(hello, exportedWell)
		h.expectCalls("POST service://hello.demo.a")
		time.Sleep(time.Hour)
		h.expectCalls()
	})
}

// TestReconcile_RepairsRecord: what others did to the record is undone, and a ServiceExport that
// was made again keeps it.
func TestReconcile_RepairsRecord(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		h.export(hello)
		e := h.record(hello)
		h.account.take()
		h.account.Delete(e.ID)
		h.settle()
		h.expectCalls("POST service://hello.demo.a")
		e = h.record(hello)
		e.ServiceExport = &account.ServiceExport{Type: account.ExportHeadless}
		e.Owner = &account.Owner{Cluster: ownCluster, Kind: account.KindServiceExport, Namespace: "demo", Name: "hello",
			UID: "of before"}
		h.account.Put(e)
		h.settle()
		h.expectCalls("PATCH " + e.ID)
		now := h.record(hello)
		if now.Owner.UID == "of before" || now.ServiceExport.Type != account.ExportClusterSetIP {
			t.Errorf("%+v of %+v", now.ServiceExport, now.Owner)
		}
		h.expect(hello, exportedWell)
	})
}

// roundsAtStart is how often orphans are collected when the cluster's id becomes known.
const roundsAtStart = 1

// TestReconcile_ClaimedID exports under an id that another cluster has: the account is asked for
// one export from time to time.
func TestReconcile_ClaimedID(t *testing.T) {
	run(t, func(h *harness) {
		claimed := account.Errorf(account.CodeInUse, `the cluster id "a" is that of cluster uid-z`)
		h.account.set(func(call, _ string) error {
			if call == "POST" {
				return claimed
			}
			return nil
		}, nil)
		var all []types.NamespacedName
		for i := range 50 {
			all = append(all, types.NamespacedName{Namespace: "demo", Name: fmt.Sprintf("s-%02d", i)})
			h.service(all[i], tcp("web", 80))
			h.export(all[i])
		}
		for _, name := range all {
			h.expect(name,
				"Conflict=False NoConflicts, Ready=False Failed, Valid=True Valid, fairlead.dev/Carried=True "+
					"Carried", `the account refuses the export: the cluster id "a" is that of cluster uid-z`)
		}
		h.account.take()
		time.Sleep(10 * time.Minute)
		if n := len(h.account.take()); n < 10 || n > 10*4+1 {
			t.Errorf("%d attempts in 10 minutes", n)
		}
		h.account.set(nil, nil)
		time.Sleep(2 * claimRetry)
		for _, name := range all {
			h.expect(name, exportedWell)
		}
		if len(h.orphans) != roundsAtStart {
			t.Error("orphans were collected because of another cluster's id")
		}
	})
}

// TestReconcile_FindsOwnRecord: a record that the account refuses to make a second time, and that
// no event told of, is found by a list.
func TestReconcile_FindsOwnRecord(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		o := h.export(hello)
		e := h.record(hello)
		h.must(h.kube.Delete(h.Context(), o))
		h.request(hello)
		h.account.PutWithoutEvent(e)
		h.account.set(func(call, _ string) error {
			if call == "POST" {
				return account.Errorf(account.CodeURLTaken, "it is there")
			}
			return nil
		}, nil)
		h.export(hello)
		time.Sleep(2 * refreshInterval)
		h.settle()
		h.expect(hello, exportedWell)
	})
}

// TestReconcile_OwnFormerID: endpoints of this cluster under another id may be orphans.
func TestReconcile_OwnFormerID(t *testing.T) {
	run(t, func(h *harness) {
		h.account.set(func(call, _ string) error {
			return &account.Error{Code: account.CodeInUse, Msg: "x",
				Details: map[string]string{"cluster_uid": ownCluster}}
		}, nil)
		h.service(hello, tcp("web", 80))
		h.export(hello)
		if len(h.orphans) != roundsAtStart+1 {
			t.Errorf("orphans were collected %d times", len(h.orphans))
		}
	})
}

// TestReconcile_OldServer lists the records of a server that does not know the binding.
func TestReconcile_OldServer(t *testing.T) {
	run(t, func(h *harness) {
		h.account.set(func(string, string) error {
			return account.Invalid("binding", "clusterset", "must be kubernetes, internal or public")
		}, nil)
		h.account.endVersion() // the watch of before ends
		h.r.records.reset()
		h.r.feed.refresh.Send()
		h.service(hello, tcp("web", 80))
		time.Sleep(time.Minute)
		h.export(hello)
		h.expect(hello, "Ready=False Failed, Valid=True Valid, fairlead.dev/Carried=True Carried",
			"update fairlead-server",
			"must be kubernetes, internal or public")
		before := h.account.listCount()
		time.Sleep(time.Hour)
		if n := h.account.listCount() - before; n > 60*60/10 {
			t.Errorf("%d lists in an hour", n)
		}
		h.account.set(nil, nil)
		time.Sleep(refusedPause)
		h.settle()
		h.expect(hello, exportedWell)
	})
}

func TestReconcile_ManyEvents(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		h.account.add(other(func(s *account.ServiceExport) {
			s.Labels, s.Annotations = map[string]string{"a": "b"}, map[string]string{}
			for i := range 100 {
				s.Annotations[fmt.Sprint("key-", i)] = strings.Repeat("x", 100)
			}
		}))
		h.export(hello)
		var all []string
		for len(h.events.Events) > 0 {
			all = append(all, <-h.events.Events)
		}
		if text := strings.Join(all, "\n"); len(all) != 2 ||
			!strings.Contains(text, "Warning AnnotationsConflictAndLabelsConflict") ||
			!strings.Contains(text, "Normal Exported") || len(text) > 2000 {
			t.Errorf("events %q", all)
		}
	})
}

func TestReconciler_Withdraw(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		h.export(hello)
		b := h.account.add(other(nil))
		h.settle()
		h.must(h.r.Withdraw(h.Context()))
		if len(h.account.of(ownCluster, hello)) != 0 || len(h.account.of("uid-b", hello)) != 1 {
			t.Errorf("withdrawn: %v, and %s is of another cluster", h.account.Endpoints(), b.ID)
		}
		h.account.set(func(string, string) error { return errors.New("x") }, nil)
		h.request(hello) // makes it again
	})
}
