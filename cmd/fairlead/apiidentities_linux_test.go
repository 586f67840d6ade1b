// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestRevoke_AtTerminal(t *testing.T) {
	t.Parallel()
	a := newAccountAPI(t)
	alice, _ := a.people()
	svc := &service{url: a.env["FAIRLEAD_SERVER_URL"], caFile: a.env["FAIRLEAD_CA_FILE"]}
	for _, c := range []struct{ answer, want string }{{"no\n", "nothing was revoked"}, {"yes\n", alice + " revoked"}} {
		o := startOnTerminal(t, svc, []string{envAPIKey + "=" + a.env[envAPIKey]}, "api", "identities", "revoke", alice)
		o.until(`Their 2 sessions end at once, and what they have open is cut. Type "yes": `)
		if _, err := o.master.WriteString(c.answer); err != nil {
			t.Fatal(err)
		}
		o.until(c.want)
	}
}
