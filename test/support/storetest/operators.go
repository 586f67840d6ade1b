// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

func anOperator(accountID string) account.Operator {
	return account.Operator{AccountID: accountID, ClusterUID: "6c0f", Description: "prod",
		EnabledFeatures: []string{account.FeatureBindings},
		Deployment: account.OperatorDeployment{Name: "fairlead", Namespace: "fairlead-system", Version: "1.0.0",
			ClusterName: "eu"},
		Binding:   &account.OperatorBinding{EndpointSelectors: []string{"ep.hostname.endsWith('.prod')\n\"ü\", ,"}},
		Principal: &account.Ref{ID: "ak-1"}}
}

// operators tests operators and tunnel sessions, which are rows without events.
var operators = map[string]func(*testing.T, Open){
	"operator: keeps its id when it registers again": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		o := anOperator(f.AccountID)
		first, created, err := f.Store.UpsertOperator(t.Context(), o)
		Must(t, err)
		Equal(t, "created", created, true)
		stored, err := f.Store.Operator(t.Context(), f.AccountID, first.ID)
		Must(t, err)
		if !reflect.DeepEqual(stored, first) {
			t.Fatalf("stored %+v, returned %+v", stored, first)
		}
		Equal(t, "selector", stored.Binding.EndpointSelectors[0], o.Binding.EndpointSelectors[0])

		f.Clock.Step(time.Minute)
		again, created, err := f.Store.UpsertOperator(t.Context(), o)
		Must(t, err)
		Equal(t, "created again", created, false)
		Equal(t, "id", again.ID, first.ID)
		Equal(t, "updated", again.UpdatedAt, first.UpdatedAt)
		Equal(t, "seen", again.LastSeenAt.Equal(f.Clock.Now()), true)
		f.Clock.Step(time.Minute)
		Must(t, f.Store.Sweep(t.Context()))
		stored, err = f.Store.Operator(t.Context(), f.AccountID, first.ID)
		Must(t, err)
		Equal(t, "stored seen", stored.LastSeenAt, again.LastSeenAt)

		o.Deployment.Version, o.Binding, o.Principal = "1.1.0", nil, &account.Ref{ID: "ak-2"}
		changed, created, err := f.Store.UpsertOperator(t.Context(), o)
		Must(t, err)
		Equal(t, "created by a change", created, false)
		Equal(t, "id", changed.ID, first.ID)
		Equal(t, "updated", changed.UpdatedAt.Equal(f.Clock.Now()), true)
		Equal(t, "created at", changed.CreatedAt, first.CreatedAt)
		Equal(t, "binding", changed.Binding, nil)
		Equal(t, "events", f.List().Version.Seq, int64(0))
	},
	"operator: identity by cluster and deployment, limit": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.MaxOperators = 4 })
		ids := map[string]bool{}
		register := func(change func(*account.Operator)) {
			o := anOperator(f.AccountID)
			change(&o)
			got, created, err := f.Store.UpsertOperator(t.Context(), o)
			Must(t, err)
			Equal(t, "created", created, true)
			ids[got.ID] = true
		}
		register(func(o *account.Operator) {})
		register(func(o *account.Operator) { o.Deployment.Namespace = "other" })
		register(func(o *account.Operator) { o.ClusterUID = "" })
		register(func(o *account.Operator) { o.ClusterUID = "" })
		Equal(t, "operators", len(ids), 4)
		o := anOperator(f.AccountID)
		o.ClusterUID = "another"
		_, _, err := f.Store.UpsertOperator(t.Context(), o)
		MustCode(t, err, account.CodeLimit)
	},
	"operator: deleted after its retention": func(t *testing.T, open Open) {
		const keep = 30 * 24 * time.Hour
		f := NewFixture(t, open, func(o *store.Options) { o.KeepOperators = keep })
		register := func(uid string) string {
			o := anOperator(f.AccountID)
			o.ClusterUID = uid
			made, _, err := f.Store.UpsertOperator(t.Context(), o)
			Must(t, err)
			return made.ID
		}
		gone, lives, connected, once := register("gone"), register("lives"), register("connected"), register("")
		left := func() int {
			Must(t, f.Store.Sweep(t.Context()))
			page, _, err := f.Store.ListOperators(t.Context(), f.AccountID, account.Page{})
			Must(t, err)
			return len(page)
		}
		f.Clock.Step(keep - time.Minute)
		Equal(t, "operators before", left(), 4)
		register("lives")
		f.Store.MarkOperatorSeen(connected)
		f.Clock.Step(2 * time.Minute)
		Equal(t, "operators between two sweeps", left(), 4)
		Must(t, f.Store.BeginServerTerm(t.Context()))
		f.Clock.Step(59 * time.Minute)
		Equal(t, "operators soon after a start", left(), 4)
		f.Clock.Step(2 * time.Minute)
		Equal(t, "operators after", left(), 3)
		for _, id := range []string{lives, connected, once} {
			_, err := f.Store.Operator(t.Context(), f.AccountID, id)
			Must(t, err)
		}
		events, err := f.Store.AuditEvents(t.Context(), f.AccountID,
			account.AuditFilter{Type: account.AuditOperatorDeleted}, account.Page{})
		Must(t, err)
		Equal(t, "events", len(events.Events), 1)
		Equal(t, "event", events.Events[0].Type, account.AuditOperatorDeleted)
		Equal(t, "event's operator", events.Events[0].Object.ID, gone)
		Equal(t, "event's reason", strings.HasPrefix(events.Events[0].Details["reason"], "not seen since 20"), true)
	},
	"operator: patch changes named fields only": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		o, _, err := f.Store.UpsertOperator(t.Context(), anOperator(f.AccountID))
		Must(t, err)
		f.Clock.Step(time.Minute)
		same, err := f.Store.PatchOperator(t.Context(), account.Caller{AccountID: f.AccountID}, o.ID,
			account.OperatorPatch{Description: &o.Description})
		Must(t, err)
		Equal(t, "updated without a difference", same.UpdatedAt, o.UpdatedAt)
		version, ingress := "2", "x"
		got, err := f.Store.PatchOperator(t.Context(), account.Caller{AccountID: f.AccountID}, o.ID,
			account.OperatorPatch{
				Deployment: account.DeploymentPatch{Version: &version},
				Binding:    account.BindingPatch{IngressEndpoint: &ingress}})
		Must(t, err)
		Equal(t, "version", got.Deployment.Version, "2")
		Equal(t, "cluster name", got.Deployment.ClusterName, "eu")
		Equal(t, "selectors", len(got.Binding.EndpointSelectors), 1)
		Equal(t, "updated", got.UpdatedAt.Equal(f.Clock.Now()), true)
		_, err = f.Store.PatchOperator(t.Context(), account.Caller{AccountID: f.AccountID}, o.ID,
			account.OperatorPatch{Deployment: account.DeploymentPatch{Namespace: &version}})
		MustCode(t, err, account.CodeInvalid)
		long := strings.Repeat("x", 256)
		_, err = f.Store.PatchOperator(t.Context(), account.Caller{AccountID: f.AccountID}, o.ID,
			account.OperatorPatch{Description: &long})
		MustCode(t, err, account.CodeInvalid)
		Must(t, f.Store.DeleteOperator(t.Context(), account.Caller{AccountID: f.AccountID}, o.ID))
		MustCode(t, f.Store.DeleteOperator(t.Context(), account.Caller{AccountID: f.AccountID}, o.ID),
			account.CodeNotFound)
	},
	"operators and tunnel sessions: pages": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		for i := range 3 {
			f.Clock.Step(time.Millisecond)
			o := anOperator(f.AccountID)
			o.ClusterUID = fmt.Sprint(i)
			_, _, err := f.Store.UpsertOperator(t.Context(), o)
			Must(t, err)
			f.Session()
		}
		ops, more, err := f.Store.ListOperators(t.Context(), f.AccountID, account.Page{Limit: 2})
		Must(t, err)
		Equal(t, "more operators", more, true)
		Equal(t, "newest", ops[0].ClusterUID, "2")
		ops, more, err = f.Store.ListOperators(t.Context(), f.AccountID,
			account.Page{Limit: 2, BeforeID: ops[1].ID})
		Must(t, err)
		Equal(t, "oldest", ops[0].ClusterUID+fmt.Sprint(more), "0false")
		sessions, more, err := f.Store.ListTunnelSessions(t.Context(), f.AccountID, account.Page{Limit: 2})
		Must(t, err)
		Equal(t, "more sessions", more, true)
		sessions, _, err = f.Store.ListTunnelSessions(t.Context(), f.AccountID,
			account.Page{Limit: 2, BeforeID: sessions[1].ID})
		Must(t, err)
		Equal(t, "rest", len(sessions), 1)
		one, err := f.Store.TunnelSession(t.Context(), f.AccountID, sessions[0].ID)
		Must(t, err)
		Equal(t, "session", fmt.Sprintf("%+v", *one), fmt.Sprintf("%+v", sessions[0]))
		Equal(t, "address", one.IP, "203.0.113.9")
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, one.ID, account.SessionEnd{}))
		_, err = f.Store.TunnelSession(t.Context(), f.AccountID, one.ID)
		MustCode(t, err, account.CodeNotFound)
	},
}
