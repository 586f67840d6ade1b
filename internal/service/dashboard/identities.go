// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

const (
	identitiesNav  = "traffic-policy/identities" // the item of the menu
	identitiesPath = Path + identitiesNav
	sessionsPath   = Path + "traffic-policy/sessions/"
)

// sortLastActive is the value of sort with which the most recently active identities come first.
const sortLastActive = "last_active"

type usersPage struct {
	Query, Provider string
	Providers       []account.IdentityProvider
	Known           bool // the provider is one of Providers
	Rows            []account.User
	Pager           pager

	account.AccessFilter
	Endpoints  []string // endpoints that people have accessed
	Countries  []choice // countries of live sessions, and the selected one
	ByActivity bool     // the most recently active first
	Problem    string   // error in the filter; "" = it is valid

	Failed failedLogins
}

// choice is an option of a select.
type choice struct{ Value, Text string }

// Filtered reports whether a filter is set.
func (p usersPage) Filtered() bool { return p.Query != "" || p.Provider != "" || p.FilteredByAccess() }

// FilteredByAccess reports whether a filter is set that the page shows only on demand.
func (p usersPage) FilteredByAccess() bool { return p.AccessFilter != account.AccessFilter{} }

// Count returns how many identities are shown, in words.
func (p usersPage) Count() string {
	if p.ByActivity && p.Pager.More && p.Pager.First == "" {
		return "The " + count(p.Pager.Shown, "identity", "identities") + " that were active last"
	}
	return p.Pager.Count("identity", "identities")
}

// identityHandlers serve the pages of people who logged in at endpoints, and of their sessions.
type identityHandlers struct {
	identities account.Identities
	audit      account.AuditLog
	revoker    account.Revoker
	traffic    Traffic // traffic is nil where no failed logins are recorded.
	countries  countryNames
}

// list lists identities: those whose user, provider and IDs contain every word of the search.
func (h *identityHandlers) list(c *call) error {
	p := usersPage{Query: c.queryText("q"), Provider: c.queryText("provider"),
		ByActivity: c.queryEnum("sort", sortLastActive) != "",
		AccessFilter: account.AccessFilter{Endpoint: c.queryText("endpoint"), IP: c.queryText("ip"),
			Country: c.queryText("country")}}
	var err error
	if p.Providers, err = h.identities.IdentityProviders(c.Context(), c.AccountID()); err != nil {
		return err
	}
	for _, known := range p.Providers {
		p.Known = p.Known || known.Name == p.Provider
	}
	if err := h.addChoices(c, &p); err != nil {
		return err
	}
	filter, page := account.UserFilter{Query: p.Query, Provider: p.Provider, AccessFilter: p.AccessFilter,
		ByActivity: p.ByActivity}, c.page()
	if p.ByActivity {
		if filter.ActiveBefore, err = time.Parse(time.RFC3339Nano,
			c.Request.URL.Query().Get("before_active")); err != nil {
			page.BeforeID = "" // the position needs the time and the ID
		}
	}
	p.Failed = h.failedLogins(c)
	view := view{Page: "identities", Title: "Identities", Nav: identitiesNav, Live: "audit", Poll: true}
	if err := filter.Validate(); err != nil {
		labels := map[string]string{"endpoint": "The endpoint", "ip": "The IP address", "country": "The country"}
		p.Problem = labels[account.FieldsOf(err)[0].Field] + " " + account.FirstRule(err) + "."
		view.Data = p
		return c.show(http.StatusOK, view)
	}
	rows, more, err := h.identities.Users(c.Context(), c.AccountID(), filter, page)
	if err != nil {
		return err
	}
	p.Rows = rows
	p.addPager(c, more)
	view.Data = p
	return c.show(http.StatusOK, view)
}

// addChoices adds the options of the filters, unless a script refreshes the page: it does not
// replace the form.
func (h *identityHandlers) addChoices(c *call, p *usersPage) error {
	if c.isRefresh() {
		return nil
	}
	choices, err := h.identities.AccessChoices(c.Context(), c.AccountID())
	if err != nil {
		return err
	}
	p.Endpoints = choices.Endpoints
	known := p.Country == ""
	for _, code := range choices.Countries {
		p.Countries = append(p.Countries, choice{code, h.countries.name(code)})
		known = known || code == p.Country
	}
	if !known {
		p.Countries = append(p.Countries, choice{p.Country, h.countries.name(p.Country)})
	}
	return nil
}

func (p *usersPage) addPager(c *call, more bool) {
	filters := url.Values{"q": {p.Query}, "provider": {p.Provider}, "endpoint": {p.Endpoint}, "ip": {p.IP},
		"country": {p.Country}}
	if p.ByActivity {
		filters.Set("sort", sortLastActive)
	}
	p.Pager = pagerOf(c, p.Rows, more, userID, filters)
	if p.ByActivity {
		p.Pager.FirstText, p.Pager.NextText = "Last active", "Active before"
	}
	if p.ByActivity && p.Pager.Next != "" {
		last := p.Rows[len(p.Rows)-1]
		p.Pager.Next += "&" + url.Values{"before_active": {last.LastActive.UTC().Format(time.RFC3339Nano)}}.Encode()
	}
}

// maxLoginFailures is how many the page of identities shows.
const maxLoginFailures = 50

// failedLogins is the part of the page of identities about logins that failed.
type failedLogins struct {
	Kept     bool // the server keeps them
	Rows     []failedLogin
	Since    time.Time // when the recording began; zero = more than a day ago
	Missing  []string  // replicas that did not answer
	MayOlder bool      // older ones may be left out
}

// failedLogin is a login that failed, as the page shows it.
type failedLogin struct{ traffic.LoginFailure }

// Why returns the reason for the owner, else what the person was shown.
func (f failedLogin) Why() string { return cmp.Or(f.Reason, f.Shown, string(f.Code)) }

func (h *identityHandlers) failedLogins(c *call) (f failedLogins) {
	if h.traffic == nil {
		return f
	}
	rows, coverage := h.traffic.LoginFailures(c.Context(), c.AccountID(), maxLoginFailures)
	f = failedLogins{Kept: !coverage.Since.IsZero(), Missing: coverage.Missing,
		MayOlder: len(rows) >= maxLoginFailures}
	if c.now().Sub(coverage.Since) < 24*time.Hour {
		f.Since = coverage.Since
	}
	for _, row := range rows[:min(len(rows), maxLoginFailures)] {
		if !account.ValidID(account.PrefixEndpoint, row.EndpointID) {
			row.EndpointID = "" // no link leads there
		}
		f.Rows = append(f.Rows, failedLogin{row})
	}
	return f
}
