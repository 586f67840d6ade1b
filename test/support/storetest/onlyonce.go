// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// onlyOnce tests keys and tickets that can be used once.
var onlyOnce = map[string]func(*testing.T, Open){
	"UseOnce: first use until it expires": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, _ := f.NewAccount("other")
		until := f.Clock.Now().Add(time.Minute)
		once := func(accountID, key string, until time.Time) bool {
			first, err := f.Store.UseOnce(t.Context(), accountID, key, until)
			Must(t, err)
			return first
		}
		Equal(t, "first, second, another key, another account",
			fmt.Sprint(once(f.AccountID, "k", until), once(f.AccountID, "k", until.Add(time.Hour)),
				once(f.AccountID, "l", until), once(other, "k", until)),
			"true false true true")
		Equal(t, "of the past", fmt.Sprint(once(f.AccountID, "m", f.Clock.Now()), once(f.AccountID, "m", time.Time{})),
			"false false")
		f.Clock.Step(time.Minute)
		Equal(t, "after its time", fmt.Sprint(once(f.AccountID, "k", f.Clock.Now().Add(time.Minute)),
			once(f.AccountID, "k", f.Clock.Now().Add(time.Minute))), "true false")
		Must(t, f.Store.Sweep(t.Context()))
		Equal(t, "after a sweep", once(f.AccountID, "k", f.Clock.Now().Add(time.Minute)), false)
	},
	"ticket: redeemed once, in time, in its account": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		other, _ := f.NewAccount("other")
		put := func(secret string) {
			Must(t, f.Store.SaveTicket(t.Context(), f.AccountID, TokenHash(secret), []byte("data of "+secret),
				f.Clock.Now().Add(time.Minute)))
		}
		put("a")
		put("b")
		_, err := f.Store.RedeemTicket(t.Context(), other, TokenHash("a"))
		MustCode(t, err, account.CodeNotFound)
		data, err := f.Store.RedeemTicket(t.Context(), f.AccountID, TokenHash("a"))
		Must(t, err)
		Equal(t, "data", string(data), "data of a")
		f.Clock.Step(time.Minute)
		for _, secret := range []string{"a", "b", "c"} { // taken, too old, unknown
			_, err = f.Store.RedeemTicket(t.Context(), f.AccountID, TokenHash(secret))
			MustCode(t, err, account.CodeNotFound)
		}
		Must(t, f.Store.Sweep(t.Context()))
	},
	"provider logout: replay key used after the sessions ended": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.Login("alice", "s1")
		by := account.Caller{AccountID: f.AccountID, PrincipalID: "https://id.example"}
		sel := account.RevokeSelector{Issuer: "https://id.example", Subject: "alice", ReplayKey: "word",
			ReplayUntil: f.Clock.Now().Add(time.Minute)}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := f.Store.Revoke(gone, by, sel, account.RevokedByBackChannel)
		Equal(t, "failed, and the session lives", fmt.Sprint(err != nil, f.Lives("s1")), "true true")
		done, err := f.Store.Revoke(t.Context(), by, sel, account.RevokedByBackChannel)
		Must(t, err)
		Equal(t, "ended", len(done.SessionIDs), 1)
		f.Clock.Step(time.Second)
		f.Login("alice", "s2", func(l *account.NewLogin) { l.StartedAt = f.Clock.Now() })
		_, err = f.Store.Revoke(t.Context(), by, sel, account.RevokedByBackChannel)
		MustCode(t, err, account.CodeLoginFailed)
		sel.ReplayKey = "another word, too old"
		f.Clock.Step(time.Minute)
		_, err = f.Store.Revoke(t.Context(), by, sel, account.RevokedByBackChannel)
		MustCode(t, err, account.CodeLoginFailed)
		Equal(t, "the next one lives", f.Lives("s2"), true)
	},
	"concurrent single use: one succeeds": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		second, err := open(f.opt)
		Must(t, err)
		defer func() { Must(t, second.Close()) }()
		until := f.Clock.Now().Add(time.Minute)
		Must(t, f.Store.SaveTicket(t.Context(), f.AccountID, TokenHash("ticket"), []byte("data"), until))
		var firsts, taken atomic.Int32
		var all sync.WaitGroup
		for i := range 16 {
			through := []*store.Store{f.Store, second}[i%2]
			all.Go(func() {
				first, err := through.UseOnce(t.Context(), f.AccountID, "assertion", until)
				if err != nil {
					t.Errorf("using: %v", err)
				}
				if first {
					firsts.Add(1)
				}
				switch data, err := through.RedeemTicket(t.Context(), f.AccountID, TokenHash("ticket")); account.CodeOf(
					err) {
				case "":
					taken.Add(int32(len(data)))
				case account.CodeNotFound:
				default:
					t.Errorf("taking: %v", err)
				}
			})
		}
		all.Wait()
		Equal(t, "firsts, taken", fmt.Sprint(firsts.Load(), taken.Load()), "1 4")
	},
}

// dashboardSessions tests sign-ins to the dashboard, which end with their API key.
var dashboardSessions = map[string]func(*testing.T, Open){
	"dashboard session: ends by time, key or sign-out": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		by := account.Caller{AccountID: f.AccountID}
		_, err := f.Store.CreateAPIKey(t.Context(), by, account.APIKeyPatch{}) // the last admin key stays
		Must(t, err)
		key, err := f.Store.CreateAPIKey(t.Context(), by, account.APIKeyPatch{Description: new("mine")})
		Must(t, err)
		over := func(secret string) {
			t.Helper()
			_, err := f.Store.DashboardSession(t.Context(), TokenHash(secret))
			MustCode(t, err, account.CodeUnknownCredential)
		}
		signIn := func(secret string) {
			t.Helper()
			made, err := f.Store.SignIn(t.Context(), key, TokenHash(secret))
			Must(t, err)
			read, err := f.Store.DashboardSession(t.Context(), TokenHash(secret))
			Must(t, err)
			Equal(t, "session", fmt.Sprint(read.Key.ID, read.ExpiresAt, read.Key.AccountID),
				fmt.Sprint(key.ID, made.ExpiresAt, f.AccountID))
			Equal(t, "end", made.ExpiresAt, f.Clock.Now().Add(account.DashboardLife))
		}
		over("unknown")
		signIn("a")
		signIn("b")
		Must(t, f.Store.SignOut(t.Context(), TokenHash("a")))
		Must(t, f.Store.SignOut(t.Context(), TokenHash("a")))
		over("a")
		f.Clock.Step(account.DashboardLife)
		over("b")
		Must(t, f.Store.Sweep(t.Context()))
		signIn("c")
		_, err = f.Store.PatchAPIKey(t.Context(), by, key.ID,
			account.APIKeyPatch{Scopes: &[]account.Scope{account.ScopeRead},
				Expiry: account.ExpiryPatch{Set: true, At: new(f.Clock.Now().Add(time.Hour))}})
		Must(t, err)
		read, err := f.Store.DashboardSession(t.Context(), TokenHash("c"))
		Must(t, err)
		Equal(t, "key as it is now", fmt.Sprint(read.Key.Scopes), "[read]")
		f.Clock.Step(time.Hour)
		over("c")
		_, err = f.Store.SignIn(t.Context(), key, TokenHash("d")) // read before it expired
		MustCode(t, err, account.CodeUnknownCredential)
		_, err = f.Store.PatchAPIKey(t.Context(), by, key.ID,
			account.APIKeyPatch{Expiry: account.ExpiryPatch{Set: true}})
		Must(t, err)
		signIn("e")
		Must(t, f.Store.DeleteAPIKey(t.Context(), by, key.ID))
		over("e")
		_, err = f.Store.SignIn(t.Context(), key, TokenHash("f"))
		MustCode(t, err, account.CodeUnknownCredential)
	},
}
