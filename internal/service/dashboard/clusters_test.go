// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

func TestClusters_ShowRefusedTokens(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_read")
	for path, want := range map[string]struct{ shown, hidden string }{
		"/ui/clusters": {"No cluster of the account has a key with the kid", "far too old"},
		"/ui/clusters/" + f.clusters[1].ID: {"it was deleted and made again",
			"has a key with the kid"},
		"/ui/clusters/" + f.clusters[2].ID: {"None within a week", "it was deleted and made again"},
	} {
		if body := b.get(path).body; !strings.Contains(body, want.shown) || strings.Contains(body, want.hidden) {
			t.Errorf("%s does not show %q, or shows %q", path, want.shown, want.hidden)
		}
	}
	f.set(func() { f.clusters = nil })
	if body := b.get("/ui/clusters").body; !strings.Contains(body, "fairlead api clusters create") {
		t.Error("the empty list does not tell the next command")
	}
}

func TestClusters_Delete(t *testing.T) {
	t.Parallel()
	f, b := newSignedIn(t, "flk_admin")
	id := f.clusters[0].ID
	ask := b.get("/ui/clusters/" + id + "/delete")
	for _, want := range []string{"Delete this cluster?", "eu-1", "fairlead/fairlead-operator-exporter",
		"ends within a second"} {
		if !strings.Contains(ask.body, want) {
			t.Errorf("the question lacks %q", want)
		}
	}
	if a := b.post("/ui/clusters/"+id+"/delete", ""); a.status != http.StatusSeeOther ||
		a.header.Get("Location") != "/ui/clusters" {
		t.Errorf("answer %d to %s", a.status, a.header.Get("Location"))
	}
	if body := b.get("/ui/clusters").body; !strings.Contains(body, "The cluster is deleted.") ||
		strings.Contains(body, id) {
		t.Error("the list does not say that the cluster is deleted, or still shows it")
	}
	if len(f.callers) != 1 || f.callers[0] != (account.Caller{AccountID: mine, PrincipalID: f.keys[0].ID}) {
		t.Errorf("deleted by %v", f.callers)
	}
}
