// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestExplain_PrintsMeaningAndRemedy(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"err_fl_3001":       {"ERR_FL_3001, HTTP status 503: endpoint offline\nThe", "\nRemedy: Start"},
		"NamespaceNotFound": {"BoundEndpoint, reason NamespaceNotFound:\n", "\nRemedy: create the namespace"},
		"Ready": {"BoundEndpoint, condition Ready, is True while\nServicesReady", "AgentEndpoint, reason Ready:\n",
			"\nRemedy: nothing."},
	} {
		got := fairlead(t, nil, "", "explain", name)
		for _, text := range want {
			if got.code != 0 || !strings.Contains(got.out, text) {
				t.Errorf("explain %s: code %d, no %q in:\n%s%s", name, got.code, text, got.out, got.err)
			}
		}
	}
	for _, args := range [][]string{{"explain"}, {"explain", "ERR_FL_9999"}} {
		if got := fairlead(t, nil, "", args...); got.code != exitUsage || !strings.Contains(got.err, "condition") {
			t.Errorf("%v: code %d: %s", args, got.code, got.err)
		}
	}
}
