// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"slices"
	"testing"
)

func TestMarkedBy_NamesSecretHeadersOfPolicies(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string][]string{
		"": nil, "{": nil, "on_http_request: 7": nil, "[1, 2]": nil,
		`{"on_http_request": [{"actions": [{"type": "add-headers", "config": {"headers": {"x-secret-v2": "s"}}}]}]}`: {
			"X-Secret-V2"},
		`
on_http_request:
  - expressions: ["req.method == 'GET'"]
    actions:
      - type: deny
        config: {status_code: 401}
      - type: remove-headers
        config: {headers: [x-token-removed]}
      - type: add-headers
        config:
          headers: {x-token-upstream: "t", x-caller: "${conn.pod.name}", X_Api_Key_Of_Team: k}
on_http_response:
  - actions: [{type: add-headers, config: {headers: {my-credentials: c, x-secret: {odd: value}}}}]
`: {"My-Credentials", "X-Secret", "X-Token-Upstream", "X_api_key_of_team"},
	} {
		if got := MarkedBy(policy); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", policy, got, want)
		}
	}
}
