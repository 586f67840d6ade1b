// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// TokenHash is the hash of a browser's secret.
func TokenHash(secret string) []byte {
	h := sha256.Sum256([]byte(secret))
	return h[:]
}

// NewLogin is a login of a person, that began and was confirmed just now, in a browser that keeps
// the secret.
func (f *Fixture) NewLogin(who, secret string) account.NewLogin {
	return account.NewLogin{
		Authentication: account.Authentication{
			Key:      "oidc\x00https://id.example\x00" + who,
			Provider: account.IdentityProvider{Name: "Example ID", URL: "https://id.example"},
			Identity: account.LoginIdentity{ProviderUserID: "sub-" + who, Username: who, Email: who + "@example.com",
				Name: strings.ToUpper(who), Groups: []string{"staff"}},
			Issuer: "https://id.example", Subject: who, SessionID: "sid-" + secret, AuthTime: f.Clock.Now()},
		StartedAt: f.Clock.Now(), EndpointID: "ep-1", URL: "https://app.example.com", Scope: "bound",
		TokenHash:   TokenHash(secret),
		MaxDuration: time.Hour,
		Device: account.Device{IPAddress: "203.0.113.9",
			UserAgent: account.UserAgent{Raw: "curl/8", BrowserName: "curl"}},
	}
}

// Login logs a person in, as adjusted, and fails the test when it is refused.
func (f *Fixture) Login(who, secret string, adjust ...func(*account.NewLogin)) *account.LiveSession {
	f.T.Helper()
	l := f.NewLogin(who, secret)
	for _, a := range adjust {
		a(&l)
	}
	got, err := f.Store.Login(f.ctx(), f.AccountID, l)
	Must(f.T, err)
	return got
}

// Lives reports whether the secret's session does.
func (f *Fixture) Lives(secret string) bool {
	f.T.Helper()
	_, err := f.Store.LiveSession(f.ctx(), f.AccountID, TokenHash(secret))
	if err != nil {
		MustCode(f.T, err, account.CodeNotFound)
	}
	return err == nil
}

// Sessions lists the sessions of the first account.
func (f *Fixture) Sessions(filter account.AppSessionFilter) []account.AppSession {
	f.T.Helper()
	all, more, err := f.Store.AppSessions(f.ctx(), f.AccountID, filter, account.Page{Limit: account.MaxPageLimit})
	Must(f.T, err)
	Equal(f.T, "more", more, false)
	return all
}

// Users lists the users of the first account.
func (f *Fixture) Users(filter account.UserFilter) []account.User {
	f.T.Helper()
	all, more, err := f.Store.Users(f.ctx(), f.AccountID, filter, account.Page{Limit: account.MaxPageLimit})
	Must(f.T, err)
	Equal(f.T, "more", more, false)
	return all
}

func names(users []account.User) string {
	all := make([]string, len(users))
	for i, u := range users {
		all[i] = u.Username
	}
	return strings.Join(all, " ")
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	Must(t, err)
	return string(text)
}

// logins tests the user, session and access that a login creates.
var logins = map[string]func(*testing.T, Open){
	"login: creates user, session and access": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		at := f.Clock.Now()
		country, radius := "US", 5
		l := f.NewLogin("alice", "s1")
		l.Device.Location, l.Device.Network = &account.Location{CountryCode: &country, RadiusKM: &radius},
			&account.Network{ASN: 64500, Organization: "Example"}
		l.Identity.Attributes = map[string][]string{"team": {"blue"}}
		made, err := f.Store.Login(t.Context(), f.AccountID, l)
		Must(t, err)
		Equal(t, "ids", account.ValidID(account.PrefixAppSession, made.ID) && account.ValidID(account.PrefixUser,
			made.Identity.ID), true)
		read, err := f.Store.LiveSession(t.Context(), f.AccountID, TokenHash("s1"))
		Must(t, err)
		Equal(t, "live session", asJSON(t, read), asJSON(t, made))
		want := l.Identity
		want.ID = made.Identity.ID
		Equal(t, "identity", asJSON(t, read.Identity), asJSON(t, want))
		Equal(t, "bound, provider, end", fmt.Sprint(read.Scope, read.Provider, read.ExpiresAt),
			fmt.Sprint("bound", l.Provider, at.Add(time.Hour)))
		u, err := f.Store.User(t.Context(), f.AccountID, made.Identity.ID)
		Must(t, err)
		Equal(t, "user", *u, account.User{ID: made.Identity.ID, Provider: l.Provider, ProviderUserID: "sub-alice",
			Username: "alice", Email: "alice@example.com", Name: "ALICE",
			CreatedAt: at, LastActive: at, LastLogin: at, Sessions: 1})
		a, err := f.Store.AppSession(t.Context(), f.AccountID, made.ID)
		Must(t, err)
		Equal(t, "session", asJSON(t, a),
			asJSON(t, account.AppSession{ID: made.ID, PublicURL: l.URL, Device: l.Device, LastDevice: l.Device,
				User:       account.Ref{ID: made.Identity.ID},
				CreatedAt:  at,
				LastActive: at, ExpiresAt: at.Add(time.Hour), Endpoint: &account.Ref{ID: "ep-1"}}))
		accessed, err := f.Store.AccessedEndpoints(t.Context(), f.AccountID, made.Identity.ID)
		Must(t, err)
		Equal(t, "accessed", asJSON(t, accessed),
			asJSON(t, []account.AccessedEndpoint{{URL: l.URL, Endpoint: &account.Ref{ID: "ep-1"}, First: at,
				Last: at}}))
		e := f.audited().Events[0]
		Equal(t, "told", fmt.Sprint(e.Type, e.Object.ID, e.Principal.ID, e.Details["provider_user_id"]),
			fmt.Sprint(account.AuditAppSessionCreated, made.ID, made.Identity.ID, "sub-alice"))
	},
	"login: replaces the browser's session": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first := f.Login("alice", "s1")
		elsewhere := f.Login("alice", "s2", func(l *account.NewLogin) { l.Scope = "elsewhere" })
		f.Clock.Step(time.Second)
		second := f.Login("bob", "s3", func(l *account.NewLogin) { l.Replaces = TokenHash("s1") })
		Equal(t, "replaced", second.ReplacedSessionID, first.ID)
		Equal(t, "live", fmt.Sprint(f.Lives("s1"), f.Lives("s2"), f.Lives("s3")), "false true true")
		e := f.audited().Events[1]
		Equal(t, "told", fmt.Sprint(e.Type, e.Object.ID, e.Principal.ID, e.Details["reason"], e.Details["user_id"]),
			fmt.Sprint(account.AuditAppSessionRevoked, first.ID, second.Identity.ID, account.RevokedByNewLogin,
				first.Identity.ID))
		for _, of := range []string{"s1", "s2", "unknown"} { // over, of another scope, unknown
			third := f.Login("alice", "after "+of, func(l *account.NewLogin) { l.Replaces = TokenHash(of) })
			Equal(t, "replaced of "+of, third.ReplacedSessionID, "")
		}
		Equal(t, "elsewhere", f.stillLive(elsewhere.ID)[0], true)
	},
	"login: one user per identity key": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		first := f.Login("alice", "s1")
		f.Clock.Step(time.Minute)
		again := f.Login("alice", "s2", func(l *account.NewLogin) {
			l.Identity.Username, l.Identity.Email, l.Provider.Name, l.URL, l.EndpointID = "Alicia", "", "Renamed ID",
				"https://other.example.com", "ep-2"
		})
		Equal(t, "user of the second login", again.Identity.ID, first.Identity.ID)
		stranger := f.Login("mallory", "s3", func(l *account.NewLogin) {
			l.Identity.ProviderUserID, l.Identity.Email = "sub-alice", "alice@example.com"
		})
		if stranger.Identity.ID == first.Identity.ID || again.ID == first.ID {
			t.Fatal("two share an id")
		}
		u, err := f.Store.User(t.Context(), f.AccountID, first.Identity.ID)
		Must(t, err)
		Equal(t, "user", fmt.Sprint(u.Username, u.Email, u.Provider.Name, u.Sessions, u.LastLogin,
			u.CreatedAt.Before(u.LastLogin)),
			fmt.Sprint("Alicia", "", "Renamed ID", 2, f.Clock.Now(), true))
		accessed, err := f.Store.AccessedEndpoints(t.Context(), f.AccountID, first.Identity.ID)
		Must(t, err)
		Equal(t, "accessed", fmt.Sprint(len(accessed), accessed[0].URL, accessed[1].URL),
			fmt.Sprint(2, "https://other.example.com", "https://app.example.com"))
		other, _ := f.NewAccount("other")
		theirs, err := f.Store.Login(t.Context(), other, f.NewLogin("alice", "s4"))
		Must(t, err)
		if theirs.Identity.ID == first.Identity.ID {
			t.Fatal("two accounts share a user")
		}
	},
	"login: identities of other accounts not found": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		mine := f.Login("alice", "s1")
		other, _ := f.NewAccount("other")
		by := account.Caller{AccountID: other}
		_, err := f.Store.LiveSession(t.Context(), other, TokenHash("s1"))
		MustCode(t, err, account.CodeNotFound)
		for _, id := range []string{mine.Identity.ID, mine.ID, "", "au-'; --", "a\x00b", "\xff"} {
			_, err = f.Store.User(t.Context(), other, id)
			MustCode(t, err, account.CodeNotFound)
			_, err = f.Store.AppSession(t.Context(), other, id)
			MustCode(t, err, account.CodeNotFound)
			_, err = f.Store.AccessedEndpoints(t.Context(), other, id)
			MustCode(t, err, account.CodeNotFound)
			if id != "" {
				_, err = f.Store.Revoke(t.Context(), by, account.RevokeSelector{UserID: id}, account.RevokedByAdmin)
				MustCode(t, err, account.CodeNotFound)
				_, err = f.Store.Revoke(t.Context(), by, account.RevokeSelector{SessionID: id}, account.RevokedByAdmin)
				MustCode(t, err, account.CodeNotFound)
			}
			sessions, _, err := f.Store.AppSessions(t.Context(), other, account.AppSessionFilter{UserID: id},
				account.Page{BeforeID: id})
			Must(t, err)
			users, _, err := f.Store.Users(t.Context(), other, account.UserFilter{UserID: id},
				account.Page{BeforeID: id})
			Must(t, err)
			Equal(t, "listed", len(sessions)+len(users), 0)
		}
		done, err := f.Store.Revoke(t.Context(), by,
			account.RevokeSelector{Issuer: "https://id.example", Subject: "alice"},
			account.RevokedByBackChannel)
		Must(t, err)
		Equal(t, "sessions of a foreign logout", len(done.SessionIDs), 0)
		providers, err := f.Store.IdentityProviders(t.Context(), other)
		Must(t, err)
		Equal(t, "providers", len(providers), 0)
		Equal(t, "mine", f.Lives("s1"), true)
	},
	"login: session limit ends the least used": func(t *testing.T, open Open) {
		const most = 3
		f := NewFixture(t, open, func(o *store.Options) { o.MaxUserSessions = most })
		f.Login("bob", "other")
		var all []*account.LiveSession
		for i := range most + 1 {
			f.Clock.Step(time.Second)
			all = append(all, f.Login("alice", fmt.Sprint(i)))
		}
		Equal(t, "sessions",
			len(f.Sessions(account.AppSessionFilter{UserID: f.Users(account.UserFilter{Query: "alice"})[0].ID})), most)
		Equal(t, "first, second, last, another's",
			fmt.Sprint(f.Lives("0"), f.Lives("1"), f.Lives(fmt.Sprint(most)), f.Lives("other")), "false true true true")
		events := f.audited().Events
		Equal(t, "ends", strings.Count(fmt.Sprint(events), string(account.AuditAppSessionRevoked)), 1)
		Equal(t, "told last", fmt.Sprint(events[0].Type, events[0].Object.ID),
			fmt.Sprint(account.AuditAppSessionCreated, all[most].ID))
		e := events[1]
		Equal(t, "told", fmt.Sprint(e.Type, e.Object.ID, e.Principal.ID, e.Details),
			fmt.Sprint(account.AuditAppSessionRevoked, all[0].ID, all[0].Identity.ID,
				map[string]string{"reason": account.RevokedByLimit, "sessions": "1", "user_id": all[0].Identity.ID,
					"url": "https://app.example.com", "provider": "Example ID",
					"provider_user_id": "sub-alice"}))
	},
	"login: invalid requests refused": func(t *testing.T, open Open) {
		f := NewFixture(t, open, func(o *store.Options) { o.MaxUsers = 1 })
		f.Login("alice", "s1")
		_, err := f.Store.Login(t.Context(), f.AccountID, f.NewLogin("bob", "s2"))
		MustCode(t, err, account.CodeLimit)
		f.Login("alice", "s3")
		large, over := f.NewLogin("alice", "s4"), f.NewLogin("alice", "s5")
		large.Identity.Groups = []string{strings.Repeat("g", account.MaxIdentity)}
		_, err = f.Store.Login(t.Context(), f.AccountID, large)
		MustCode(t, err, account.CodeLoginFailed)
		over.NotAfter = f.Clock.Now()
		_, err = f.Store.Login(t.Context(), f.AccountID, over)
		MustCode(t, err, account.CodeLoginFailed)
		Equal(t, "sessions", len(f.Sessions(account.AppSessionFilter{})), 2)
	},
	"login: provider texts sanitised": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		odd := "a\x00b\xff\n" + strings.Repeat("ü", 300)
		live := f.Login("alice", "s1", func(l *account.NewLogin) {
			l.Identity = account.LoginIdentity{ProviderUserID: odd, Username: odd, Email: odd, Name: odd}
			l.Provider.Name, l.Subject, l.Issuer, l.SessionID, l.Device.UserAgent.Raw = odd, odd, odd, odd, odd
		})
		u, err := f.Store.User(t.Context(), f.AccountID, live.Identity.ID)
		Must(t, err)
		Equal(t, "name", u.Name, "a\uFFFDb\uFFFD\n"+strings.Repeat("ü", 250))
		Equal(t, "found", len(f.Users(account.UserFilter{Query: "Ü"})), 1)
		done, err := f.Store.Revoke(t.Context(), account.Caller{AccountID: f.AccountID},
			account.RevokeSelector{Issuer: odd, Subject: odd}, account.RevokedByBackChannel)
		Must(t, err)
		Equal(t, "revoked", len(done.SessionIDs), 1)
	},
}
