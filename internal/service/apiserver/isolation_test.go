// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
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

// isolatedAccount returns an API whose account has an object of every kind, the ids of these by the
// path of their list, and an admin key of another account.
func isolatedAccount(t *testing.T) (a *api, ids map[string]string, theirs string) {
	t.Helper()
	a = newAPI(t, admitParts, func(o *apiserver.Options) {
		o.SessionEnder, o.Limits.Burst = sessionsOf{o.Store}, 1000
	})
	other, _ := a.NewAccount("other")
	session := a.Session()
	ids = map[string]string{
		"endpoints": a.Bind(session, "http://mine.demo").Endpoint.ID, "tunnel_sessions": session,
		"kubernetes_operators": a.operatorWith(a.admin, "{}"),
	}
	bodies := map[string]string{"api_keys": "{}", "credentials": "{}", "clusters": clusterBody(t, "mine", "k1")}
	for kind, body := range backendBodies(a.Static().ID) {
		bodies["backends/"+string(kind)] = body
	}
	for path, body := range bodies {
		made := a.do("POST", "/"+path, a.admin, body).want(201).body["id"].(string)
		a.do("PATCH", "/"+path+"/"+made, a.admin, `{"description":"mine"}`).want(200)
		ids[path] = made
	}
	tunnel, _, err := a.Store.StartTunnel(t.Context(),
		account.LabelledTunnel{AccountID: a.AccountID, TunnelSession: account.Ref{ID: session},
			Labels: map[string]string{"app": "mine"}}, account.TunnelResume{})
	storetest.Must(t, err)
	login := a.Login("mine", "secret", func(l *account.NewLogin) { l.Provider.Name = "mine" })
	ids["tunnels"], ids["app/users"], ids["app/sessions"] = tunnel.ID, login.Identity.ID, login.ID
	ids["events"] = into[auditPage](a.get("/events").want(200)).Events[0].ID
	return a, ids, a.key(other, account.ScopeAdmin)
}

// TestRoutes_IsolateAccounts calls every described operation with a key of another account: no
// object is shown, changed or deleted. A described operation on a new kind of objects fails this
// test until isolatedAccount creates one.
func TestRoutes_IsolateAccounts(t *testing.T) {
	t.Parallel()
	a, ids, theirs := isolatedAccount(t)
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
			return
		}
		if method == "GET" {
			got := a.do(method, pattern, theirs, "").want(200)
			if strings.Contains(got.text, a.AccountID) || strings.Contains(got.text, `"mine"`) {
				t.Errorf("%s shows something of another account: %s", pattern, got.text)
			}
			for _, mine := range ids {
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

func TestCloudEndpoints_IsolateAccounts(t *testing.T) {
	t.Parallel()
	a, ids, theirs := isolatedAccount(t)
	cloud := a.cloud("http://cloud.demo", "")
	for method, body := range map[string]string{"GET": "", "PATCH": `{"description":"theirs"}`, "DELETE": ""} {
		a.do(method, "/endpoints/"+cloud, theirs, body).want(404, account.CodeNotFound)
	}
	if got := a.do("GET", "/endpoints", theirs, "").want(200); strings.Contains(got.text, cloud) {
		t.Errorf("the list shows a cloud endpoint of another account: %s", got.text)
	}
	mine := ids["backends/"+string(account.BackendStatic)]
	for field, url := range map[string]string{"backend_id": "http://a.demo", "traffic_policy": "http://b.demo"} {
		got := a.do("POST", "/endpoints", theirs, `{"url":"`+url+`","`+field+`":"`+mine+`"}`).
			want(400, account.CodeInvalid).
			rules()[field]
		storetest.Equal(t, "their use of my backend", got, "names no backend of this account")
	}
}
