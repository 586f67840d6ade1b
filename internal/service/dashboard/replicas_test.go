// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"
	"testing"
	"time"
)

// TestOverview_ShowsReplicas shows the servers of the database, where there are several.
func TestOverview_ShowsReplicas(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	if a := signedInAs(t, dashboardOf(t, f, nil), "flk_read").get("/ui/"); strings.Contains(a.body, "Replicas") {
		t.Error("a server that is alone shows replicas")
	}
	several := dashboardOf(t, f, func(o *Options) {
		o.Replicas = replicaList{{ID: "rp-own", Version: "0.5.0", Own: true},
			{ID: "rp-linked", Linked: true, RoundTrip: 1234 * time.Microsecond}, {ID: "rp-lost"},
			{ID: "rp-stops", Linked: true, Draining: true}}
	})
	page := signedInAs(t, several, "flk_read").get("/ui/").body
	for _, part := range []string{"rp-own", `"status online">shows this page`, "rp-linked", `"status online">linked`,
		"1.23ms",
		"rp-lost", `"status offline">not linked`, "rp-stops", `"status warning">stopping`} {
		if !strings.Contains(page, part) {
			t.Errorf("the overview lacks %s", part)
		}
	}
}
