// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// metricsText returns what a scrape answers.
func metricsText(r *runningForwarder) string {
	w := httptest.NewRecorder()
	r.metrics.handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

func TestStatus_WithoutReplicas(t *testing.T) {
	t.Parallel()
	r := connected(t, startEdge(t, respond), shortTiming())
	wait.Until(t, "the session", func() bool { return r.edge.status().Up })
	text, err := json.Marshal(r.edge.status())
	if err != nil || strings.Contains(string(text), "legs") {
		t.Errorf("the status is %s, %v", text, err)
	}
	if m := metricsText(r); !strings.Contains(m, "fairlead_forwarder_legs 1\n") ||
		!strings.Contains(m, "fairlead_forwarder_legs_wanted 1\n") {
		t.Error(m)
	}
}

func TestStatus_MissingReplicas(t *testing.T) {
	t.Parallel()
	e := startEdge(t, respond)
	e.replica, e.replicas = "rp-1", 12
	r := connected(t, e, shortTiming())
	wait.Until(t, "the session", func() bool { return r.edge.status().WantedLegs > 0 })
	s := r.edge.status()
	if d := cmp.Diff([]LegStatus{{Replica: "rp-1"}}, s.Legs); d != "" || !s.Up || s.WantedLegs != maxLegs ||
		s.LegsMissingSince == nil {
		t.Errorf("the status is %+v %s", s, d)
	}
	if m := metricsText(r); !strings.Contains(m, "fairlead_forwarder_legs_wanted 8\n") {
		t.Error(m)
	}
	other, since := s, *s.LegsMissingSince
	other.Legs, other.LegsMissingSince = []LegStatus{{Replica: "rp-1"}}, &since
	if _, different := (Status{Session: s}).delta(Status{Session: other}); different {
		t.Error("the same session is a change")
	}
	other.Legs[0].Draining = true
	if d, _ := (Status{Session: other}).delta(Status{Session: s}); d.Session == nil {
		t.Error("a replica that drains is no change")
	}
}
