// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"strings"
	"testing"

	"github.com/beevik/etree"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// attack is a response that must be refused for the given reason: a refusal for another reason
// would hide that the check under test is missing.
type attack struct {
	name   string
	make   func(t testing.TB) string
	reason string // part of the cause in the log
	config func(*trafficpolicy.LoginConfig)
}

// expectRefused posts each attack in a subtest and checks why it is refused.
func expectRefused(t *testing.T, attacks []attack) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			c, err := consume(t, providerWith(t, a.config), a.make(t))
			if c != nil {
				t.Fatalf("logged in %q", c.Key)
			}
			if cause := causeOf(t, err); !strings.Contains(cause, a.reason) {
				t.Errorf("refused for %q, want %q", cause, a.reason)
			}
		})
	}
}

// signedThen signs the assertion of a valid response and then changes the document.
func signedThen(edit func(t testing.TB, root *etree.Element)) func(testing.TB) string {
	return func(t testing.TB) string { return editSigned(t, validResponse(), edit) }
}

// responseSignedThen signs a valid response, not its assertion, and then changes the document.
func responseSignedThen(edit func(t testing.TB, root *etree.Element)) func(testing.TB) string {
	return func(t testing.TB) string {
		s := validResponse()
		s.signResponse = true
		return editSigned(t, s, edit)
	}
}

func editSigned(t testing.TB, s *responseSpec, edit func(testing.TB, *etree.Element)) string {
	doc := s.document(t)
	edit(t, doc.Root())
	return asXML(t, doc)
}

// editedResponse changes the content of a valid response before it is signed.
func editedResponse(edit func(*responseSpec)) func(testing.TB) string {
	return func(t testing.TB) string {
		s := validResponse()
		edit(s)
		return s.xml(t)
	}
}

// replaced changes the text of a valid response after it is signed.
func replaced(from, to string) func(testing.TB) string {
	return func(t testing.TB) string {
		before := validResponse().xml(t)
		after := strings.Replace(before, from, to, 1)
		if before == after {
			t.Fatalf("%q is not in the response", from)
		}
		return after
	}
}

func assertionOf(root *etree.Element) *etree.Element { return root.SelectElement("saml:Assertion") }

// evilCopy returns a copy of e that names the attacker, without a signature, under another ID.
func evilCopy(e *etree.Element) *etree.Element {
	evil := e.Copy()
	for _, sig := range evil.FindElements(".//ds:Signature") {
		sig.Parent().RemoveChild(sig)
	}
	evil.CreateAttr("ID", "_evil")
	for _, n := range evil.FindElements(".//saml:NameID") {
		n.SetText("mallory")
	}
	return evil
}

// makeEvil changes the signed element e to name the attacker, under another ID but with e's
// signature, and returns an unsigned copy of the original.
func makeEvil(e *etree.Element) (original *etree.Element) {
	original = e.Copy()
	original.RemoveChild(original.SelectElement("ds:Signature"))
	e.CreateAttr("ID", "_evil")
	e.FindElement(".//saml:NameID").SetText("mallory")
	return original
}
