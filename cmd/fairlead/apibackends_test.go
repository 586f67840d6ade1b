// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

func TestAPI_BackendsAndCloudEndpoints(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	id := func(args ...string) string {
		t.Helper()
		return a.object(args...)["id"].(string)
	}
	page := filepath.Join(t.TempDir(), "sorry.txt")
	storetest.Must(t, os.WriteFile(page, []byte("back soon"), 0o600))
	sorry := a.object("backends", "http-response", "create", "--status-code", "503", "--header", "Retry-After=60",
		"--header", "X=a=b", "--body-file", page)
	storetest.Equal(t, "answer", fmt.Sprint(sorry["status_code"], sorry["headers"], sorry["body"]),
		"503 map[Retry-After:60 X:a=b]back soon")
	static := id("backends", "static", "create", "--address", "db.example.com:443", "--tls")
	group := id("backends", "tunnel-group", "create", "--label", "app=api", "--label", "site=a", "--description",
		"agents")
	weighted := id("backends", "weighted", "create", "--backend", static+"=3", "--backend", group+"=1")
	first := id("backends", "failover", "create", "--backend", weighted, "--backend", sorry["id"].(string),
		"--health-status", "503", "--health-status", "502", "--health-clients", "2")
	for kind, row := range map[string]string{
		"failover":      first + ` +- +- +` + weighted + `,` + sorry["id"].(string) + ` +\S+`,
		"weighted":      weighted + ` +- +` + static + `=3,` + group + `=1 +\S+`,
		"tunnel-group":  group + ` +app=api,site=a +agents +- +\S+`,
		"static":        static + ` +db.example.com:443 +true +- +\S+`,
		"http_response": sorry["id"].(string) + ` +503 +- +\S+`,
	} {
		if table := a.api(0, "backends", kind, "list", "-o", "wide").out; !regexp.MustCompile(
			`(?m)^ID +[A-Z ]+\n` + row + `\n$`).MatchString(table) {
			t.Errorf("%s:\n%s\nwant %s", kind, table, row)
		}
	}
	changed := a.object("backends", "static", "update", static, "--tls=false", "--metadata", "m")
	storetest.Equal(t, "changed", fmt.Sprint(changed["tls"], changed["metadata"], changed["address"]),
		"map[enabled:false]mdb.example.com:443")

	policy := filepath.Join(t.TempDir(), "policy.yaml")
	storetest.Must(t, os.WriteFile(policy, []byte("secret: hush\n"), 0o600))
	shop := a.object("endpoints", "create", "--url", "http://shop.demo", "--binding", "kubernetes", "--backend-id",
		first,
		"--traffic-policy-file", policy, "--pooling-enabled")
	if shop["type"] != "cloud" || shop["backend_id"] != first || shop["pooling_enabled"] != true ||
		!strings.Contains(shop["traffic_policy"].(string), "redacted:") {
		t.Errorf("made %v", shop)
	}
	shopID := shop["id"].(string)
	if table := a.api(0, "endpoints", "list", "-o", "wide").out; !regexp.MustCompile(
		`http://shop.demo +online +kubernetes +` + shopID + ` +cloud +- +- +` + first).MatchString(table) {
		t.Errorf("endpoints:\n%s", table)
	}
	if r := a.api(1, "backends", "failover", "delete", first); !strings.Contains(r.err, shopID) {
		t.Errorf("deleting what is used: %+v", r)
	}
	storetest.Equal(t, "detached", a.object("endpoints", "update", shopID, "--backend-id", "")["backend_id"], any(""))
	a.api(0, "backends", "failover", "delete", first)
	a.api(0, "endpoints", "delete", shopID)
	if r := a.api(exitUsage, "endpoints", "create", "--url", "shop.demo"); !strings.Contains(r.err,
		`did you mean "http://shop.demo"`) {
		t.Errorf("a wrong URL: %+v", r)
	}
}

func TestAPI_RefusedPolicyListsMistakes(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	wrong := filepath.Join(t.TempDir(), "wrong.yml")
	storetest.Must(t, os.WriteFile(wrong, []byte("on_http_request:\n- actions: [{type: nonsense}, {type: rubbish}]\n"),
		0o600))
	r := a.api(exitUsage, "endpoints", "create", "--url", "http://wrong.demo", "--traffic-policy-file", wrong)
	if !strings.HasPrefix(r.err,
		"fairlead: the server refused the traffic policy (ERR_FL_1040):\nline 2, column 20: there is no action "+
			"\"nonsense\"") ||
		!strings.Contains(r.err, "\nline 2, column 38: there is no action \"rubbish\"") ||
		strings.Count(r.err, "\n") != 3 {
		t.Errorf("a wrong policy: %+v", r)
	}
}

func TestAPI_Tunnels(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	session := a.Session()
	tunnel, _, err := a.Store.StartTunnel(t.Context(),
		account.LabelledTunnel{AccountID: a.AccountID, TunnelSession: account.Ref{ID: session},
			Labels:     map[string]string{"app": "api", "site": "a"},
			ForwardsTo: "http://localhost:8080"}, account.TunnelResume{})
	storetest.Must(t, err)
	if table := a.api(0, "tunnels", "list", "-o", "wide").out; !regexp.MustCompile(
		tunnel.ID + ` +app=api,site=a +http://localhost:8080 +` + session).MatchString(table) {
		t.Errorf("tunnels:\n%s", table)
	}
	storetest.Equal(t, "tunnel", a.object("tunnels", "get", tunnel.ID)["id"], any(tunnel.ID))
}
