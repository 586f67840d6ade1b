// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// userLists tests pages, filters and search of users and sessions.
var userLists = map[string]func(*testing.T, Open){
	"users and sessions: pages, newest first": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		var userIDs, sessionIDs []string
		for i := range 5 {
			live := f.Login(fmt.Sprint("u", i), fmt.Sprint("s", i))
			f.Clock.Step(time.Second)
			userIDs, sessionIDs = append(userIDs, live.Identity.ID), append(sessionIDs, live.ID)
		}
		var users, sessions []string
		for p, more := (account.Page{Limit: 2}), true; more; {
			var page []account.User
			var err error
			page, more, err = f.Store.Users(t.Context(), f.AccountID, account.UserFilter{}, p)
			Must(t, err)
			for _, u := range page {
				users, p.BeforeID = append([]string{u.ID}, users...), u.ID
			}
		}
		for p, more := (account.Page{Limit: 2}), true; more; {
			var page []account.AppSession
			var err error
			page, more, err = f.Store.AppSessions(t.Context(), f.AccountID, account.AppSessionFilter{}, p)
			Must(t, err)
			for _, a := range page {
				sessions, p.BeforeID = append([]string{a.ID}, sessions...), a.ID
			}
		}
		Equal(t, "users", fmt.Sprint(users), fmt.Sprint(userIDs))
		Equal(t, "sessions", fmt.Sprint(sessions), fmt.Sprint(sessionIDs))
	},
	"user search: by name": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		alice := f.Login("alice", "s1", func(l *account.NewLogin) {
			l.Identity.Name, l.Identity.Email = "Älice 100%", "A_L@Example.com"
		})
		f.Clock.Step(time.Second)
		f.Login("bob", "s2", func(l *account.NewLogin) {
			l.Provider, l.Identity.ProviderUserID, l.Identity.Email = account.IdentityProvider{Name: "GitHub",
				URL: "https://github.com"}, `42\`, "axl@example.com"
		})
		for _, c := range []struct {
			filter account.UserFilter
			want   string
		}{
			{account.UserFilter{}, "bob alice"},
			{account.UserFilter{Query: "ALI"}, "alice"},
			{account.UserFilter{Query: "älice"}, "alice"},
			{account.UserFilter{Query: "100%"}, "alice"},
			{account.UserFilter{Query: "%"}, "alice"},
			{account.UserFilter{Query: "a_l@"}, "alice"},
			{account.UserFilter{Query: "example.COM"}, "bob alice"},
			{account.UserFilter{Query: `42\`}, "bob"},
			{account.UserFilter{Query: alice.Identity.ID[5:20]}, "alice"},
			{account.UserFilter{Query: "github"}, "bob"},
			{account.UserFilter{Provider: "git"}, "bob"},
			{account.UserFilter{Provider: "Example"}, "alice"},
			{account.UserFilter{Provider: "Example", Query: "bob"}, ""},
			{account.UserFilter{UserID: alice.Identity.ID}, "alice"},
			{account.UserFilter{UserID: alice.Identity.ID[:20]}, ""},
			{account.UserFilter{Query: "a\x00b"}, ""},
			{account.UserFilter{Query: "'; DROP TABLE app_users; --"}, ""},
		} {
			Equal(t, fmt.Sprintf("%+v", c.filter), names(f.Users(c.filter)), c.want)
		}
		providers, err := f.Store.IdentityProviders(t.Context(), f.AccountID)
		Must(t, err)
		Equal(t, "providers", fmt.Sprint(providers), "[{Example ID https://id.example} {GitHub https://github.com}]")
	},
	"user search: word order, case and accents ignored": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		alice := f.Login("alice", "s1", func(l *account.NewLogin) {
			l.Provider.Name, l.Identity.Name = "Google", "Alice Ødegård"
			l.Identity.Email, l.URL = "alice@example.com", "https://wiki.example.com"
		})
		f.Clock.Step(time.Second)
		f.Login("opal", "s2", func(l *account.NewLogin) {
			l.Identity.Name, l.URL = "Opal Straße", "https://shop.example.com"
		})
		f.Clock.Step(time.Second)
		f.Login("bob", "s3", func(l *account.NewLogin) {
			l.Provider.Name, l.Identity.Name, l.Identity.Email = "opa.localhost", "Bob Łukasz İnce", "ＲＯＢ@x"
			l.URL = "https://shop.example.com"
		})
		for query, want := range map[string]string{
			"opa": "bob opal", "google": "alice", "GOOGLE alice": "alice", "alice google": "alice", "alice opa": "",
			"ODEG": "alice", "ødegård": "alice", "O\u0308degard": "alice",
			"odegard alice GOOG " + alice.Identity.ID[4:]: "alice",
			"strasse": "opal", "STRASSE opal": "opal", "lukasz ince": "bob",
			"bob": "bob", "rob@": "bob",
			"  bob\tlocalhost ": "bob",
			"alice\nodegard":    "alice", "%": "", "_": "", `\`: "", " ": "bob opal alice",
		} {
			Equal(t, query, names(f.Users(account.UserFilter{Query: query})), want)
		}
		Equal(t, "provider", names(f.Users(account.UserFilter{Provider: "ÓPA"})), "bob")
		for query, want := range map[string]int{
			"shop opa": 2, "WIKI odegard google": 1, "wiki opa": 0, "203.0.113 shop bob": 1,
		} {
			Equal(t, "sessions of "+query, len(f.Sessions(account.AppSessionFilter{Query: query})), want)
		}
	},
	"session search: by user, provider, URL and address": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		alice := f.Login("alice", "s1")
		f.Login("alice", "s2", func(l *account.NewLogin) {
			l.URL, l.Device.IPAddress = "https://Wiki.example.com", "2001:DB8::7"
		})
		f.Login("bob", "s3", func(l *account.NewLogin) { l.Provider.Name = "GitHub" })
		for _, c := range []struct {
			filter account.AppSessionFilter
			want   int
		}{
			{account.AppSessionFilter{}, 3},
			{account.AppSessionFilter{UserID: alice.Identity.ID}, 2},
			{account.AppSessionFilter{UserID: alice.Identity.ID, Query: "WIKI"}, 1},
			{account.AppSessionFilter{UserID: alice.Identity.ID, Provider: "github"}, 0},
			{account.AppSessionFilter{Query: "ALICE@"}, 2},
			{account.AppSessionFilter{Query: "2001:db8"}, 1},
			{account.AppSessionFilter{Query: "203.0.113"}, 2},
			{account.AppSessionFilter{Provider: "GITHUB"}, 1},
			{account.AppSessionFilter{Query: "nobody"}, 0},
		} {
			Equal(t, fmt.Sprintf("%+v", c.filter), len(f.Sessions(c.filter)), c.want)
		}
	},
}
