// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

func TestIdentities_ShowFailedLogins(t *testing.T) {
	t.Parallel()
	f := newFake(testTime())
	f.addLoginFailures()
	srv := dashboardOf(t, f, nil)
	page := signedInAs(t, srv, "flk_read").get(identitiesPath).body
	for _, want := range []string{"access_denied: The user did not consent", "at the provider’s answer", "3 times",
		"The person saw: The identity provider refused the login.", "in memory, and are known since",
		"/ui/endpoints/" + f.endpoints[4].ID, "The provider did not answer within 10 s",
		"last from 203.0.113.9", "ann@example.com (1078)"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
	page = signedInAs(t, srv, "flk_identities").get(identitiesPath).body
	if !strings.Contains(page, "access_denied") || strings.Contains(page, "/ui/endpoints/") {
		t.Error("a key for identities lacks failed logins, or gets links that it may not follow")
	}
	now := traffic.Coverage{Since: f.now}
	for name, c := range map[string]struct {
		failures Traffic
		want     string
		lacks    string
	}{
		"not kept": {nil, "Identities", "Failed logins"},
		"not recorded": {otherFailures{f, func(int) ([]traffic.LoginFailure, traffic.Coverage) {
			return nil, traffic.Coverage{}
		}}, "Identities", "Failed logins"},
		"none": {otherFailures{f, func(int) ([]traffic.LoginFailure, traffic.Coverage) { return nil, now }},
			"None within a day.", "These are the newest."},
		"a silent replica": {otherFailures{f, func(int) ([]traffic.LoginFailure, traffic.Coverage) {
			return nil, traffic.Coverage{Since: f.now, Missing: []string{"rp-2"}}
		}}, "The replica rp-2 does not answer", "These are the newest."},
		"many": {otherFailures{f, func(limit int) ([]traffic.LoginFailure, traffic.Coverage) {
			return slices.Repeat([]traffic.LoginFailure{{Reason: "<b>no</b>", EndpointID: "../x"}}, limit+7), now
		}}, "These are the newest.", "<b>"},
	} {
		srv := dashboardOf(t, f, func(o *Options) { o.Traffic = c.failures })
		page := signedInAs(t, srv, "flk_admin").get(identitiesPath).body
		if !strings.Contains(page, c.want) || strings.Contains(page, c.lacks) || strings.Contains(page, "../x") {
			t.Errorf("%s: %q is missing, or %q is there", name, c.want, c.lacks)
		}
	}
}
