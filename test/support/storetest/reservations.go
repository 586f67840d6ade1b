// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// reservations tests that ids are reserved for a week after their rows are deleted.
var reservations = map[string]func(*testing.T, Open){
	"unbind: id reserved for seven days": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		first := f.Bind(session, "http://api.demo").Endpoint
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, first.ID, session))
		_, err := f.Store.Endpoint(t.Context(), f.AccountID, first.ID)
		MustCode(t, err, account.CodeNotFound)
		gone := f.Expect(first.ResourceVersion, account.Deleted)[0]
		Equal(t, "snapshot", gone.Endpoint.URL, "http://api.demo")
		Equal(t, "snapshot's version", gone.Endpoint.ResourceVersion, gone.ResourceVersion)
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, first.ID, session)) // a no-op

		f.Clock.Step(store.DefaultReserve - time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		again := f.Bind(session, "http://api.demo").Endpoint
		Equal(t, "id", again.ID, first.ID)
		Equal(t, "projection", again.ProjectionID, first.ProjectionID)
		Equal(t, "created", again.CreatedAt.Equal(f.Clock.Now()), true)

		Must(t, f.Store.Unbind(t.Context(), f.AccountID, again.ID, session))
		f.Clock.Step(store.DefaultReserve)
		late := f.Bind(session, "http://api.demo").Endpoint // before any sweep
		if late.ID == first.ID || late.ProjectionID != late.ID {
			t.Fatalf("after the reservation: id %s, projection %s", late.ID, late.ProjectionID)
		}
	},
	"projection id: kept while reserved": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		first := f.Bind(session, "http://db.prod").Endpoint
		second := f.Bind(session, "tcp://db.prod:5432").Endpoint
		Equal(t, "second's projection", second.ProjectionID, first.ID)
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, first.ID, session))
		f.Clock.Step(2 * store.DefaultReserve)
		Must(t, f.Store.Sweep(t.Context()))
		third := f.Bind(session, "http://db.prod:8080").Endpoint
		Equal(t, "third's projection", third.ProjectionID, first.ID)
		if back := f.Bind(session, "http://db.prod").Endpoint; back.ID == first.ID || back.ProjectionID != first.ID {
			t.Fatalf("slot's id %s, projection %s, want a new id and %s", back.ID, back.ProjectionID, first.ID)
		}
		for _, e := range f.List().Endpoints {
			Must(t, f.Store.Unbind(t.Context(), f.AccountID, e.ID, session))
		}
		f.Clock.Step(store.DefaultReserve - time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "projection within the reservation", f.Bind(session, "http://db.prod:9090").Endpoint.ProjectionID,
			first.ID)
	},
	"projection id: new after the reservation": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		first := f.Bind(session, "http://db.prod").Endpoint
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, first.ID, session))
		f.Clock.Step(store.DefaultReserve)
		Must(t, f.Store.Sweep(t.Context()))
		next := f.Bind(session, "http://db.prod:81").Endpoint
		Equal(t, "projection", next.ProjectionID, next.ID)
	},
}
