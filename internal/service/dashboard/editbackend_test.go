// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestEditor_CreatesBackends(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	group, static := f.backends[0].ID, f.backends[1].ID
	for kind, c := range map[account.BackendKind]struct {
		form url.Values
		want account.Backend
	}{
		account.BackendFailover: {url.Values{"backends": {"", static, "", group}, "health.http_status": {"503, 502"},
			"health.min_clients": {" 2 "}},
			account.Backend{Children: []string{static, group}, HealthStatus: []int{502, 503},
				HealthRule: account.HealthRule{MinClients: 2}}},
		account.BackendWeighted: {url.Values{"backends": {group, static, ""}, "backends.weight": {"95", " 5", "7"}},
			account.Backend{Weights: map[string]int{group: 95, static: 5}}},
		account.BackendTunnelGroup: {url.Values{"labels": {"app=api\r\n\r\n site = berlin \r\n"}},
			account.Backend{Labels: map[string]string{"app": "api", "site": "berlin"}}},
		account.BackendHTTPResponse: {url.Values{"status_code": {"503"}, "headers": {"Retry-After: 60\r\nX: a: b"},
			"body": {"one\r\ntwo\r\n"}}, account.Backend{Response: &account.HTTPResponse{StatusCode: 503,
			Headers: map[string]string{"Retry-After": "60", "X": "a: b"}, Body: "one\ntwo\n"}}},
		account.BackendStatic: {url.Values{"address": {" DB.example.com:5432 "}, "tls.enabled": {"true"}},
			account.Backend{Static: &account.StaticAddress{Address: "db.example.com:5432", TLS: true}}},
	} {
		at := "/ui/backends/new/" + string(kind)
		c.form.Set("description", "New")
		a := b.send(at, b.get(at).body, stepSave, c.form)
		made := f.backends[len(f.backends)-1]
		c.want.ID, c.want.Kind, c.want.Description = made.ID, kind, "New"
		c.want.AccountID, c.want.CreatedAt, c.want.UpdatedAt = mine, made.CreatedAt, made.UpdatedAt
		if a.status != http.StatusSeeOther || !reflect.DeepEqual(made, c.want) {
			t.Errorf("%s: %d %s\n%+v, want\n%+v", kind, a.status, textOf(a.body), made, c.want)
		}
	}
}

// TestEditor_LeavesBackendsAsTheyAre sends the form of every backend as it is: nothing would
// change.
func TestEditor_LeavesBackendsAsTheyAre(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	f.backends[2].Response.Body = "\nline\u200b\r\n\r\nlast"
	f.backends[3].HealthRule = account.HealthRule{WindowSeconds: 20}
	for _, one := range f.backends[:6] {
		at := "/ui/backends/" + one.ID + "/edit"
		page := b.get(at)
		if a := b.send(at, page.body, stepReview, nil); a.status != http.StatusOK ||
			!strings.Contains(a.body, "Nothing: the form has what is saved already.") {
			t.Errorf("%s: %d %s", one.Kind, a.status, textOf(a.body))
		}
		a := b.send(at, page.body, stepReview, url.Values{"description": {"Other"}})
		if a = b.send(at, a.body, stepSave, nil); a.status != http.StatusSeeOther {
			t.Fatalf("%s: %d %s", one.Kind, a.status, textOf(a.body))
		}
		want := one
		for _, now := range f.backends {
			if now.ID == one.ID {
				want.Description, want.UpdatedAt = "Other", now.UpdatedAt
				if !reflect.DeepEqual(now, want) {
					t.Errorf("%s became %+v, want %+v", one.Kind, now, want)
				}
			}
		}
	}
}

// guarded refuses link-local static addresses.
type guarded struct{ *fake }

func (guarded) CheckStaticAddress(address string) error {
	if strings.HasPrefix(address, "169.254.") {
		return account.Invalid("address", address, "the server does not connect there")
	}
	return nil
}

func TestEditor_ShowsMistakesOfBackends(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	b := signedInAs(t, dashboardOf(t, f, func(o *Options) {
		o.Backends = guarded{f}
	}), "flk_admin")
	for _, c := range []struct {
		kind account.BackendKind
		form url.Values
		want string
	}{
		{account.BackendFailover, nil, "At least one backend is required"},
		{account.BackendFailover, url.Values{"backends": {f.backends[0].ID, f.backends[0].ID}}, "is given twice"},
		{account.BackendFailover, url.Values{"health.http_status": {"many"}}, "“many” must be an HTTP status"},
		{account.BackendFailover, url.Values{"health.window_seconds": {"soon"}}, "Must be a whole number."},
		{account.BackendFailover, url.Values{"health.window_seconds": {"301"}}, "Must be a number from 1 to 300"},
		{account.BackendWeighted, url.Values{"backends": {f.backends[0].ID}, "backends.weight": {""}},
			"needs a weight"},
		{account.BackendTunnelGroup, url.Values{"labels": {"app"}}, "must be KEY=VALUE, for example app=api"},
		{account.BackendHTTPResponse, url.Values{"headers": {"nothing"}}, "must be NAME: VALUE"},
		{account.BackendHTTPResponse, url.Values{"headers": {"Content-Length: 1"}},
			"“Content-Length” the edge sets this"},
		{account.BackendHTTPResponse, url.Values{"status_code": {"99"}}, "Must be the status of a whole answer"},
		{account.BackendStatic, url.Values{"address": {"db"}}, "Must be HOST:PORT"},
		{account.BackendStatic, url.Values{"address": {"169.254.169.254:80"}}, "The server does not connect there."},
	} {
		at := "/ui/backends/new/" + string(c.kind)
		a := b.send(at, b.get(at).body, stepSave, c.form)
		if a.status != http.StatusBadRequest || !strings.Contains(textOf(a.body), c.want) ||
			!strings.Contains(a.body, `-problem">`) {
			t.Errorf("%s %v: %d, want %q: %s", c.kind, c.form, a.status, c.want, textOf(a.body))
		}
	}
	if len(f.backends) != 7 {
		t.Errorf("%d backends", len(f.backends))
	}
}

func TestEditor_AddsRowsForChildren(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	at := "/ui/backends/" + f.backends[3].ID + "/edit"
	page := b.get(at)
	before := len(formOf(page.body)["backends"])
	more := b.send(at, page.body, stepMore, url.Values{"description": {"typed"}})
	form := formOf(more.body)
	if before != 5 || len(form["backends"]) != 9 || form.Get("description") != "typed" {
		t.Errorf("%d rows, then %d: %v", before, len(form["backends"]), form)
	}
	for range 5 {
		more = b.send(at, more.body, stepMore, nil)
	}
	if n := len(formOf(more.body)["backends"]); n != account.MaxBackendChildren {
		t.Errorf("%d rows at most", n)
	}
}

func TestBackend_ConflictKeepsBoth(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	one := f.backends[3]
	at := "/ui/backends/" + one.ID + "/edit"
	page := b.get(at)
	by := account.Caller{AccountID: mine, PrincipalID: f.keys[4].ID}
	if _, err := f.PatchBackend(t.Context(), by, one.Kind, one.ID,
		account.BackendPatch{Metadata: new("Theirs")}); err != nil {
		t.Fatal(err)
	}
	a := b.send(at, page.body, stepReview, url.Values{"backends": {f.backends[1].ID, f.backends[0].ID}})
	if a.status != http.StatusConflict || !strings.Contains(textOf(a.body), "- Sorry page") {
		t.Errorf("%d %s", a.status, textOf(a.body))
	}
	b.send(at, a.body, stepSave, nil)
	if now := f.backends[3]; now.Metadata != "Theirs" || strings.Join(now.Children, " ") != f.backends[1].ID+" "+
		f.backends[0].ID {
		t.Errorf("saved %+v", now)
	}
}

func TestDeletion_ListsConsequences(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	cloud, group := f.endpoints[3], f.backends[0]
	text := textOf(b.get("/ui/endpoints/" + cloud.ID + "/delete").body)
	for _, want := range []string{"Delete this endpoint?", "http://shop.prod", "us-1 (fairlead/fairlead-operator)",
		"Callers of http://shop.prod get an error at once.", "remove its Services"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing: %s", want, text)
		}
	}
	used := b.get("/ui/backends/" + group.ID + "/delete")
	if text := textOf(used.body); !strings.Contains(text, "Child of Shop, Canary of the API") ||
		strings.Contains(used.body, "destroy") {
		t.Errorf("a backend in use: %s", text)
	}
	if text := textOf(b.get("/ui/backends/" + f.backends[3].ID + "/delete").body); !strings.Contains(text,
		"Backend of http://shop.prod") {
		t.Errorf("a backend of an endpoint: %s", text)
	}
	if a := b.post("/ui/backends/"+f.backends[3].ID+"/delete", ""); a.status != http.StatusConflict ||
		!strings.Contains(a.body, "is used by endpoint") {
		t.Errorf("deleting it nevertheless: %d", a.status)
	}
	if a := b.get("/ui/endpoints/" + f.endpoints[0].ID + "/delete"); a.status != http.StatusBadRequest {
		t.Errorf("an agent's endpoint: %d", a.status)
	}
	if a := b.post("/ui/endpoints/"+cloud.ID+"/delete", ""); a.header.Get("Location") != "/ui/endpoints" ||
		f.endpoints[3].ID == cloud.ID || f.events[len(f.events)-1].Type != account.AuditEndpointDeleted {
		t.Errorf("deleting an endpoint: %d", a.status)
	}
	if a := b.get("/ui/endpoints"); !strings.Contains(a.body, "The endpoint is deleted.") {
		t.Error("the page does not confirm it")
	}
	if a := b.post("/ui/backends/"+f.backends[3].ID+"/delete",
		""); a.header.Get("Location") != "/ui/backends?kind=failover" || len(f.backends) != 6 {
		t.Errorf("deleting a backend: %d", a.status)
	}
}
