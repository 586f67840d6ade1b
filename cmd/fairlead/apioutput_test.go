// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/account/resource"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// TestAPITables_FitIn80Columns requires that the table of every resource fits, with objects of
// common sizes; -o wide has the other columns.
func TestAPITables_FitIn80Columns(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	alice, _ := a.people()
	session := a.Session()
	a.Bind(session, "http://orders.prod")
	_, _, err := a.Store.StartTunnel(t.Context(), account.LabelledTunnel{AccountID: a.AccountID,
		TunnelSession: account.Ref{ID: session}, Labels: map[string]string{"app": "api"},
		ForwardsTo: "http://localhost:8080"}, account.TunnelResume{})
	storetest.Must(t, err)
	a.Failover(a.Static().ID, a.HTTPResponse().ID)
	a.api(0, "clusters", "create", "--name", "production", "--jwks-file", jwksFile(t, "k1"))
	a.api(0, "kubernetes-operators", "create", "--cluster-name", "production")
	for _, list := range []string{"endpoints list", "events list --type credential.created", "identities list",
		"tunnels list", "kubernetes-operators list", "tunnel-sessions list", "api-keys list", "credentials list",
		"clusters list", "backends failover list", "backends weighted list", "backends tunnel-group list",
		"backends http-response list", "backends static list", "identities sessions", "identities endpoints " + alice,
		"identities sessions identity/" + alice} {
		a.checkTable(strings.Fields(list)...)
	}
}

// checkTable requires that a list prints a table that fits, and a wider one that begins with its
// columns.
func (a *accountAPI) checkTable(list ...string) {
	a.t.Helper()
	narrow, wide := a.api(0, list...).out, a.api(0, append(list, "-o", "wide")...).out
	for line := range strings.Lines(narrow) {
		if n := printable.Width(strings.TrimSuffix(line, "\n")); n > 80 {
			a.t.Errorf("%q prints %d columns:\n%s", list, n, narrow)
		}
	}
	heading, _, _ := strings.Cut(narrow, "\n")
	all, _, _ := strings.Cut(wide, "\n")
	if !strings.HasPrefix(strings.Join(strings.Fields(all), " "), strings.Join(strings.Fields(heading), " ")+" ") {
		a.t.Errorf("%q -o wide begins with\n%s, want\n%s", list, all, heading)
	}
}

// TestAPITables_ShortenIDs requires that a terminal shows a long URL and its state whole, and that
// -o wide shows everything.
func TestAPITables_ShortenIDs(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	a.env["COLUMNS"] = "80"
	const url = "tcp://a-longer-name.of-a-namespace:15432"
	id := a.Bind(a.Session(), url).Endpoint.ID
	storetest.Equal(t, "terminal", a.api(0, "endpoints", "list").out,
		"URL                                        STATUS   BINDING      ID\n"+
			url+"   online   kubernetes   "+id[:14]+"…\n")
	if wide := a.api(0, "endpoints", "list", "-o", "wide").out; !strings.Contains(wide, " "+id+" ") ||
		!strings.Contains(wide, " kubernetes ") {
		t.Errorf("wide:\n%s", wide)
	}
}

func TestAPIOutput_NamesAndTemplates(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	id := a.Bind(a.Session(), "http://a.demo").Endpoint.ID
	for _, c := range []struct {
		want string
		args []string
	}{
		{"endpoint/" + id + "\n", []string{"endpoints", "list", "-o", "name"}},
		{"endpoint/" + id + "\n", []string{"endpoints", "get", "endpoint/" + id, "-o", "name"}},
		{"http://a.demo online\n", []string{"endpoints", "list", "-o",
			`jsonpath={range .items[*]}{.url} {.status}{"\n"}{end}`}},
		{id, []string{"endpoints", "get", id, "-o", "jsonpath={.id}"}},
		{"http://a.demo 80", []string{"endpoints", "get", id, "--template", "{{.url}} {{.port}}"}},
		{id, []string{"endpoints", "list", "--template", "{{range .items}}{{.id}}{{end}}"}},
		{"", []string{"backends", "static", "list", "-o", "name"}},
	} {
		storetest.Equal(t, strings.Join(c.args, " "), a.api(0, c.args...).out, c.want)
	}
	made := strings.Fields(a.api(0, "credentials", "create", "-o", "jsonpath={.id} {.token}").out)
	if len(made) != 2 || !strings.HasPrefix(made[1], account.AuthtokenPrefix) {
		t.Errorf("made %q", made)
	}
	storetest.Equal(t, "update", a.api(0, "credentials", "update", made[0], "--metadata", "m", "-o", "name").out,
		"authtoken/"+made[0]+"\n")
	for want, args := range map[string][]string{
		"leaves out the secret":                 {"credentials", "create", "-o", "name"},
		"--template and --output yaml":          {"endpoints", "list", "-o", "yaml", "--template", "{{.}}"},
		"the template of the answer: a brace":   {"endpoints", "list", "-o", "jsonpath={.url"},
		"the template of the answer: template:": {"endpoints", "list", "--template", "{{"},
		`--output "jsonpath": must be table`:    {"endpoints", "list", "-o", "jsonpath"},
	} {
		if r := a.api(exitUsage, args...); !strings.Contains(r.err, want) || r.out != "" {
			t.Errorf("%q: %+v, want %q", args, r, want)
		}
	}
	var all []any
	storetest.Must(t, json.Unmarshal([]byte(a.api(0, "credentials", "list", "-o", "json").out), &all))
	storetest.Equal(t, "authtokens", len(all), 2) // that of the fixture, and the one of jsonpath
}

func TestAPI_ErrorsAsJSON(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	for _, c := range []struct {
		exit, status int
		code, msg    string
		args         []string
	}{
		{exitOther, 404, "ERR_FL_1050", "", []string{"endpoints", "get", "ep-none"}},
		{exitOther, 0, "ERR_FL_1050", "http://no.demo", []string{"endpoints", "get", "http://no.demo"}},
		{exitUsage, 400, "ERR_FL_1040", "did you mean", []string{"endpoints", "create", "--url", "shop.demo"}},
		{exitUsage, 0, "", "needs one argument", []string{"endpoints", "get"}},
		{exitUsage, 0, "", "unknown flag", []string{"endpoints", "get", "-o", "json", "--nope"}},
		{exitUsage, 0, "", "one argument at most", []string{"identities", "revoke", "a", "b"}},
		{exitUsage, 0, "", "nothing to change is given", []string{"api-keys", "update", "ak-1"}},
	} {
		r := a.api(c.exit, append(c.args, "-o", "json")...)
		var got account.ErrorBody
		storetest.Must(t, json.Unmarshal([]byte(r.err), &got))
		if r.out != "" || string(got.Code) != c.code || got.Status != c.status || !strings.Contains(got.Msg, c.msg) ||
			got.Details == nil || (c.status == 400) != (len(got.Errors) > 0) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
}

func TestAPIEndpoints_ByURL(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	made := a.object("endpoints", "create", "--url", "http://shop.demo")
	id := made["id"].(string)
	storetest.Equal(t, "get", a.object("endpoints", "get", "HTTP://Shop.demo:80")["id"], any(id))
	storetest.Equal(t, "update", a.object("endpoints", "update", "http://shop.demo", "--metadata", "m")["id"], any(id))
	storetest.Equal(t, "delete", a.api(0, "endpoints", "delete", "http://shop.demo").err, "endpoint "+id+" deleted\n")
	for _, verb := range []string{"get", "delete"} {
		if r := a.api(exitOther, "endpoints", verb, "http://shop.demo"); !strings.Contains(r.err,
			"no endpoint with the URL http://shop.demo") {
			t.Errorf("%s: %+v", verb, r)
		}
	}
	var ids []string
	for range 2 {
		ids = append(ids, a.object("endpoints", "create", "--url", "http://pool.demo",
			"--pooling-enabled")["id"].(string))
	}
	if r := a.api(exitUsage, "endpoints", "delete", "http://pool.demo"); !strings.Contains(r.err, ids[0]) ||
		!strings.Contains(r.err, ids[1]) || !strings.Contains(r.err, "2 endpoints have the URL http://pool.demo") {
		t.Errorf("a pool: %+v", r)
	}
}

func TestAPICompletion_AsksTheAPI(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	id := a.Bind(a.Session(), "http://a.demo").Endpoint.ID
	alice, _ := a.people()
	byURL, byID := "http://a.demo\tonline kubernetes "+id+"\n", id+"\thttp://a.demo online kubernetes\n"
	complete := func(line string) string {
		r := fairlead(t, a.env, "", append([]string{"__complete", "api"}, strings.Split(line, " ")...)...)
		if r.code != 0 || strings.Count(r.err, "\n") > 1 { // cobra names the directive
			t.Errorf("%q: %+v", line, r)
		}
		return r.out
	}
	for line, want := range map[string]string{
		"endpoints get ":                     byURL + byID + ":4\n",
		"endpoints delete http://a":          byURL + ":4\n",
		"endpoints update ep-":               byID + ":4\n",
		"endpoints get " + id + " ":          ":4\n",
		"identities revoke au-":              alice,
		"endpoints list --type ":             "agent\ncloud\n",
		"endpoints list --binding ":          strings.Join(resource.Bindings(), "\n") + "\n",
		"endpoints create --binding ":        strings.Join(resource.Bindings(), "\n") + "\n",
		"api-keys create --scope ":           "admin\nread\noperator\nidentities\nexporter\n",
		"clusters update cl-1 --key-source ": "cluster\nissuer\nmanual\n",
		"events list --type cluster.":        "cluster.created\n",
		"endpoints list -o ":                 "table\nwide\nname\njson\nyaml\njsonpath=\n",
	} {
		if got := complete(line); !strings.HasPrefix(got, want) && !strings.Contains(got, "\n"+want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	broken := httptest.NewTLSServer(http.NotFoundHandler())
	defer broken.Close()
	for name, change := range map[string]string{"FAIRLEAD_SERVER_URL": broken.URL, envAPIKey: "",
		"FAIRLEAD_CA_FILE": "/no"} {
		a.env[name] = change
		storetest.Equal(t, name, complete("endpoints get "), ":4\n")
	}
}
