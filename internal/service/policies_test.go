// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// The store keeps a text with a digest, and none without: a document without a rule has one, too.
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

// Mistakes of SAML that nobody would see before the first login are told when the policy is set.
func TestCompilePolicy_RefusesInvalidSAMLMetadata(t *testing.T) {
	t.Parallel()
	for config, want := range map[string]string{
		`{idp_metadata: "<EntityDescriptor/>"}`: "idp_metadata: its root is neither",
		`{idp_metadata_url: "https://idp.example.com", nameid_format: "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"}`: "use persistent",
	} {
		_, err := compilePolicy("on_http_request: [{actions: [{type: saml, config: "+config+"}]}]", "https", "public")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", config, err, want)
		}
	}
}

// A static backend to which the server would never connect is refused when it is made, with the
// flag that permits it.
func TestServer_RefusesForbiddenStaticAddress(t *testing.T) {
	t.Parallel()
	r := startServer(t, func(o *Options) { o.StaticAllow = []string{"10.1.0.0/16"} })
	for address, want := range map[string]int{"10.0.0.1:80": 400, "localhost:80": 400, "10.1.2.3:80": 201,
		"db.example.com:5432": 201} {
		var answer struct {
			ID     string
			Errors []account.FieldError
		}
		if status := r.callAPI("POST", "/backends/static", map[string]any{"address": address}, &answer); status != want {
			t.Errorf("%s: %d", address, status)
		}
		switch {
		case want == 400 && (len(answer.Errors) != 1 || answer.Errors[0].Field != "address" ||
			!strings.Contains(answer.Errors[0].Rule, "--static-allow can permit it")):
			t.Errorf("%s: %+v", address, answer)
		case want == 201:
			if status := r.callAPI("PATCH", "/backends/static/"+answer.ID, map[string]any{"address": "127.0.0.1:1"},
				nil); status != 400 {
				t.Errorf("a change of %s: %d", address, status)
			}
		}
	}
}
