// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

var userAgents = []account.UserAgent{
	{Raw: "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 " +
		"Safari/537.36", BrowserName: "Chrome", BrowserVersion: "142", DeviceType: "Desktop", OSName: "macOS",
		OSVersion: "10.15.7"},
	{Raw: "Mozilla/5.0 (iPhone; CPU iPhone OS 19_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) " +
		"Version/19.1 " +
		"Mobile/15E148 Safari/604.1", BrowserName: "Safari", BrowserVersion: "19.1", DeviceType: "Mobile",
		OSName:    "iOS",
		OSVersion: "19.1"},
	{Raw: "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0", BrowserName: "Firefox",
		BrowserVersion: "145", DeviceType: "Desktop", OSName: "Linux"},
}

// addPeople adds those who logged in, from four providers.
func (f *fake) addPeople() {
	google := account.IdentityProvider{Name: "Google", URL: "https://accounts.google.com"}
	github := account.IdentityProvider{Name: "GitHub", URL: "https://github.com"}
	own := account.IdentityProvider{Name: "login.example.com", URL: "https://login.example.com"}
	saml := account.IdentityProvider{Name: "https://idp.partner.example/metadata",
		URL: "https://idp.partner.example/metadata"}
	for i, p := range []struct {
		name, user, email, id string
		provider              account.IdentityProvider
		sessions              int
	}{
		{"Alice Amari", "alice", "alice@example.com", "107834512098", google, 3},
		{"Bob Brandt", "bob", "bob@example.com", "110293847561", google, 1},
		{"Chiara Conti", "cconti", "chiara@example.com", "00u1a2b3c4", own, 2},
		{"Dmitri Denisov", "ddenisov", "dmitri@partner.example", "ddenisov@partner.example", saml, 1},
		{"", "erin-dev", "", "5829013", github, 1},
		{"Farid Farouk", "farid", "farid.farouk.with.a.rather.long.address@subsidiary.example.com", "00u9z8y7x6", own,
			0},
		{"Grace Grünwald", "grace", "grace@example.com", "118273645509", google, 1},
		{"Hiroshi Honda", "hiroshi", "hiroshi@partner.example", "hhonda@partner.example", saml, 0},
	} {
		age := time.Duration(i*i*11+1) * 24 * time.Hour / 2
		active := time.Duration(i*i*13+2) * time.Minute
		u := account.User{ID: f.id(account.PrefixUser, age, i+1), Provider: p.provider, ProviderUserID: p.id,
			Username: p.user, Email: p.email, Name: p.name,
			CreatedAt: ago(f, age), LastActive: ago(f, active), LastLogin: ago(f, active+3*time.Hour),
			Sessions: p.sessions}
		f.users, f.owner[u.ID] = append(f.users, u), mine
		app, reports := f.endpoints[4], f.endpoints[5]
		f.visited[u.ID] = []account.AccessedEndpoint{{URL: app.URL, Endpoint: &account.Ref{ID: app.ID},
			First: u.CreatedAt,
			Last:  u.LastActive}}
		if i%2 == 0 {
			f.visited[u.ID] = append(f.visited[u.ID],
				account.AccessedEndpoint{URL: reports.URL, Endpoint: &account.Ref{ID: reports.ID},
					First: ago(f, age/2), Last: ago(f, active*3)})
		}
		for n := range p.sessions {
			f.addSession(u, i, n, app.URL, app.ID)
		}
	}
}

func (f *fake) addSession(u account.User, person, n int, url, endpointID string) {
	age := time.Duration(n*n*5+person+2) * time.Hour
	s := account.AppSession{ID: f.id(account.PrefixAppSession, age, person*10+n+1), PublicURL: url,
		User: account.Ref{ID: u.ID}, Endpoint: &account.Ref{ID: endpointID},
		CreatedAt: ago(f, age), LastActive: ago(f, time.Duration(n*n*17+3)*time.Minute),
		ExpiresAt: f.now.Add(time.Duration(9-n*4) * 24 * time.Hour),
		Device: account.Device{UserAgent: userAgents[n%len(userAgents)],
			IPAddress: []string{"203.0.113.90", "2001:db8:77:1::2b", "198.51.100.33"}[n%3],
			Location: &account.Location{CountryCode: new("DE"), Latitude: new(52.52), Longitude: new(13.4),
				RadiusKM: new(20)},
			Network: &account.Network{ASN: 64500, Organization: "Example Telecom"}}}
	if n == 2 {
		s.Device.Location, s.Device.Network = nil, nil
	}
	if s.LastDevice = s.Device; n == 1 {
		s.LastDevice.IPAddress, s.DeviceChangedAt = "192.0.2.77", new(ago(f, 20*time.Minute))
		s.LastDevice.Location = &account.Location{CountryCode: new("BR")}
	}
	f.sessions, f.owner[s.ID] = append(f.sessions, s), mine
}
