// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

type auditPage struct {
	Events          []account.AuditEvent    `json:"events"`
	URI             string                  `json:"uri"`
	NextPageURI     *string                 `json:"next_page_uri"`
	ResourceVersion account.ResourceVersion `json:"resource_version"`
}

func TestEvents_NamePrincipalAndObject(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	key := into[account.APIKey](a.do("POST", "/api_keys", a.admin, `{"description":"for ci"}`).want(201))
	text := a.get("/events?limit=1").want(200)
	page := into[auditPage](text)
	got := page.Events[0]
	storetest.Equal(t, "type", got.Type, account.AuditAPIKeyCreated)
	storetest.Equal(t, "object", *got.Object, account.Ref{ID: key.ID, URI: base + "/api_keys/" + key.ID})
	storetest.Equal(t, "uri", got.URI, base+"/events/"+got.ID)
	storetest.Equal(t, "description", got.Details["description"], "for ci")
	if got.Principal == nil || !strings.HasPrefix(got.Principal.URI, base+"/api_keys/ak-") ||
		got.Principal.ID == key.ID {
		t.Errorf("principal %+v is not the admin's key", got.Principal)
	}
	if strings.Contains(text.text, *key.Token) || page.NextPageURI == nil {
		t.Errorf("the secret is told, or the next page is not: %s", text.text)
	}
	a.get("/events?type=api_key.created&object_id=" + key.ID).want(200)
	for _, query := range []string{"type=nothing", "object_id=a%20b", "watch=true",
		"watch=true&resource_version=1-1&limit=3", "url=http://a.b", "type="} {
		a.get("/events?"+query).want(400, account.CodeInvalid)
	}
	a.get("/events/ev-none").want(404, account.CodeNotFound)
	a.do("GET", "/events", a.key(a.AccountID, account.ScopeOperator), "").want(403, account.CodeScope)
	a.get("/events?watch=true&resource_version=1-1").want(410, account.CodeGone)
	a.get("/events?resource_version=1-1").want(410, account.CodeGone)
	a.do("DELETE", "/events/"+got.ID, a.admin, "").want(405, account.CodeMethod)
}

func TestEvents_AreWatched(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(o *apiserver.Options) { o.Heartbeat = 50 * time.Millisecond })
	v := into[auditPage](a.get("/events").want(200)).ResourceVersion
	a.do("POST", "/api_keys", a.admin, `{"description":"before"}`).want(201)
	res, err := a.srv.Client().
		Do(a.request("GET", "/events?watch=true&type=api_key.created&resource_version="+v.String(),
			a.admin, ""))
	storetest.Must(t, err)
	defer func() { _ = res.Body.Close() }()
	storetest.Equal(t, "status", res.StatusCode, http.StatusOK)
	lines := bufio.NewScanner(res.Body)
	next := func() (l account.AuditWatchEvent) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the watch ended: %v", lines.Err())
		}
		storetest.Must(t, json.Unmarshal(lines.Bytes(), &l))
		return l
	}
	first := next()
	storetest.Equal(t, "before", first.Event.Details["description"], "before")
	storetest.Equal(t, "version", first.ResourceVersion, first.Event.ResourceVersion)
	a.do("POST", "/credentials", a.admin, `{}`).want(201) // filtered out
	a.do("POST", "/api_keys", a.admin, `{"description":"after"}`).want(201)
	for {
		l := next()
		if l.Type == account.Bookmark {
			continue
		}
		storetest.Equal(t, "after", l.Event.Details["description"], "after")
		break
	}
	for next().Type != account.Bookmark { // the heartbeat
	}
}
