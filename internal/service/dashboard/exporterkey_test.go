// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestCredentials_CreateExporterKey(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	a := b.post("/ui/api-keys/new", url.Values{"description": {"Prod"}, "scopes": {"exporter"},
		"cluster_uid": {" 1f0c "},
		"acl":         {"export:team-a/*\r\nbind:*"}}.Encode())
	key := f.keys[len(f.keys)-1]
	if a.status != http.StatusCreated || !slices.Equal(key.ACL, []string{"export:team-a/*", "bind:*"}) ||
		key.ClusterUID != "1f0c" || !strings.Contains(a.body, "export:team-a/*") {
		t.Errorf("a new key: %d, %+v", a.status, key)
	}
	for _, path := range []string{"/ui/api-keys", "/ui/api-keys/" + key.ID + "/delete"} {
		if body := b.get(path).body; !strings.Contains(body, "export:team-a/*") || !strings.Contains(body, "1f0c") {
			t.Errorf("%s lacks the rules or the cluster", path)
		}
	}
	b.post("/ui/api-keys/new", "scopes=exporter")
	if key = f.keys[len(f.keys)-1]; !slices.Equal(key.ACL, account.DefaultExporterACL()) || key.ClusterUID != "" {
		t.Errorf("a key without rules: %+v", key)
	}
	for form, text := range map[string]string{
		"scopes=exporter&scopes=read":         "Goes with no other scope",
		"scopes=exporter&acl=export:team-a":   "export:team-a/*",
		"scopes=exporter&cluster_uid=a%20b":   "cluster_uid-problem",
		"scopes=read&acl=export:*":            "acl-problem",
		"scopes=read&cluster_uid=kept-by-all": "kept-by-all",
	} {
		if a := b.post("/ui/api-keys/new", form); a.status != http.StatusBadRequest || !strings.Contains(a.body, text) {
			t.Errorf("%s: %d, want 400 with %q", form, a.status, text)
		}
	}
}
