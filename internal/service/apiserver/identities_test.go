// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// login logs a person in, with a location, and returns the ids of user and session.
func (a *api) login(who string) (userID, sessionID string) {
	a.t.Helper()
	country, latitude, longitude, radius := "US", 37.77, -122.42, 5
	live := a.Login(who, "secret of "+who, func(l *account.NewLogin) {
		l.Device = account.Device{IPAddress: "203.0.113.9",
			UserAgent: account.UserAgent{Raw: "Mozilla/5.0", BrowserName: "Chrome", BrowserVersion: "142",
				DeviceType: "Desktop",
				OSName:     "macOS", OSVersion: "10.15.7"},
			Location: &account.Location{CountryCode: &country, Latitude: &latitude, Longitude: &longitude,
				RadiusKM: &radius},
			Network: &account.Network{ASN: 64500, Organization: "Example"}}
	})
	return live.Identity.ID, live.ID
}

// same fails unless the answer is the JSON, whatever the order of its fields.
func same(t *testing.T, what, got, want string) {
	t.Helper()
	var one, other any
	storetest.Must(t, json.Unmarshal([]byte(got), &one))
	storetest.Must(t, json.Unmarshal([]byte(want), &other))
	storetest.Equal(t, what, fmt.Sprint(one), fmt.Sprint(other))
}

func TestIdentities_HaveDocumentedShapes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	user, session := a.login("alice")
	a.Clock.Step(time.Second)
	plain := a.Login("bob", "s2")
	userJSON := `{"id":"` + user + `","uri":"` + base + `/app/users/` + user +
		`","identity_provider":{"name":"Example ID","url":"https://id.example"},
		"provider_user_id":"sub-alice","username":"alice","email":"alice@example.com","name":"ALICE",
		"created_at":"2026-11-20T08:00:00Z","last_active":"2026-11-20T08:00:00Z","last_login":"2026-11-20T08:00:00Z"}`
	const device = `{"user_agent":{"raw":"Mozilla/5.0","browser_name":"Chrome","browser_version":"142",
		"device_type":"Desktop","os_name":"macOS","os_version":"10.15.7"},
		"ip_address":"203.0.113.9","location":{"country_code":"US",
		"latitude":37.77,"longitude":-122.42,"lat_long_radius_km":5},"network":{"asn":64500,"organization":"Example"}}`
	sessionJSON := `{"id":"` + session + `","uri":"` + base + `/app/sessions/` + session +
		`","public_url":"https://app.example.com",
		"browser_session":` + device + `,
		"application_user":{"id":"` + user + `","uri":"` + base + `/app/users/` + user +
		`"},"created_at":"2026-11-20T08:00:00Z","last_active":"2026-11-20T08:00:00Z",
		"expires_at":"2026-11-20T09:00:00Z",
		"last_browser_session":` + device + `,"browser_changed_at":null,"endpoint":{"id":"ep-1","uri":"` + base +
		`/endpoints/ep-1"},"edge":null,"route":null}`
	same(t, "user", a.get("/app/users/"+user).want(200).text, userJSON)
	same(t, "session", a.get("/app/sessions/"+session).want(200).text, sessionJSON)
	same(t, "users", a.get("/app/users?q=ALI").want(200).text, `{"application_users":[`+userJSON+`],"uri":"`+base+
		`/app/users","next_page_uri":null}`)
	same(t, "sessions", a.get("/app/sessions?user_id="+user).want(200).text,
		`{"application_sessions":[`+sessionJSON+`],"uri":"`+base+`/app/sessions","next_page_uri":null}`)
	same(t, "no match", a.get("/app/users?provider=github").want(200).text,
		`{"application_users":[],"uri":"`+base+`/app/users","next_page_uri":null}`)
	same(t, "accessed", a.get("/app/users/"+user+"/endpoints").want(200).text,
		`{"endpoints":[{"url":"https://app.example.com","endpoint":{"id":"ep-1","uri":"`+base+`/endpoints/ep-1"},
		"first_accessed":"2026-11-20T08:00:00Z","last_accessed":"2026-11-20T08:00:00Z"}],"uri":"`+base+`/app/users/`+
			user+
			`/endpoints"}`)
	other := a.get("/app/sessions/" + plain.ID).want(200)
	if !strings.Contains(other.text, `"location":null`) || !strings.Contains(other.text, `"network":null`) {
		t.Errorf("without a database: %s", other.text)
	}
	for path, of := range map[string]string{"/app/users": "application_users",
		"/app/sessions": "application_sessions"} {
		filters := "&limit=1&provider=example+id&q=example.com"
		first := a.get(path + "?" + strings.TrimPrefix(filters, "&")).want(200)
		next, err := url.Parse(fmt.Sprint(first.body["next_page_uri"]))
		storetest.Must(t, err)
		storetest.Equal(t, "filters of the next page",
			next.Query().Get("limit")+next.Query().Get("provider")+next.Query().
				Get("q"), "1example idexample.com")
		last := a.get(next.RequestURI()).want(200)
		one, two := last.body[of].([]any), first.body[of].([]any)
		if len(one) != 1 || len(two) != 1 || one[0].(map[string]any)["id"] == two[0].(map[string]any)["id"] ||
			last.body["next_page_uri"] != nil {
			t.Errorf("%s: pages %s and %s", path, first.text, last.text)
		}
	}
}

func TestIdentities_Revoke(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	user, session := a.login("alice")
	a.Login("alice", "second")
	key, secret, err := a.Store.IssueAPIKey(t.Context(), a.AccountID, "", []account.Scope{account.ScopeIdentities}, nil)
	storetest.Must(t, err)
	if got := a.do("DELETE", "/app/sessions/"+session, secret, "").want(204); got.text != "" {
		t.Errorf("the answer has a body: %q", got.text)
	}
	a.do("DELETE", "/app/sessions/"+session, secret, "").want(404, account.CodeNotFound)
	storetest.Equal(t, "live", fmt.Sprint(a.Lives("secret of alice"), a.Lives("second")), "false true")
	a.do("DELETE", "/app/users/"+user, secret, "").want(204)
	a.do("GET", "/app/users/"+user, secret, "").want(404, account.CodeNotFound)
	storetest.Equal(t, "live", a.Lives("second"), false)
	var told []string
	for _, e := range into[auditPage](a.get("/events").want(200)).Events {
		if strings.HasPrefix(string(e.Type), "application_") {
			told = append(told, fmt.Sprint(e.Type, " ", e.Object.URI, " ", e.Principal.URI))
		}
	}
	_, err = a.Store.Revoke(t.Context(), account.Caller{AccountID: a.AccountID, PrincipalID: "https://id.example"},
		account.RevokeSelector{SessionID: a.Login("bob", "third").ID}, account.RevokedByBackChannel)
	storetest.Must(t, err)
	storetest.Equal(t, "an issuer", *into[auditPage](a.get("/events?limit=1").want(200)).Events[0].Principal,
		account.Ref{ID: "https://id.example"})
	storetest.Equal(t, "told", strings.Join(told[:2], "\n"), "application_user.revoked "+base+"/app/users/"+user+" "+
		base+
		"/api_keys/"+key.ID+
		"\napplication_session.revoked "+base+"/app/sessions/"+session+" "+base+"/api_keys/"+key.ID)
	if len(told) != 4 || !strings.HasSuffix(told[3], " "+base+"/app/users/"+user) {
		t.Errorf("logins are told as %q", told[2:])
	}
}

// TestIdentities_NeedScope requires that a key with the scope identities reads and revokes
// identities and nothing else, and that the scope read does not revoke.
func TestIdentities_NeedScope(t *testing.T) {
	t.Parallel()
	a := newAPI(t, admitParts, func(o *apiserver.Options) { o.SessionEnder, o.Limits.Burst = &sessionEnder{}, 1000 })
	user, _ := a.login("alice")
	secret, reader, operator := a.key(a.AccountID, account.ScopeIdentities), a.key(a.AccountID, account.ScopeRead),
		a.key(a.AccountID, account.ScopeOperator)
	a.description().eachOperation(func(method, pattern string, _ object) {
		path, body := strings.ReplaceAll(pattern, "{id}", "none"),
			map[string]string{"PATCH": "{}", "POST": "{}"}[method]
		refused := a.do(method, path, secret, body).status == 403
		if ours := strings.HasPrefix(pattern, "/app/") || pattern == "/openapi.json"; refused == ours {
			t.Errorf("%s %s with scope identities: refused %t", method, pattern, refused)
		}
	})
	a.do("GET", "/app/users/"+user, reader, "").want(200)
	a.do("DELETE", "/app/users/"+user, reader, "").want(403, account.CodeScope)
	a.do("GET", "/app/users", operator, "").want(403, account.CodeScope)
	a.do("DELETE", "/app/users/"+user, operator, "").want(403, account.CodeScope)
	a.do("DELETE", "/app/users/"+user, a.admin, "").want(204)
}

func TestIdentities_RefuseInvalid(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	user, session := a.login("alice")
	for _, method := range []string{"GET", "DELETE"} {
		for path, elsewhere := range map[string]string{"/app/users/" + session: "/app/sessions/",
			"/app/sessions/" + user: "/app/users/"} {
			got := a.do(method, path, a.admin, "").want(404, account.CodeNotFound)
			if !strings.Contains(fmt.Sprint(got.body["msg"]), elsewhere) {
				t.Errorf("%s %s names no other path: %s", method, path, got.text)
			}
		}
		a.do(method, "/app/users/none", a.admin, "").want(404, account.CodeNotFound)
		a.do(method, "/app/users/"+user+"?x=1", a.admin, "").want(400, account.CodeInvalid)
	}
	a.get("/app/users/"+session+"/endpoints").want(404, account.CodeNotFound)
	for _, path := range []string{"/app/users", "/app/sessions"} {
		rules := a.get(path+"?q="+strings.Repeat("x", 256)+"&provider=%00&user_id=%20&limit=0&x=1").
			want(400, account.CodeInvalid).rules()
		storetest.Equal(t, "rules of "+path, len(rules), 5)
		a.get(path+"?q=%25&provider=&q2=").want(400, account.CodeInvalid)
		a.get(path + "?q=%27%3B--&provider=%25").want(200)
		a.do("POST", path, a.admin, "{}").want(405, account.CodeMethod)
	}
	storetest.Equal(t, "still there", a.Lives("secret of alice"), true)
}

func TestIdentities_EndAllSessionsOfAUser(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	user, session := a.login("alice")
	a.Login("alice", "second")
	a.Login("bob", "third")
	path := "/app/users/" + user + "/sessions"
	a.do("DELETE", path, a.key(a.AccountID, account.ScopeRead), "").want(403, account.CodeScope)
	a.do("DELETE", path+"?x=1", a.admin, "").want(400, account.CodeInvalid)
	storetest.Equal(t, "live before", fmt.Sprint(a.Lives("secret of alice"), a.Lives("second")), "true true")
	for range 2 { // who asks again gets the same answer
		if got := a.do("DELETE", path, a.key(a.AccountID, account.ScopeIdentities), "").want(204); got.text != "" {
			t.Errorf("the answer has a body: %q", got.text)
		}
	}
	storetest.Equal(t, "live", fmt.Sprint(a.Lives("secret of alice"), a.Lives("second"), a.Lives("third")),
		"false false true")
	a.get("/app/users/" + user).want(200)
	a.get("/app/sessions/"+session).want(404, account.CodeNotFound)
	a.do("DELETE", "/app/users/au-none/sessions", a.admin, "").want(404, account.CodeNotFound)
	a.do("DELETE", "/app/users/"+session+"/sessions", a.admin, "").want(404, account.CodeNotFound)
}

func TestIdentities_FiltersAndOrder(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	alice, _ := a.login("alice")
	a.Clock.Step(time.Second)
	bob := a.Login("bob", "s2").Identity.ID
	a.Clock.Step(time.Minute)
	a.Login("alice", "s3")
	for query, want := range map[string]string{
		"": bob + alice, "sort=created_at": bob + alice, "sort=last_active": alice + bob, "country=us": alice,
		"country=DE": "", "country=": bob + alice,
		"ip=203.0.113.9": bob + alice, "ip=203.0.114": "", "endpoint=APP.example": bob + alice,
		"endpoint=ep-1&country=US&ip=203.": alice,
	} {
		got := ""
		for next := "/app/users?limit=1&" + query; next != ""; { // the next page keeps filters and order
			page := a.get(next).want(200)
			for _, u := range page.body["application_users"].([]any) {
				got += fmt.Sprint(u.(map[string]any)["id"])
			}
			next = ""
			if uri, more := page.body["next_page_uri"].(string); more {
				at, err := url.Parse(uri)
				storetest.Must(t, err)
				next = at.RequestURI()
			}
		}
		storetest.Equal(t, query, got, want)
	}
	storetest.Equal(t, "sessions",
		len(a.get("/app/sessions?country=us&endpoint=app").want(200).body["application_sessions"].([]any)), 1)
	for query, field := range map[string]string{
		"sort=name": "sort", "country=Germany": "country", "country=1x": "country", "ip=x": "ip", "ip=%25": "ip",
		"endpoint=%00":                    "endpoint",
		"sort=last_active&before_id=au-1": "before_active", "before_active=2026-11-20T08:00:00Z": "before_active",
		"sort=last_active&before_id=au-1&before_active=now": "before_active",
	} {
		if rules := a.get("/app/users?"+query).want(400, account.CodeInvalid).rules(); rules[field] == "" {
			t.Errorf("%s is refused for %v", query, rules)
		}
	}
	a.get("/app/sessions?sort=last_active").want(400, account.CodeInvalid)
}
