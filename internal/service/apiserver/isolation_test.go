// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/internal/service/store/storetest"
)

// sessionsOf ends the sessions that the store knows in the account.
type sessionsOf struct{ account.TunnelSessions }

func (s sessionsOf) StopSession(ctx context.Context, by account.Caller, id string) error {
	_, err := s.TunnelSession(ctx, by.AccountID, id)
	return err
}

func (s sessionsOf) RestartSession(ctx context.Context, by account.Caller, id string) error {
	return s.StopSession(ctx, by, id)
}

// TestRoutes_IsolateAccounts walks every described operation with the objects of another
// account: none is seen, changed or deleted. A new route comes under this test by being described,
// and fails it until its objects are here.
func TestRoutes_IsolateAccounts(t *testing.T) {
	t.Parallel()
	a := newAPI(t, admitParts, func(o *apiserver.Options) {
		o.SessionEnder, o.Limits.Burst = sessionsOf{o.Store}, 1000
	})
	other, _ := a.NewAccount("other")
	theirs := a.key(other, account.ScopeAdmin)
	session := a.Session()
	ids := map[string]string{
		"endpoints": a.Bind(session, "http://mine.demo").Endpoint.ID, "tunnel_sessions": session,
		"kubernetes_operators": a.operatorWith(a.admin, "{}"),
		"api_keys": into[account.APIKey](a.do("POST", "/api_keys", a.admin, `{"description":"mine"}`).
			want(201)).ID,
		"credentials": into[account.Authtoken](a.do("POST", "/credentials", a.admin, `{"description":"mine"}`).
			want(201)).ID,
	}
	leaf := into[madeBackend](a.do("POST", "/backends/static", a.admin,
		`{"address":"db.example.com:1","description":"mine"}`).want(201)).ID
	for kind, body := range backendBodies(leaf) {
		body = strings.Replace(body, "{", `{"description":"mine",`, 1)
		ids["backends/"+string(kind)] = into[madeBackend](a.do("POST", "/backends/"+string(kind), a.admin, body).
			want(201)).ID
	}
	tunnel, err := a.Store.StartTunnel(t.Context(),
		account.LabelledTunnel{AccountID: a.AccountID, TunnelSession: account.Ref{ID: session},
			Labels: map[string]string{"app": "mine"}})
	storetest.Must(t, err)
	ids["tunnels"] = tunnel.ID
	login := a.Login("mine", "secret", func(l *account.NewLogin) { l.Provider.Name = "mine" })
	ids["app/users"], ids["app/sessions"] = login.UserID, login.ID
	cloud := into[account.Endpoint](
		a.do("POST", "/endpoints", a.admin, `{"url":"http://cloud.demo","description":"mine"}`).want(201)).ID
	for _, method := range []string{"GET", "PATCH", "DELETE"} {
		a.do(method, "/endpoints/"+cloud, theirs, map[string]string{"PATCH": `{"description":"theirs"}`}[method]).
			want(404, account.CodeNotFound)
	}
	for field, url := range map[string]string{"backend_id": "http://a.demo", "traffic_policy": "http://b.demo"} {
		got := a.do("POST", "/endpoints", theirs, `{"url":"`+url+`","`+field+`":"`+leaf+`"}`).
			want(400, account.CodeInvalid).
			rules()[field]
		storetest.Equal(t, "their use of my backend", got, "names no backend of this account")
	}
	ids["events"] = into[auditPage](a.get("/events").want(200)).Events[0].ID
	before := map[string]string{}
	for name, id := range ids {
		before[name] = a.get("/" + name + "/" + id).want(200).text
	}
	a.description().eachOperation(func(method, pattern string, _ object) {
		name := strings.TrimPrefix(strings.Split(pattern, "/{")[0], "/")
		body := map[string]string{"PATCH": `{"description":"theirs"}`, "POST": "{}"}[method]
		if strings.Contains(pattern, "{id}") {
			if ids[name] == "" {
				t.Fatalf("%s %s: this test has no object for it", method, pattern)
			}
			a.do(method, strings.ReplaceAll(pattern, "{id}", ids[name]), theirs, body).want(404, account.CodeNotFound)
		}
		if method == "GET" && !strings.Contains(pattern, "{id}") {
			got := a.do(method, pattern, theirs, "").want(200)
			if strings.Contains(got.text, a.AccountID) || strings.Contains(got.text, `"mine"`) {
				t.Errorf("%s shows something of another account: %s", pattern, got.text)
			}
			for _, mine := range slices.Collect(maps.Values(ids)) {
				if strings.Contains(got.text, mine) {
					t.Errorf("%s shows %s of another account", pattern, mine)
				}
			}
		}
	})
	for name, id := range ids {
		storetest.Equal(t, "unchanged "+name, a.get("/"+name+"/"+id).want(200).text, before[name])
	}
}
