// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// revoke revokes as an administrator of the first account.
func (f *Fixture) revoke(sel account.RevokeSelector) *account.Revocation {
	f.T.Helper()
	done, err := f.Store.Revoke(f.ctx(), account.Caller{AccountID: f.AccountID, PrincipalID: "ak-admin"}, sel,
		account.RevokedByAdmin)
	Must(f.T, err)
	return done
}

// revocations tests that revoked users and sessions are deleted and stay so.
var revocations = map[string]func(*testing.T, Open){
	"revoke user: deletes user and sessions": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		one, two := f.Login("alice", "s1"), f.Login("alice", "s2")
		f.Login("bob", "s3")
		done := f.revoke(account.RevokeSelector{UserID: one.Identity.ID})
		Equal(t, "done", fmt.Sprint(done.UserIDs, len(done.SessionIDs), done.At),
			fmt.Sprint([]string{one.Identity.ID}, 2, f.Clock.Now()))
		Equal(t, "live", fmt.Sprint(f.Lives("s1"), f.Lives("s2"), f.Lives("s3"), f.stillLive(one.ID, two.ID)),
			"false false true [false false]")
		Equal(t, "listed", names(f.Users(account.UserFilter{})), "bob")
		Equal(t, "sessions", len(f.Sessions(account.AppSessionFilter{})), 1)
		_, err := f.Store.AccessedEndpoints(t.Context(), f.AccountID, one.Identity.ID)
		MustCode(t, err, account.CodeNotFound)
		_, err = f.Store.Revoke(t.Context(), account.Caller{AccountID: f.AccountID},
			account.RevokeSelector{UserID: one.Identity.ID}, account.RevokedByAdmin)
		MustCode(t, err, account.CodeNotFound)
		e := f.audited().Events[0]
		Equal(t, "told", fmt.Sprint(e.Type, e.Object.ID, e.Principal.ID, e.Details),
			fmt.Sprint(account.AuditAppUserRevoked, one.Identity.ID, "ak-admin",
				map[string]string{"reason": account.RevokedByAdmin, "sessions": "2", "provider": "Example ID",
					"provider_user_id": "sub-alice"}))
		f.Clock.Step(2 * time.Minute)
		Equal(t, "a new login is another user", f.Login("alice", "s4", func(l *account.NewLogin) {
			l.ForceReauth = true
		}).Identity.ID != one.Identity.ID, true)
	},
	"revoke sessions of user: user stays": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		one, two := f.Login("alice", "s1"), f.Login("alice", "s2")
		f.Login("bob", "s3")
		f.Clock.Step(time.Second)
		done := f.revoke(account.RevokeSelector{SessionsOf: one.Identity.ID})
		Equal(t, "done", fmt.Sprint(done.UserIDs, len(done.SessionIDs), done.At),
			fmt.Sprint([]string(nil), 2, f.Clock.Now()))
		Equal(t, "live", fmt.Sprint(f.Lives("s1"), f.Lives("s2"), f.Lives("s3"), f.stillLive(one.ID, two.ID)),
			"false false true [false false]")
		Equal(t, "user", fmt.Sprint(f.Users(account.UserFilter{UserID: one.Identity.ID})[0].Sessions), "0")
		accessed, err := f.Store.AccessedEndpoints(t.Context(), f.AccountID, one.Identity.ID)
		Must(t, err)
		Equal(t, "accessed", len(accessed), 1)
		told := map[string]string{}
		for _, e := range f.audited().Events[:2] {
			told[e.Object.ID] = fmt.Sprint(e.Type, " ", e.Principal.ID, " ", e.Details["reason"], " ",
				e.Details["user_id"])
		}
		want := "application_session.revoked ak-admin revoked " + one.Identity.ID
		Equal(t, "told", fmt.Sprint(told[one.ID], told[two.ID]), want+want)
		again := f.NewLogin("alice", "s4")
		again.AuthTime = one.ExpiresAt.Add(-time.Hour)
		_, err = f.Store.Login(t.Context(), f.AccountID, again)
		MustCode(t, err, account.CodeLoginAgain)
		Equal(t, "again", len(f.revoke(account.RevokeSelector{SessionsOf: one.Identity.ID}).SessionIDs), 0)
		f.Clock.Step(2 * time.Minute)
		same := f.Login("alice", "s5", func(l *account.NewLogin) { l.ForceReauth = true })
		Equal(t, "the same user", same.Identity.ID, one.Identity.ID)
		other, _ := f.NewAccount("other")
		_, err = f.Store.Revoke(t.Context(), account.Caller{AccountID: other},
			account.RevokeSelector{SessionsOf: one.Identity.ID}, account.RevokedByAdmin)
		MustCode(t, err, account.CodeNotFound)
	},
	"revoke session: other sessions stay": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		one := f.Login("alice", "s1")
		f.Login("alice", "s2")
		done := f.revoke(account.RevokeSelector{SessionID: one.ID})
		Equal(t, "done", fmt.Sprint(done.UserIDs, done.SessionIDs), fmt.Sprint([]string(nil), []string{one.ID}))
		Equal(t, "live", fmt.Sprint(f.Lives("s1"), f.Lives("s2"), f.Users(account.UserFilter{})[0].Sessions),
			"false true 1")
		e := f.audited().Events[0]
		Equal(t, "told", fmt.Sprint(e.Type, e.Object.ID, e.Details),
			fmt.Sprint(account.AuditAppSessionRevoked, one.ID, map[string]string{"reason": account.RevokedByAdmin,
				"sessions": "1", "user_id": one.Identity.ID, "url": "https://app.example.com", "provider": "Example ID",
				"provider_user_id": "sub-alice"}))
		again := f.NewLogin("alice", "s3")
		_, err := f.Store.Login(t.Context(), f.AccountID, again)
		MustCode(t, err, account.CodeLoginAgain)
		_, err = f.Store.Revoke(t.Context(), account.Caller{AccountID: f.AccountID},
			account.RevokeSelector{SessionID: one.ID}, account.RevokedByAdmin)
		MustCode(t, err, account.CodeNotFound)
	},
	"revocation: provider must reauthenticate": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		start := f.Clock.Now()
		f.Clock.Step(time.Hour)
		f.revoke(account.RevokeSelector{UserID: f.Login("alice", "s1").Identity.ID})
		f.Clock.Step(10 * time.Minute)
		at := func(minutes float64) time.Time { return start.Add(time.Duration(minutes * float64(time.Minute))) }
		for name, c := range map[string]struct {
			began, asked time.Time
			fresh        bool
			want         account.Code
		}{
			"began before, asked before":               {at(59), at(30), false, account.CodeLoginAgain},
			"began before, asked after":                {at(59), at(65), false, account.CodeLoginAgain},
			"began before, told to ask":                {at(59), at(65), true, account.CodeLoginAgain},
			"began at the same instant":                {at(60), at(65), true, account.CodeLoginAgain},
			"no beginning: the provider's own idea":    {time.Time{}, at(65), false, account.CodeLoginAgain},
			"began after, asked before":                {at(61), at(59), false, account.CodeLoginAgain},
			"began after, asked after by a fast clock": {at(61), at(60.9), false, account.CodeLoginAgain},
			"began after, asked after":                 {at(61), at(61.1), false, ""},
			"began after, who knows when it asked":     {at(61), time.Time{}, false, account.CodeLoginAgain},
			"told to ask, who knows whether it did":    {at(61), time.Time{}, true, ""},
			"told to ask, and did":                     {at(61), at(62), true, ""},
		} {
			l := f.NewLogin("alice", name)
			l.StartedAt, l.AuthTime, l.ForceReauth = c.began, c.asked, c.fresh
			_, err := f.Store.Login(t.Context(), f.AccountID, l)
			if got := account.CodeOf(err); got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
		// not revoked
		f.Login("bob", "bob", func(l *account.NewLogin) { l.StartedAt, l.AuthTime = at(1), time.Time{} })
		other, _ := f.NewAccount("other")
		elsewhere := f.NewLogin("alice", "elsewhere")
		elsewhere.StartedAt = at(1)
		_, err := f.Store.Login(t.Context(), other, elsewhere)
		Must(t, err)
		again := f.NewLogin("alice", "again")
		again.StartedAt, again.AuthTime = at(60), time.Time{}
		f.Clock.Step(account.MaxSessionDuration - 10*time.Minute - time.Second)
		_, err = f.Store.Login(t.Context(), f.AccountID, again)
		Equal(t, "login in the longest life of a session", account.CodeOf(err), account.CodeLoginAgain)
		f.Clock.Step(time.Second)
		Must(t, f.Store.Sweep(t.Context()))
		_, err = f.Store.Login(t.Context(), f.AccountID, again)
		Must(t, err)
	},
	"provider logout: ends named sessions and pending logins": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		before := f.Clock.Now()
		f.Clock.Step(time.Second)
		for _, secret := range []string{"a1", "a2", "unnamed"} {
			f.Login("alice", secret, func(l *account.NewLogin) { l.EndpointID = "ep-" + secret })
		}
		f.Login("alice", "none", func(l *account.NewLogin) { l.SessionID = "" })
		f.Login("bob", "b1")
		f.Login("alice", "elsewhere", func(l *account.NewLogin) { l.Issuer = "https://other.example" })
		logout := func(sel account.RevokeSelector) int {
			sel.Issuer = "https://id.example"
			return len(f.revoke(sel).SessionIDs)
		}
		lives := func() string {
			return fmt.Sprint(f.Lives("a1"), f.Lives("a2"), f.Lives("none"), f.Lives("b1"), f.Lives("elsewhere"))
		}
		underWay := func(who, secret string, want account.Code) {
			t.Helper()
			l := f.NewLogin(who, secret)
			l.StartedAt = before
			_, err := f.Store.Login(t.Context(), f.AccountID, l)
			MustCode(t, err, want)
		}
		Equal(t, "unknown", logout(account.RevokeSelector{ProviderSession: "sid-late"}), 0)
		underWay("carol", "late", account.CodeLoginAgain)
		underWay("carol", "in time", "")
		Equal(t, "of a session", logout(account.RevokeSelector{ProviderSession: "sid-a1"}), 1)
		Equal(t, "after one of a session", lives(), "false true true true true")
		// and the one of which it is not known
		Equal(t, "of a session and its subject",
			logout(account.RevokeSelector{ProviderSession: "sid-a2", Subject: "alice"}),
			2)
		Equal(t, "after that", lives()+fmt.Sprint(f.Lives("unnamed")), "false false false true truetrue")
		Equal(t, "a foreign subject's session",
			logout(account.RevokeSelector{ProviderSession: "sid-b1", Subject: "alice"}),
			0)
		Equal(t, "of a subject", logout(account.RevokeSelector{Subject: "alice"}), 1)
		Equal(t, "after one of a subject", lives(), "false false false true true")
		underWay("alice", "alice late", account.CodeLoginAgain)
		underWay("bob", "bob late", "")
		f.Clock.Step(time.Second)
		// the provider has asked of its own accord
		f.Login("alice", "back", func(l *account.NewLogin) { l.AuthTime = time.Time{} })
		_, err := f.Store.Revoke(t.Context(), account.Caller{AccountID: f.AccountID},
			account.RevokeSelector{Issuer: "https://id.example"}, "")
		MustCode(t, err, account.CodeInternal) // never all
	},
	"provider logout: sessions of its client only": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		before := f.Clock.Now()
		f.Clock.Step(time.Second)
		of := func(client string) func(*account.NewLogin) { return func(l *account.NewLogin) { l.Client = client } }
		for secret, client := range map[string]string{"a1": "ca", "a2": "ca", "c": "cc", "older": ""} {
			f.Login("alice", secret, of(client))
		}
		logout := func(client string) int {
			sel := account.RevokeSelector{Issuer: "https://id.example", Client: client, Subject: "alice"}
			return len(f.revoke(sel).SessionIDs)
		}
		Equal(t, "of one client", logout("cc"), 2)
		// older: its client was not kept
		left := fmt.Sprint(f.Lives("a1"), f.Lives("a2"), f.Lives("c"), f.Lives("older"))
		Equal(t, "left", left, "true true false false")
		for client, want := range map[string]account.Code{"ca": "", "cc": account.CodeLoginAgain} {
			l := f.NewLogin("alice", "under way at "+client)
			l.Client, l.StartedAt = client, before
			_, err := f.Store.Login(t.Context(), f.AccountID, l)
			MustCode(t, err, want)
		}
		Equal(t, "of the other", logout("ca"), 3)
	},
	"revocation: pending use restores nothing": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		live := f.Login("alice", "s1", func(l *account.NewLogin) { l.Idle = time.Hour })
		f.Clock.Step(5 * time.Minute)
		Equal(t, "lives", f.Lives("s1"), true)
		f.revoke(account.RevokeSelector{UserID: live.Identity.ID})
		Must(t, f.Store.Sweep(t.Context()))
		f.Restart()
		Equal(t, "after", fmt.Sprint(f.Lives("s1"), f.stillLive(live.ID), len(f.Users(account.UserFilter{})),
			len(f.Sessions(account.AppSessionFilter{}))), "false [false] 0 0")
	},
	"revocation: concurrent logins and uses restore nothing": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		second, err := open(f.opt)
		Must(t, err)
		defer func() { Must(t, second.Close()) }()
		first := f.Login("alice", "first", func(l *account.NewLogin) { l.Idle = 40 * time.Second })
		f.Clock.Step(30 * time.Second)
		began := f.Clock.Now()
		f.Clock.Step(time.Second)
		var all sync.WaitGroup
		begin := make(chan struct{})
		at := func(i int) *store.Store { return []*store.Store{f.Store, second}[i%2] }
		for i := range 12 {
			l := f.NewLogin("alice", fmt.Sprint(i))
			l.StartedAt, l.ForceReauth = began, true
			all.Go(func() {
				<-begin
				if _, err := at(i).Login(t.Context(), f.AccountID, l); err != nil &&
					account.CodeOf(err) != account.CodeLoginAgain {
					t.Errorf("logging in: %v", err)
				}
			})
			all.Go(func() {
				<-begin
				if _, err := at(i).LiveSession(t.Context(), f.AccountID, TokenHash("first")); err != nil &&
					account.CodeOf(err) != account.CodeNotFound {
					t.Errorf("using: %v", err)
				}
				if err := at(i).Sweep(t.Context()); err != nil {
					t.Errorf("sweeping: %v", err)
				}
			})
		}
		var done *account.Revocation
		all.Go(func() {
			<-begin
			var err error
			if done, err = second.Revoke(t.Context(), account.Caller{AccountID: f.AccountID},
				account.RevokeSelector{UserID: first.Identity.ID}, account.RevokedByAdmin); err != nil {
				t.Errorf("revoking: %v", err)
			} else if live, err := f.Store.LiveSessionIDs(t.Context(), done.SessionIDs); err != nil || len(live) != 0 {
				t.Errorf("live when it answers: %v, %v", live, err)
			}
		})
		close(begin)
		all.Wait()
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "sessions", len(f.Sessions(account.AppSessionFilter{})), 0)
		Equal(t, "users", len(f.Users(account.UserFilter{})), 0)
		for i := range 12 {
			Equal(t, "lives", f.Lives(fmt.Sprint(i)), false)
		}
	},
}
