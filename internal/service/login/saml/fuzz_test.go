// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"strings"
	"testing"
)

// FuzzConsume checks that ConsumeResponse does not panic on any post, and accepts only the subject
// that the identity provider has signed.
func FuzzConsume(f *testing.F) {
	p := providerWith(f, nil)
	both := validResponse()
	both.signResponse, both.assertion.by = true, trustedSigner()
	only := validResponse()
	only.signResponse = true
	for _, s := range []*responseSpec{validResponse(), both, only} {
		f.Add(s.xml(f))
	}
	for _, edit := range []func(testing.TB) string{
		replaced(">alice<", ">mallory<"), replaced(` ID="_a1"`, ` ID="_b" ID="_a1"`),
		replaced("<samlp:Status>", `<samlp:Status xmlns="urn:x" Id="_x">`),
		editedResponse(func(s *responseSpec) {
			s.Extensions = "<samlp:Extensions><x:y xmlns:x='urn:x'>&#10;&amp;</x:y></samlp:Extensions>"
		}),
		editedResponse(func(s *responseSpec) { s.signNothing = true }),
	} {
		f.Add(edit(f))
	}
	f.Fuzz(func(t *testing.T, response string) {
		c, err := consume(t, p, response)
		if err != nil && strings.Contains(err.Error(), "panic") {
			t.Fatal(err)
		}
		if c != nil && (!strings.HasSuffix(c.Key, "\x00alice") || c.Identity.Email != "alice@example.com" ||
			len(c.Identity.Groups) != 2) {
			t.Fatalf("logged in %+v", c)
		}
	})
}
