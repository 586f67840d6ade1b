// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"flag"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/chromium"
)

var (
	screenshots = flag.String("screenshots", "", "write a picture of every page, in both themes, into this folder")
	shotWidth   = flag.Int64("screenshot-width", 1280, "width of the pictures")
)

// shownPages are the pages that there are, by the name of their picture. Tests of the whole look at
// each.
func shownPages(f *fake) []shownPage {
	policy := "/ui/traffic-policy/"
	return []shownPage{
		{"overview", "/ui/", ""},
		{"map", "/ui/map", ""},
		{"traffic", "/ui/traffic", ""},
		{"traffic-endpoint", "/ui/endpoints/" + f.endpoints[0].ID + "/traffic", ""},
		{"traffic-failing", "/ui/endpoints/" + f.endpoints[3].ID + "/traffic?requests=failing&window=day", ""},
		{"traffic-tcp", "/ui/endpoints/" + f.endpoints[1].ID + "/traffic", ""},
		{"traffic-none", "/ui/endpoints/" + f.endpoints[6].ID + "/traffic", ""},
		{"traffic-backend", "/ui/backends/" + f.backends[3].ID + "/traffic", ""},
		{"path", "/ui/endpoints/" + f.endpoints[2].ID + "/path", ""},
		{"endpoints", "/ui/endpoints", ""},
		{"endpoint", "/ui/endpoints/" + f.endpoints[4].ID, ""},
		{"endpoint-offline", "/ui/endpoints/" + f.endpoints[2].ID, ""},
		{"kubernetes-operators", "/ui/kubernetes-operators", ""},
		{"kubernetes-operator", "/ui/kubernetes-operators/" + f.ops[1].ID, ""},
		{"backends", "/ui/backends", ""},
		{"backend", "/ui/backends/" + f.backends[3].ID, ""},
		{"backend-tunnel-group", "/ui/backends/" + f.backends[0].ID, ""},
		{"backend-http-response", "/ui/backends/" + f.backends[2].ID, ""},
		{"endpoint-new", "/ui/endpoints/new", ""},
		{"endpoint-edit", "/ui/endpoints/" + f.endpoints[4].ID + "/edit", ""},
		{"endpoint-delete", "/ui/endpoints/" + f.endpoints[3].ID + "/delete", ""},
		{"backend-new-static", "/ui/backends/new/static", ""},
		{"backend-edit-failover", "/ui/backends/" + f.backends[3].ID + "/edit", ""},
		{"backend-edit-weighted", "/ui/backends/" + f.backends[5].ID + "/edit", ""},
		{"backend-edit-http-response", "/ui/backends/" + f.backends[2].ID + "/edit", ""},
		{"backend-edit-tunnel-group", "/ui/backends/" + f.backends[0].ID + "/edit", ""},
		{"backend-delete", "/ui/backends/" + f.backends[0].ID + "/delete", ""},
		{"agents", "/ui/agents", ""},
		{"agent", "/ui/agents/" + f.agents[0].ID, ""},
		{"identities", policy + "identities", ""},
		{"identities-none", policy + "identities?q=nobody-at-all", ""},
		{"identities-filtered", policy + "identities?sort=last_active&endpoint=app&ip=203.0.113.&country=DE", ""},
		{"identity", policy + "identities/" + f.users[0].ID, ""},
		{"identity-endpoint", policy + "identities/" + f.users[0].ID + "/endpoint?url=" +
			url.QueryEscape(f.endpoints[4].URL), ""},
		{"identity-revoked", policy + "identities/" + f.revokedBefore(), ""},
		{"sign-out-everywhere", policy + "identities/" + f.users[0].ID + "/sign-out", ""},
		{"revoke-github", policy + "identities/" + f.users[4].ID + "/revoke", ""},
		{"session", policy + "sessions/" + f.sessions[0].ID, ""},
		{"revoke", policy + "identities/" + f.users[0].ID + "/revoke", ""},
		{"revoke-dialog", policy + "identities", "a[href*='" + f.users[0].ID + "/revoke']"},
		{"api-keys", "/ui/api-keys", ""},
		{"api-key-new", "/ui/api-keys/new", ""},
		{"authtokens", "/ui/authtokens", ""},
		{"authtoken-new", "/ui/authtokens/new", ""},
		{"clusters", "/ui/clusters", ""},
		{"cluster", "/ui/clusters/" + f.clusters[1].ID, ""},
		{"events", "/ui/events?object_id=" + f.endpoints[0].ID, ""},
		{"not-found", "/ui/endpoints/ep-0000000000000000000000000z", ""},
	}
}

type shownPage struct {
	name, path string
	press      string // opens a dialog
}

// TestScreenshots renews docs/dashboard: make dashboard-screenshots.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("only with -screenshots")
	}
	f := newFake(time.Now())
	f.addLoginFailures()
	srv := dashboardOf(t, f, func(o *Options) { o.Clock = time.Now })
	b := &chromium.Tab{T: t, Ctx: chromium.Start(t, true), Base: chromium.Localhost(srv.URL)}
	shoot := func(name, theme string) {
		height := chromium.Eval[int64](b, "document.documentElement.scrollHeight")
		b.Resize(*shotWidth, max(*shotWidth*9/16, height), theme)
		b.Screenshot(filepath.Join(*screenshots, name+"-"+theme+".png"), int(*shotWidth*5/4))
	}
	for _, theme := range []string{"light", "dark"} {
		b.Resize(*shotWidth, *shotWidth*9/16, theme)
		b.Open("/ui/sign-in")
		shoot("sign-in", theme)
	}
	setSignIn(b, signedInAs(t, srv, "flk_admin"))
	for _, theme := range []string{"light", "dark"} {
		b.Resize(*shotWidth, *shotWidth*9/16, theme)
		for _, p := range shownPages(f) {
			b.Open(p.path)
			if p.press != "" {
				chromium.Eval[bool](b, fmt.Sprintf("(document.querySelector(%q).click(), true)", p.press))
				b.WaitUntil("the dialog", "document.querySelector('dialog[open] form')")
			}
			shoot(p.name, theme)
			b.Resize(*shotWidth, *shotWidth*9/16, theme)
		}
		for _, state := range editorStates() {
			state.open(t, b, f)
			shoot(state.name, theme)
			b.Resize(*shotWidth, *shotWidth*9/16, theme)
		}
	}
}
