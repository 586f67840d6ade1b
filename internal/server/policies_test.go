// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import "testing"

// The store keeps a text with a digest, and none without: a document without a rule has one, too.
func TestAPolicyWithoutRulesHasADigest(t *testing.T) {
	t.Parallel()
	digests := map[string]string{}
	for _, text := range []string{"{}", "# nothing yet\n", `{"on_http_request":[]}`, "on_http_request: [{actions: [{type: deny}]}]"} {
		facts, err := compilePolicy(text, "http", "kubernetes")
		if err != nil || facts.Digest == "" {
			t.Errorf("%q: digest %q, %v", text, facts.Digest, err)
		}
		digests[facts.Digest] = text
	}
	if len(digests) != 2 {
		t.Errorf("digests %v, want one for what has no rule and one for the other", digests)
	}
}
