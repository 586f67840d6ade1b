// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// audit tests the audit log: each change once, in order, with its principal; "gone" once compacted.
var audit = map[string]func(*testing.T, Open){
	"audit: actions of people and agents": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		from := f.audited().Version
		by := account.Caller{AccountID: f.AccountID, PrincipalID: "ak-someone"}
		session := f.Session()
		e := f.Bind(session, "http://api.demo").Endpoint
		other := f.Request(session, "http://api.demo")
		other.SealKey = "sha256/other"
		for range 2 { // the second is no difference
			_, err := f.Store.Bind(t.Context(), other)
			Must(t, err)
		}
		Equal(t, "details", fmt.Sprint(f.audited().Events[0].Details), fmt.Sprint(map[string]string{"url": e.URL,
			"seal_key": "sha256/other", "previous_seal_key": e.SealKey}))
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, e.ID, session))
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, session, account.SessionEnd{}))
		Must(t, f.Store.EndSession(t.Context(), f.AccountID, session, account.SessionEnd{})) // no second end
		o, _, err := f.Store.UpsertOperator(t.Context(), anOperator(f.AccountID))
		Must(t, err)
		_, _, err = f.Store.UpsertOperator(t.Context(), anOperator(f.AccountID)) // a heartbeat
		Must(t, err)
		_, err = f.Store.PatchOperator(t.Context(), by, o.ID, account.OperatorPatch{Description: new("changed")})
		Must(t, err)
		// no difference
		_, err = f.Store.PatchOperator(t.Context(), by, o.ID, account.OperatorPatch{Description: new("changed")})
		Must(t, err)
		Must(t, f.Store.DeleteOperator(t.Context(), by, o.ID))
		key, err := f.Store.CreateAPIKey(t.Context(), by, account.APIKeyPatch{Description: new("ci")})
		Must(t, err)
		_, err = f.Store.PatchAPIKey(t.Context(), by, key.ID, account.APIKeyPatch{Metadata: new("m")})
		Must(t, err)
		_, err = f.Store.CreateAPIKey(t.Context(), by, account.APIKeyPatch{Scopes: &[]account.Scope{"root"}}) // refused
		MustCode(t, err, account.CodeInvalid)
		token, err := f.Store.CreateAuthtoken(t.Context(), by, account.AuthtokenPatch{})
		Must(t, err)
		Must(t, f.Store.DeleteAuthtoken(t.Context(), by, token.ID))
		want := []string{
			"tunnel_session.started " + session + " " + f.TokenID, "endpoint.created " + e.ID + " " + f.TokenID,
			"endpoint.seal_changed " + e.ID + " " + f.TokenID,
			"endpoint.deleted " + e.ID + " " + f.TokenID,
			"tunnel_session.ended " + session + " " + f.TokenID, "kubernetes_operator.created " + o.ID + " ak-1",
			"kubernetes_operator.updated " + o.ID + " ak-someone",
			"kubernetes_operator.deleted " + o.ID + " ak-someone", "api_key.created " + key.ID + " ak-someone",
			"api_key.updated " + key.ID + " ak-someone",
			"credential.created " + token.ID + " ak-someone", "credential.deleted " + token.ID + " ak-someone",
		}
		Equal(t, "events", strings.Join(f.auditAfter(from, account.AuditFilter{}), "\n"), strings.Join(want, "\n"))
		Equal(t, "of one type", len(f.auditAfter(from, account.AuditFilter{Type: account.AuditEndpointCreated})), 1)
		Equal(t, "of one object", len(f.auditAfter(from, account.AuditFilter{ObjectID: o.ID})), 3)
		newest := f.audited().Events[0]
		Equal(t, "newest", newest.Type, account.AuditCredentialDeleted)
		one, err := f.Store.AuditEvent(t.Context(), f.AccountID, newest.ID)
		Must(t, err)
		Equal(t, "read alone", one.ResourceVersion, newest.ResourceVersion)
	},
	"audit: backends and cloud endpoints": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		from, by := f.audited().Version, account.Caller{AccountID: f.AccountID, PrincipalID: "ak-someone"}
		b, err := f.Store.CreateBackend(t.Context(), by,
			account.Backend{Kind: account.BackendStatic, Static: &account.StaticAddress{Address: "example.com:80"}})
		Must(t, err)
		for range 2 { // the second is no difference
			_, err = f.Store.PatchBackend(t.Context(), by, b.Kind, b.ID, account.BackendPatch{Metadata: new("m")})
			Must(t, err)
		}
		e, err := f.Store.CreateEndpoint(t.Context(), account.Endpoint{AccountID: f.AccountID, URL: "http://shop.demo",
			Scheme: "http", Host: "shop.demo", Port: 80,
			Bindings: []string{account.BindingKubernetes}, BackendID: b.ID, TrafficPolicy: secretPolicy,
			Principal: &account.Ref{ID: "ak-someone"}}, FactsOf(secretPolicy))
		Must(t, err)
		for range 2 {
			_, err = f.Store.PatchEndpoint(t.Context(), by, e.ID, account.EndpointPatch{Metadata: new("m")},
				account.PolicyFacts{})
			Must(t, err)
		}
		MustCode(t, f.Store.DeleteBackend(t.Context(), by, b.Kind, b.ID), account.CodeInUse)
		Must(t, f.Store.DeleteEndpoint(t.Context(), by, e.ID))
		Must(t, f.Store.DeleteBackend(t.Context(), by, b.Kind, b.ID))
		want := []string{"backend.created " + b.ID, "backend.updated " + b.ID, "endpoint.created " + e.ID,
			"endpoint.updated " + e.ID, "endpoint.deleted " + e.ID, "backend.deleted " + b.ID}
		Equal(t, "events", strings.Join(f.auditAfter(from, account.AuditFilter{}), "\n"),
			strings.Join(want, " ak-someone\n")+" ak-someone")
		if shown := fmt.Sprintf("%+v", f.audited().Events); strings.Contains(shown, "hush") {
			t.Errorf("an event holds the policy: %s", shown)
		}
	},
	"audit pages: no gap": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		by := account.Caller{AccountID: f.AccountID}
		for i := range 7 { // all of one moment: the clock stands
			_, err := f.Store.CreateAPIKey(t.Context(), by, account.APIKeyPatch{Description: new(fmt.Sprint(i))})
			Must(t, err)
		}
		last := f.audited().Version.Seq
		for before := ""; ; {
			page, err := f.Store.AuditEvents(t.Context(), f.AccountID, account.AuditFilter{},
				account.Page{BeforeID: before, Limit: 2})
			Must(t, err)
			for _, e := range page.Events {
				Equal(t, "number", e.ResourceVersion.Seq, last)
				last, before = last-1, e.ID
			}
			if !page.More {
				break
			}
		}
		Equal(t, "left", last, int64(0))
	},
	"audit retention: watcher behind gets gone": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.MaxAuditEvents = 100 })
		by := account.Caller{AccountID: f.AccountID}
		start := account.ResourceVersion{Epoch: f.audited().Version.Epoch}
		for range 110 {
			_, err := f.Store.CreateAPIKey(t.Context(), by, account.APIKeyPatch{})
			Must(t, err)
		}
		Must(t, f.Store.Sweep(t.Context()))
		_, _, err := f.Store.AuditEventsAfter(t.Context(), f.AccountID, start, account.AuditFilter{}, 10)
		MustCode(t, err, account.CodeGone)
		Equal(t, "kept", len(f.audited().Events), 100)
		end := f.audited().Version
		f.Clock.Step(store.DefaultAuditRetention + time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "kept", len(f.audited().Events), 0)
		Equal(t, "version", f.audited().Version, end)
		Equal(t, "after the end", len(f.auditAfter(end, account.AuditFilter{})), 0)
		Must(t, f.Store.RecordAudit(t.Context(), account.Caller{AccountID: f.AccountID}, account.AuditBackendSwitched,
			"bkdfo-1", map[string]string{"to": "bkdst-1"}))
		Equal(t, "next", strings.Join(f.auditAfter(end, account.AuditFilter{}), " "), "backend.switched bkdfo-1 ")
	},
	"audit retention: activity displaces no security event": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.MaxAuditEvents = 20 })
		by := account.Caller{AccountID: f.AccountID, PrincipalID: "ak-admin"}
		token, err := f.Store.CreateAuthtoken(t.Context(), by, account.AuthtokenPatch{})
		Must(t, err)
		Must(t, f.Store.DeleteAuthtoken(t.Context(), by, token.ID))
		security := f.audited().Events[:2]
		for range 20 { // an agent, and a person who logs out: four events
			session := f.Session()
			f.Bind(session, "http://api.demo")
			Must(t, f.Store.EndSession(t.Context(), f.AccountID, session, account.SessionEnd{}))
			Must(t, f.Store.RecordAudit(t.Context(), account.Caller{AccountID: f.AccountID, PrincipalID: "au-1"},
				account.AuditAppSessionRevoked, "as-1", map[string]string{}))
			Must(t, f.Store.Sweep(t.Context()))
		}
		activity := 0
		for _, e := range f.audited().Events {
			if e.ResourceVersion.Seq > security[0].ResourceVersion.Seq {
				activity++
			}
		}
		if activity < 20 || activity > 21 {
			t.Errorf("%d events of activity are kept, want 20 or one more", activity)
		}
		for _, e := range security {
			kept, err := f.Store.AuditEvent(t.Context(), f.AccountID, e.ID)
			Must(t, err)
			Equal(t, "kept", kept.Type, e.Type)
		}
		_, _, err = f.Store.AuditEventsAfter(t.Context(), f.AccountID, security[0].ResourceVersion,
			account.AuditFilter{}, 10)
		MustCode(t, err, account.CodeGone)
		now, err := f.Store.Monitored(t.Context())
		Must(t, err)
		if now.OldestSecurityEvent.IsZero() || now.OldestActivityEvent.IsZero() {
			t.Errorf("no time of the oldest events: %+v", now)
		}
		for range 30 {
			_, err := f.Store.CreateAPIKey(t.Context(), by, account.APIKeyPatch{})
			Must(t, err)
		}
		Must(t, f.Store.Sweep(t.Context()))
		_, err = f.Store.AuditEvent(t.Context(), f.AccountID, security[0].ID)
		MustCode(t, err, account.CodeNotFound)
		Equal(t, "kept of both", len(f.audited().Events), 20+activity)
	},
	"audit: other accounts see and wake on nothing": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, _ := f.NewAccount("other")
		theirs, cancel := f.Store.SubscribeAudit(other)
		defer cancel()
		mine, cancel := f.Store.SubscribeAudit(f.AccountID)
		defer cancel()
		_, err := f.Store.CreateAPIKey(t.Context(), account.Caller{AccountID: f.AccountID}, account.APIKeyPatch{})
		Must(t, err)
		<-mine
		select {
		case <-theirs:
			t.Error("another account was woken")
		default:
		}
		_, err = f.Store.AuditEvent(t.Context(), other, f.audited().Events[0].ID)
		MustCode(t, err, account.CodeNotFound)
		page, err := f.Store.AuditEvents(t.Context(), other, account.AuditFilter{Type: account.AuditAPIKeyCreated},
			account.Page{})
		Must(t, err)
		Equal(t, "events", len(page.Events), 0)
	},
	"deleted endpoint: reserved for its account": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, _ := f.NewAccount("other")
		session := f.Session()
		e := f.Bind(session, "http://api.demo").Endpoint
		reserved := func(accountID string) bool {
			got, err := f.Store.EndpointReserved(t.Context(), accountID, e.ID)
			Must(t, err)
			return got
		}
		Equal(t, "while it is there", reserved(f.AccountID), false)
		Must(t, f.Store.Unbind(t.Context(), f.AccountID, e.ID, session))
		Equal(t, "gone", reserved(f.AccountID), true)
		Equal(t, "in another account", reserved(other), false)
		f.Clock.Step(store.DefaultReserve + time.Second)
		Equal(t, "after a week", reserved(f.AccountID), false)
	},
}

// audited returns the first page of the account's audit events.
func (f *Fixture) audited() *account.AuditPage {
	f.T.Helper()
	page, err := f.Store.AuditEvents(f.ctx(), f.AccountID, account.AuditFilter{},
		account.Page{Limit: account.MaxPageLimit})
	Must(f.T, err)
	return page
}

// auditAfter returns type, object and principal of the events after a version.
func (f *Fixture) auditAfter(v account.ResourceVersion, filter account.AuditFilter) []string {
	f.T.Helper()
	events, _, err := f.Store.AuditEventsAfter(f.ctx(), f.AccountID, v, filter, 0)
	Must(f.T, err)
	var out []string
	for _, e := range events {
		principal := ""
		if e.Principal != nil {
			principal = e.Principal.ID
		}
		out = append(out, string(e.Type)+" "+e.Object.ID+" "+principal)
	}
	return out
}
