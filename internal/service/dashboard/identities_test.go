// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// rowsOf returns the names in the rows of a page of identities, in their order.
func rowsOf(a answer) []string {
	var names []string
	for _, m := range regexp.MustCompile(`<th scope="row"><a href="[^"]*">([^<]*)</a>`).FindAllStringSubmatch(a.body,
		-1) {
		names = append(names, strings.Fields(m[1])[0])
	}
	return names
}

func TestIdentities_FiltersAndOrder(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	f.sessions[0].Device.Location.CountryCode = new("CH")
	f.users[7].LastActive = f.now
	srv := dashboardOf(t, f, nil)
	b := signedInAs(t, srv, "flk_identities")
	for query, want := range map[string]string{
		"":                                       "Alice Bob Chiara Dmitri erin-dev Farid Grace Hiroshi",
		"sort=last_active":                       "Hiroshi Alice Bob Chiara Dmitri erin-dev Farid Grace",
		"country=CH":                             "Alice",
		"ip=2001:db8:":                           "Alice Chiara",
		"endpoint=reports":                       "Alice Chiara erin-dev Grace",
		"endpoint=reports&provider=Google":       "Alice Grace",
		"q=bob&country=CH":                       "",
		"country=DE&ip=203.0.113.&sort=nonsense": "Bob Chiara Dmitri erin-dev Grace",
	} {
		if got := strings.Join(rowsOf(b.get(identitiesPath+"?"+query)), " "); got != want {
			t.Errorf("%s shows %s, want %s", query, got, want)
		}
	}
	a := b.get(identitiesPath + "?country=FR&ip=2001")
	for _, part := range []string{"No identity matches", `<option value="CH">Switzerland</option>`,
		`<option value="FR" selected>France</option>`, `value="2001"`, `class="more" open`,
		`<option value="https://app.example.com"></option>`} {
		if !strings.Contains(a.body, part) {
			t.Errorf("filters without a match: the page lacks %s", part)
		}
	}
	for query, text := range map[string]string{"country=Germany": "The country must be",
		"ip=nonsense": "The IP address must be"} {
		if a := b.get(identitiesPath + "?" + query); a.status != http.StatusOK || !strings.Contains(a.body, text) ||
			len(rowsOf(a)) != 0 {
			t.Errorf("%s: %d, without %q", query, a.status, text)
		}
	}
}

func TestIdentities_PagesByActivity(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	for i := range 60 { // the older ones were active later
		age := time.Duration(100+i) * time.Hour
		u := account.User{ID: f.id(account.PrefixUser, age, 100+i), Name: fmt.Sprintf("P%02d", i),
			LastActive: ago(f, time.Duration(200-i)*time.Hour)}
		f.users, f.owner[u.ID] = append(f.users, u), mine
	}
	srv := dashboardOf(t, f, nil)
	b := signedInAs(t, srv, "flk_identities")
	first := b.get(identitiesPath + "?sort=last_active&q=p")
	next := regexp.MustCompile(`href="([^"]*)" rel="next">Active before`).FindStringSubmatch(first.body)
	if next == nil || !strings.Contains(first.body, "The 50 identities that were active last") ||
		!strings.Contains(first.body, `aria-sort="descending"`) {
		t.Fatalf("the first page: link %v", next)
	}
	second := b.get(strings.ReplaceAll(next[1], "&amp;", "&"))
	all := append(rowsOf(first), rowsOf(second)...)
	if p := all[len(all)-60:]; len(rowsOf(first)) != 50 || p[0] != "P59" || p[59] != "P00" ||
		!strings.Contains(second.body, "Last active</a>") {
		t.Errorf("pages: %v", all)
	}
	if rows := rowsOf(b.get(identitiesPath + "?sort=last_active&before_id=" + f.users[0].ID)); len(rows) != 50 ||
		rows[0] != "Alice" {
		t.Errorf("half a position shows %v", rows)
	}
}

func TestIdentity_EndpointShowsSessions(t *testing.T) {
	t.Parallel()
	f, srv := newDashboard(t)
	located := dashboardOf(t, f, func(o *Options) { o.GeoIP = true })
	b := signedInAs(t, srv, "flk_admin")
	alice := identitiesPath + "/" + f.users[0].ID
	at := alice + "/endpoint?url=" + url.QueryEscape("https://app.example.com")
	if page := b.get(alice).body; !strings.Contains(page,
		`<a href="`+alice+`/endpoint?url=https%3a%2f%2fapp.example.com">https://app.example.com</a>`) ||
		strings.Contains(page, `href="/ui/endpoints/`) {
		t.Error("an accessed endpoint does not lead to the sessions there, or to its configuration")
	}
	a := b.get(at)
	for _, part := range []string{"Desktop", "macOS 10.15.7", "Chrome 142", userAgents[0].Raw, "203.0.113.90",
		"Example Telecom", "Germany", "52.52, 13.40 (within 20 km)",
		`<a href="https://www.openstreetmap.org/?mlat=52.52&amp;mlon=13.4#map=10/52.52/13.4" ` +
			`target="_blank" rel="noreferrer noopener">Map`,
		"3 live sessions of Alice Amari here", f.sessions[0].ID + "/revoke?return=", "Configuration of the endpoint",
		"the server has no database"} {
		if !strings.Contains(a.body, part) {
			t.Errorf("the sessions at an endpoint lack %s", part)
		}
	}
	if regexp.MustCompile(`<(img|iframe|script|link)[^>]*openstreetmap`).MatchString(a.body) {
		t.Error("the page loads something of the map")
	}
	if page := signedInAs(t, located, "flk_identities").get(at).body; strings.Contains(page,
		"Configuration of the endpoint") || strings.Contains(page, "geoip-database") ||
		!strings.Contains(page, "database has none for this address") {
		t.Error("with a database the page asks for one, or a key for identities is led to endpoints")
	}
	if a := b.get(alice + "/endpoint?url=" + url.QueryEscape("https://reports.example.com")); !strings.Contains(a.body,
		"has no live session now") {
		t.Error("an endpoint without a session does not say so")
	}
	for _, other := range []string{"", "https://shop.prod", "https://app.example.com/"} {
		if a := b.get(alice + "/endpoint?url=" + url.QueryEscape(other)); a.status != http.StatusNotFound ||
			!strings.Contains(a.body, `href="`+alice+`"`) {
			t.Errorf("%q, where she has not been: %d", other, a.status)
		}
	}
}

func TestIdentity_SignOutEverywhere(t *testing.T) {
	t.Parallel()
	f, srv := newDashboard(t)
	b := signedInAs(t, srv, "flk_identities")
	at := identitiesPath + "/" + f.users[0].ID
	if a := b.get(at + "/sign-out"); !strings.Contains(a.body, "Sign Alice Amari out everywhere?") ||
		!strings.Contains(a.body, "The identity stays") || len(f.revoked) != 0 {
		t.Error("the confirmation lacks the effect")
	}
	if a := signedInAs(t, srv, "flk_read").post(at+"/sign-out", ""); a.status != http.StatusForbidden ||
		len(f.revoked) != 0 {
		t.Errorf("with a key that reads: %d", a.status)
	}
	if a := b.post(at+"/sign-out", ""); a.status != http.StatusSeeOther || a.header.Get("Location") != at {
		t.Fatalf("signing out: %d to %q", a.status, a.header.Get("Location"))
	}
	f.set(func() { f.users[0].Sessions = 0 })
	a := b.get(at)
	if !strings.Contains(a.body, "3 sessions have ended. The identity stays.") ||
		!strings.Contains(a.body, "Alice Amari") || strings.Contains(a.body, at+"/sign-out") {
		t.Error("afterwards the page lacks what was done, or there is still something to sign out")
	}
	if want := []account.RevokeSelector{{SessionsOf: f.users[0].ID}}; !slices.Equal(f.revoked, want) {
		t.Errorf("revoked %v", f.revoked)
	}
}

// TestIdentity_RevokedElsewhere reads and submits pages of identities and sessions that were
// revoked meanwhile: the answer states that and links back to the list.
func TestIdentity_RevokedElsewhere(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	session := f.id(account.PrefixAppSession, 101*time.Hour, 98)
	for i, e := range []account.AuditEvent{
		{Type: account.AuditAppSessionCreated, Object: &account.Ref{ID: session},
			Details: map[string]string{"user_id": f.users[0].ID}},
		{Type: account.AuditAppSessionRevoked, Object: &account.Ref{ID: session},
			Details: map[string]string{"user_id": f.users[0].ID, "reason": account.RevokedByLogout}},
	} {
		e.ID, e.OccurredAt = f.id(account.PrefixEvent, time.Hour, 200+i), ago(f, time.Hour)
		f.events, f.owner[e.ID] = append(f.events, e), mine
	}
	srv := dashboardOf(t, f, nil)
	b := signedInAs(t, srv, "flk_identities")
	user, unknown := identitiesPath+"/"+f.revokedBefore(), identitiesPath+"/"+f.id(account.PrefixUser, time.Hour, 97)
	at := Path + "traffic-policy/sessions/"
	for what, want := range map[string][]string{
		user: {"This identity was revoked", "4 days ago", `identities" aria-current="page"`,
			`href="` + identitiesPath + `"`},
		user + "/endpoint?url=x":     {"This identity was revoked"},
		user + "/revoke":             {"This identity was revoked"},
		user + "/sign-out":           {"This identity was revoked"},
		"POST " + user + "/revoke":   {"This identity was revoked", `href="` + identitiesPath + `"`},
		"POST " + user + "/sign-out": {"This identity was revoked"},
		unknown: {"This identity is not there", "if there was one", `href="` + identitiesPath +
			`"`},
		at + session: {"This session has ended", "logout", `href="` + identitiesPath + "/" +
			f.users[0].ID + `"`},
		"POST " + at + session + "/revoke": {"This session has ended"},
		at + "as-none":                     {"This session is not there", `href="` + identitiesPath + `"`},
	} {
		var a answer
		if path, post := strings.CutPrefix(what, "POST "); post {
			a = b.post(path, "")
		} else {
			a = b.get(what)
		}
		for _, part := range want {
			if a.status != http.StatusNotFound || !strings.Contains(strings.ToLower(a.body), strings.ToLower(part)) {
				t.Errorf("%s: %d, without %q", what, a.status, part)
			}
		}
	}
}

// TestRevoke_DescribesNextLogin requires that the confirmation shows the IDs, and promises no new
// login where GitHub asks for none.
func TestRevoke_DescribesNextLogin(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	for _, u := range []account.User{f.users[0], f.users[4]} {
		session := f.sessions[slices.IndexFunc(f.sessions, func(s account.AppSession) bool {
			return s.User.ID == u.ID
		})]
		for _, path := range []string{identitiesPath + "/" + u.ID + "/revoke",
			identitiesPath + "/" + u.ID + "/sign-out",
			Path + "traffic-policy/sessions/" + session.ID + "/revoke"} {
			body := b.get(path).body
			if !strings.Contains(body, ">"+u.ID+"<") || !strings.Contains(body, ">"+u.ProviderUserID+"<") {
				t.Errorf("%s does not show both ids", path)
			}
			asks, warns := strings.Contains(body, "is told to ask"),
				strings.Contains(body, "GitHub cannot be told to ask again")
			if github := u.Provider.Name == "GitHub"; asks == github || warns != github {
				t.Errorf("%s of %s: it asks again: %t; it cannot: %t", path, u.Provider.Name, asks, warns)
			}
		}
	}
}

// TestPages_ExplainEmptyLists requires that a list without rows explains how to add the first one.
func TestPages_ExplainEmptyLists(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	f.users, f.sessions, f.endpoints, f.backends, f.tokens, f.agents, f.tunnels, f.ops, f.events = nil, nil, nil, nil,
		nil, nil, nil, nil, nil
	srv := dashboardOf(t, f, nil)
	b := signedInAs(t, srv, "flk_admin")
	for path, text := range map[string]string{
		"/ui/": "fairlead http 8080", "/ui/endpoints": "fairlead http 8080", "/ui/agents": "fairlead tunnel --label",
		identitiesPath:             "--traffic-policy-file policy.yml",
		"/ui/kubernetes-operators": "--set api.url=https://fairlead.example.com:8443",
		"/ui/authtokens":           "fairlead config add-authtoken", "/ui/events": "appear here",
		"/ui/backends?kind=static": "backends static create", "/ui/backends?kind=failover": "backends failover create",
		"/ui/backends?kind=weighted":      "backends weighted create",
		"/ui/backends?kind=tunnel_group":  "backends tunnel-group create",
		"/ui/backends?kind=http_response": "backends http-response create",
	} {
		if a := b.get(path); a.status != http.StatusOK || !strings.Contains(a.body, text) {
			t.Errorf("%s (%d) lacks %q", path, a.status, text)
		}
	}
}

func TestSession_ShowsLastUse(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_identities")
	for _, one := range f.sessions {
		if one.DeviceChangedAt == nil {
			continue
		}
		for path, parts := range map[string][]string{
			Path + "traffic-policy/sessions/" + one.ID: {one.Device.IPAddress, "192.0.2.77, Brazil", ">changed<"},
			identitiesPath + "/" + one.User.ID:         {one.Device.IPAddress, "192.0.2.77", ">device changed<"},
		} {
			body := b.get(path).body
			for _, part := range parts {
				if !strings.Contains(body, part) {
					t.Errorf("%s lacks %q", path, part)
				}
			}
		}
		return
	}
	t.Error("no session has changed its device")
}
