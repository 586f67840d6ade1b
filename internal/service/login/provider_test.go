// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import "testing"

func TestActionURL_FollowsEndpoint(t *testing.T) {
	t.Parallel()
	mapped := Action{EndpointURL: "https://app.example.com:8443", EntityURL: "https://app.example.com", AuthID: "staff"}
	if got := mapped.EntityID(); got != "https://app.example.com/_fairlead/staff/metadata" {
		t.Errorf("the entity id at a mapped port is %s", got)
	}
	for endpoint, want := range map[string]string{
		"https://app.example.com":      "https://app.example.com/_fairlead/staff/callback",
		"https://app.example.com:8443": "https://app.example.com:8443/_fairlead/staff/callback",
	} {
		if got := (Action{EndpointURL: endpoint, AuthID: "staff"}).URL(PathCallback); got != want {
			t.Errorf("%s: got %s, want %s", endpoint, got, want)
		}
	}
}
