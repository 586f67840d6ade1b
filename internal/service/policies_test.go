// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"strings"
	"testing"
)

// TestCompilePolicy_EmptyPolicyHasDigest: the store keeps no policy that has no digest, so one
// without rules needs one, too.
func TestCompilePolicy_EmptyPolicyHasDigest(t *testing.T) {
	t.Parallel()
	digests := map[string]string{}
	for _, text := range []string{"{}", "# nothing yet\n", `{"on_http_request":[]}`,
		"on_http_request: [{actions: [{type: deny}]}]"} {
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

// TestCompilePolicy_RefusesInvalidSAMLMetadata checks mistakes that would otherwise show at the
// first login.
func TestCompilePolicy_RefusesInvalidSAMLMetadata(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{idp_metadata: "<EntityDescriptor/>"}`: "idp_metadata: its root is neither",
		`{idp_metadata_url: "https://idp.example.com", ` +
			`nameid_format: "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"}`: "use persistent",
	} {
		_, err := compilePolicy("on_http_request: [{actions: [{type: saml, config: "+config+"}]}]", "https", "public")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", config, err, want)
		}
	}
}
