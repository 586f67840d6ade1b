// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// from is a login at the URL from the address; country is "" where it is not known.
func from(url, address, country string) func(*account.NewLogin) {
	return func(l *account.NewLogin) {
		l.URL, l.Device.IPAddress, l.EndpointID = url, address, "ep-"+url[8:11]
		l.Device.UserAgent.Raw = `"ip_address":"192.0.2.1","location":{"country_code":"FR"}`
		if country != "" {
			l.Device.Location = &account.Location{CountryCode: &country}
		}
	}
}

// accessFilters tests lists of users and sessions by endpoint, address, country and activity.
var accessFilters = map[string]func(*testing.T, Open){
	"access filter: endpoint, address and country": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.Login("alice", "a1", from("https://app.example.com", "203.0.113.9", "DE"))
		f.Login("alice", "a2", from("https://wiki.example.com", "2001:db8::7", "US"))
		f.Clock.Step(time.Second)
		gone := f.Login("bob", "b1", from("https://wiki.example.com", "203.0.113.90", "DE"))
		f.Login("bob", "b2", from("https://app.example.com", "198.51.100.7", ""))
		f.revoke(account.RevokeSelector{SessionID: gone.ID})
		f.Clock.Step(time.Second)
		f.Login("carol", "c1", from("https://other.example.com", "203.0.113.90", "CH"))
		for _, c := range []struct {
			filter   account.AccessFilter
			users    string
			sessions int
		}{
			{account.AccessFilter{}, "carol bob alice", 4},
			{account.AccessFilter{Endpoint: "WIKI"}, "bob alice", 1}, // bob was there
			{account.AccessFilter{Endpoint: "ep-app"}, "bob alice", 2},
			{account.AccessFilter{Endpoint: "ep-ap"}, "", 0},
			{account.AccessFilter{Endpoint: "%"}, "", 0},
			{account.AccessFilter{IP: "203.0.113.9"}, "alice", 1}, // a whole address, and not what begins with it
			{account.AccessFilter{IP: "203.0.113."}, "carol alice", 2},
			{account.AccessFilter{IP: "2001:DB8:0::7"}, "alice", 1},
			{account.AccessFilter{IP: "2001:DB8:"}, "alice", 1},
			{account.AccessFilter{IP: "192.0.2.1"}, "", 0}, // in the User-Agent only
			{account.AccessFilter{Country: "de"}, "alice", 1},
			{account.AccessFilter{Country: "FR"}, "", 0},
			{account.AccessFilter{Endpoint: "app", Country: "DE"}, "alice", 1},
			{account.AccessFilter{Endpoint: "wiki", Country: "DE"}, "", 0}, // of one and the same session
			{account.AccessFilter{IP: "198.51.100.7", Endpoint: "app"}, "bob", 1},
		} {
			Equal(t, fmt.Sprintf("users of %+v", c.filter), names(f.Users(account.UserFilter{AccessFilter: c.filter})),
				c.users)
			Equal(t, fmt.Sprintf("sessions of %+v", c.filter),
				len(f.Sessions(account.AppSessionFilter{AccessFilter: c.filter})), c.sessions)
		}
		other, _ := f.NewAccount("other")
		for accountID, want := range map[string]string{
			f.AccountID: "[https://app.example.com https://other.example.com https://wiki.example.com] [CH DE US]",
			other:       "[] []",
		} {
			choices, err := f.Store.AccessChoices(t.Context(), accountID)
			Must(t, err)
			Equal(t, "choices", fmt.Sprint(choices.Endpoints, choices.Countries), want)
		}
	},
	"access filter: ended sessions ignored": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.Login("alice", "a1", from("https://app.example.com", "203.0.113.9", "DE"))
		f.Clock.Step(time.Hour)
		Equal(t, "by country", names(f.Users(account.UserFilter{AccessFilter: account.AccessFilter{Country: "DE"}})),
			"")
		Equal(t, "by endpoint", names(f.Users(account.UserFilter{AccessFilter: account.AccessFilter{Endpoint: "app"}})),
			"alice")
		choices, err := f.Store.AccessChoices(t.Context(), f.AccountID)
		Must(t, err)
		Equal(t, "countries", len(choices.Countries), 0)
	},
	"users by activity: pages": func(t *testing.T, open Open) {
		f := NewFixture(t, open)
		f.Login("first", "s1")
		f.Login("second", "s2")
		f.Clock.Step(time.Minute)
		f.Login("third", "s3")
		f.Clock.Step(time.Minute)
		f.Login("first", "s4")
		f.Login("second", "s5") // of the same instant
		var got []string
		for p, filter, more := (account.Page{Limit: 1}), (account.UserFilter{ByActivity: true}), true; more; {
			var page []account.User
			var err error
			page, more, err = f.Store.Users(t.Context(), f.AccountID, filter, p)
			Must(t, err)
			for _, u := range page {
				got, p.BeforeID, filter.ActiveBefore = append(got, u.Username), u.ID, u.LastActive
			}
		}
		slices.Sort(got[:2])
		Equal(t, "users", fmt.Sprint(got), "[first second third]")
		first, more, err := f.Store.Users(t.Context(), f.AccountID, account.UserFilter{}, account.Page{Limit: 1})
		Must(t, err)
		Equal(t, "the newest", names(first)+fmt.Sprint(more), "thirdtrue")
	},
}
