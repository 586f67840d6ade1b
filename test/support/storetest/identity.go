// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// identity tests that the row of an endpoint belongs to its slot, not to the session that has it.
var identity = map[string]func(*testing.T, Open){
	"first bind: stores all fields": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		before := f.List().Version
		session := f.Session()
		r := f.Request(session, "http://Api.Demo")
		r.Name, r.Description, r.Metadata = "api", "an\nAPI ✓", `{"a":1}`
		got, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		e := got.Endpoint
		Equal(t, "url", e.URL, "http://api.demo")
		Equal(t, "public_url", e.PublicURL, e.URL)
		Equal(t, "hostport", e.HostPort, "api.demo:80")
		Equal(t, "proto", e.Proto, "http")
		Equal(t, "type", e.Type, account.TypeAgent)
		Equal(t, "status", e.Status, account.StatusOnline)
		Equal(t, "projection", e.ProjectionID, e.ID)
		Equal(t, "session", e.TunnelSession.ID, session)
		Equal(t, "principal", e.Principal.ID, f.TokenID)
		Equal(t, "region", e.Region, "home")
		Equal(t, "metadata", e.Metadata, r.Metadata)
		Equal(t, "description", e.Description, r.Description)
		Equal(t, "took from", got.ReplacedSessionID, "")
		Equal(t, "valid id", account.ValidID(account.PrefixEndpoint, e.ID), true)
		if stored := f.Endpoint(e.ID); differ(*stored, e) {
			t.Fatalf("stored %+v, returned %+v", stored, e)
		}
		added := f.Expect(before, account.Added)[0]
		Equal(t, "event's version", added.ResourceVersion, e.ResourceVersion)
		if e.HostMode, e.AccountID = "", ""; differ(*added.Endpoint, e) {
			t.Fatalf("event has %+v, bind returned %+v", added.Endpoint, e)
		}
	},
	"bind of an offline row: same id, one MODIFIED": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first := f.Session()
		id := f.Bind(first, "http://api.demo").Endpoint.ID
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, first, account.SessionEnd{}))
		lost := f.Endpoint(id)
		Equal(t, "status", lost.Status, account.StatusOffline)
		Equal(t, "offline since", lost.OfflineSince.Equal(f.Clock.Now()), true)
		Equal(t, "session", lost.TunnelSession, nil)
		f.Clock.Step(time.Minute)
		second := f.Session()
		got := f.Bind(second, "http://api.demo")
		Equal(t, "id", got.Endpoint.ID, id)
		Equal(t, "took from", got.ReplacedSessionID, "")
		Equal(t, "offline since", got.Endpoint.OfflineSince, nil)
		e := f.Expect(lost.ResourceVersion, account.Modified)[0].Endpoint
		Equal(t, "session", e.TunnelSession.ID, second)
		Equal(t, "created", e.CreatedAt, lost.CreatedAt)
		Equal(t, "updated", e.UpdatedAt.Equal(f.Clock.Now()), true)
	},
	"bind of an online row: refused with session, address and time": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		holder := f.Session()
		held := f.Bind(holder, "http://api.demo")
		f.Clock.Step(time.Hour)
		for _, secret := range []string{"", "flr_wrong", "flr_"} {
			r := f.Request(f.Session(), "http://api.demo")
			r.ResumeSecret = secret
			_, err := f.Store.Bind(t.Context(), r)
			MustCode(t, err, account.CodeURLTaken)
			for _, part := range []string{holder, "203.0.113.9", "2026-11-20T08:00:00Z", "http://api.demo"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not name %q", err, part)
				}
			}
		}
		f.Expect(held.Endpoint.ResourceVersion)
		Equal(t, "holder", f.Endpoint(held.Endpoint.ID).TunnelSession.ID, holder)
	},
	"resume secret: takes over an online row once": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first, second, third := f.Session(), f.Session(), f.Session()
		held := f.Bind(first, "http://api.demo")
		r := f.Request(second, "http://api.demo")
		r.ResumeSecret = held.ResumeSecret
		got, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		Equal(t, "took from", got.ReplacedSessionID, first)
		Equal(t, "id", got.Endpoint.ID, held.Endpoint.ID)
		f.Expect(held.Endpoint.ResourceVersion, account.Modified)
		r.SessionID = third
		_, err = f.Store.Bind(t.Context(), r)
		MustCode(t, err, account.CodeURLTaken) // the secret is new at each bind
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, first, account.SessionEnd{}))
		Equal(t, "status after the old holder's end", f.Endpoint(got.Endpoint.ID).Status, account.StatusOnline)
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, got.Endpoint.ID, first))
		Equal(t, "holder", f.Endpoint(got.Endpoint.ID).TunnelSession.ID, second)
	},
	"repeated bind: no change, no event": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		held := f.Bind(session, "http://api.demo")
		f.Clock.Step(time.Minute)
		r := f.Request(session, "http://api.demo")
		r.ResumeSecret = held.ResumeSecret
		again, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		Equal(t, "took from", again.ReplacedSessionID, "")
		Equal(t, "version", again.Endpoint.ResourceVersion, held.Endpoint.ResourceVersion)
		f.Expect(held.Endpoint.ResourceVersion)
		r.ResumeSecret, r.Description = again.ResumeSecret, "new"
		_, err = f.Store.Bind(t.Context(), r)
		Must(t, err)
		f.Expect(held.Endpoint.ResourceVersion, account.Modified)
	},
	"repeated bind: without the resume secret only when its answer was lost": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		held := f.Bind(session, "http://api.demo")
		r := f.Request(session, "http://api.demo")
		r.Holds = func(id string) bool { return id == held.Endpoint.ID }
		_, err := f.Store.Bind(t.Context(), r)
		MustCode(t, err, account.CodeURLTaken) // the session's own other endpoint has the URL
		r.Holds = nil
		again, err := f.Store.Bind(t.Context(), r)
		Must(t, err)
		Equal(t, "id", again.Endpoint.ID, held.Endpoint.ID)
		Equal(t, "took from", again.ReplacedSessionID, "")
		f.Expect(held.Endpoint.ResourceVersion)
		other := f.Request(f.Session(), "http://api.demo")
		_, err = f.Store.Bind(t.Context(), other)
		MustCode(t, err, account.CodeURLTaken)
		other.ResumeSecret = again.ResumeSecret
		_, err = f.Store.Bind(t.Context(), other)
		Must(t, err)
	},
	"bind of another scheme: refused": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		f.Bind(session, "http://db.prod:5432")
		_, err := f.Store.Bind(t.Context(), f.Request(session, "tcp://db.prod:5432"))
		MustCode(t, err, account.CodeURLTaken)
		if !strings.Contains(err.Error(), "http://db.prod:5432") {
			t.Errorf("error %q does not name the other", err)
		}
		f.Bind(session, "tcp://db.prod:5433")
	},
	"bind of an ended session: refused": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		session := f.Session()
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, session, account.SessionEnd{}))
		_, err := f.Store.Bind(t.Context(), f.Request(session, "http://api.demo"))
		MustCode(t, err, account.CodeNotFound)
		Equal(t, "endpoints", len(f.List().Endpoints), 0)
	},
	"invalid bind: all broken rules, nothing written": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		before := f.List().Version
		r := f.Request(f.Session(), "http://api.demo")
		r.Bindings, r.Name, r.Description = []string{"internal"}, "a\x00b", "\xff"
		r.Metadata = strings.Repeat("x", account.MaxMetadata+1)
		_, err := f.Store.Bind(t.Context(), r)
		MustCode(t, err, account.CodeInvalid)
		Equal(t, "broken rules", len(account.FieldsOf(err)), 4)
		Equal(t, "version", f.List().Version, before)
	},
	"endpoint limit: counts rows, not binds": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.MaxEndpoints = 2 })
		session := f.Session()
		f.Bind(session, "http://a.demo")
		b := f.Bind(session, "http://b.demo")
		_, err := f.Store.Bind(t.Context(), f.Request(session, "http://c.demo"))
		MustCode(t, err, account.CodeLimit)
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, session, account.SessionEnd{}))
		session = f.Session()
		f.Bind(session, "http://b.demo") // adopting is no new endpoint
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, b.Endpoint.ID, session))
		f.Bind(session, "http://c.demo")
		_, err = f.Store.Bind(t.Context(), f.Request(session, "http://d.demo"))
		MustCode(t, err, account.CodeLimit)
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, session, account.SessionEnd{}))
		f.Clock.Step(store.DefaultGrace)
		Must(t, f.Store.Sweep(t.Context()))
		session = f.Session()
		f.Bind(session, "http://d.demo")
		f.Bind(session, "http://e.demo")
		_, err = f.Store.Bind(t.Context(), f.Request(session, "http://f.demo"))
		MustCode(t, err, account.CodeLimit)
	},
}
