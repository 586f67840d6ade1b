// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// times tests the grace of offline endpoints, server starts and last-used times.
var times = map[string]func(*testing.T, Open){
	"grace: deletes at its end": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		e := f.Bind(session, "http://api.demo").Endpoint
		online := f.Bind(f.Session(), "http://other.demo").Endpoint
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, session, account.SessionEnd{}))
		v := f.List().Version
		f.Clock.Step(store.DefaultGrace - time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		f.Expect(v)
		f.Clock.Step(time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		gone := f.Expect(v, account.Deleted)[0]
		Equal(t, "deleted", gone.Endpoint.ID, e.ID)
		Equal(t, "its status", gone.Endpoint.Status, account.StatusOffline)
		f.Clock.Step(time.Hour)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "online endpoint", f.Endpoint(online.ID).Status, account.StatusOnline)
		Equal(t, "id after the grace", f.Bind(f.Session(), "http://api.demo").Endpoint.ID, e.ID)
	},
	"grace: deletes many in one sweep": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		for i := range 220 {
			f.Bind(session, fmt.Sprintf("http://e%d.demo", i))
		}
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, session, account.SessionEnd{}))
		v := f.List().Version
		f.Clock.Step(store.DefaultGrace)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "endpoints", len(f.List().Endpoints), 0)
		Equal(t, "events", len(f.Since(v)), 220)
	},
	"server start: endpoints offline, grace restarted": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		lost, live := f.Session(), f.Session()
		early := f.Bind(lost, "http://early.demo").Endpoint
		late := f.Bind(live, "http://late.demo").Endpoint
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, lost, account.SessionEnd{}))
		offlineSince := *f.Endpoint(early.ID).OfflineSince
		v := f.List().Version
		f.Clock.Step(30 * 24 * time.Hour) // an outage
		f.Restart()
		Equal(t, "late", f.Endpoint(late.ID).Status, account.StatusOffline)
		Equal(t, "early's offline since", *f.Endpoint(early.ID).OfflineSince, offlineSince)
		f.Expect(v, account.Modified)
		sessions, _, err := f.Store.ListTunnelSessions(t.Context(), f.AccountID, account.Page{})
		Must(t, err)
		Equal(t, "stale sessions", len(sessions), 0)
		f.Clock.Step(store.DefaultGrace - time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "endpoints", len(f.List().Endpoints), 2)
		Equal(t, "adopted", f.Bind(f.Session(), "http://early.demo").Endpoint.ID, early.ID)
		f.Clock.Step(time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "endpoints", len(f.List().Endpoints), 1)
	},
	"last-used times: written in batches and on close": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		_, secret, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "", nil, nil)
		Must(t, err)
		used := func() *time.Time {
			keys, err := f.Store.AllAPIKeys(t.Context(), f.AccountID)
			Must(t, err)
			return keys[0].LastUsedAt
		}
		use := func() {
			_, err := f.Store.APIKeyBySecret(t.Context(), secret)
			Must(t, err)
		}
		Must(t, f.Store.Sweep(t.Context()))
		use()
		first := f.Clock.Now()
		f.Clock.Step(time.Minute)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "first use", used().Equal(first), true)
		use()
		second := f.Clock.Now()
		f.Clock.Step(time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "within the batch", used().Equal(first), true)
		f.Restart()
		Equal(t, "second use", used().Equal(second), true)
		Equal(t, "no event", f.List().Version.Seq, int64(0))
	},
}
