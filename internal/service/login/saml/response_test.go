// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"strings"
	"testing"

	"github.com/beevik/etree"
)

// assertionAttr adds an attribute to the signed assertion.
func assertionAttr(key, value string) func(testing.TB) string {
	return signedThen(func(_ testing.TB, root *etree.Element) { assertionOf(root).CreateAttr(key, value) })
}

// statusAttr adds an attribute to the Status of a signed response.
func statusAttr(attribute string) func(testing.TB) string {
	return replaced("<samlp:Status>", "<samlp:Status "+attribute+">")
}

// replacedAll changes the text of a valid response wherever it occurs.
func replacedAll(from, to string) func(testing.TB) string {
	return func(t testing.TB) string { return strings.ReplaceAll(validResponse().xml(t), from, to) }
}

// TestParseResponse_RefusesAmbiguousIDs refuses an ID that two readers could find at different
// elements.
func TestParseResponse_RefusesAmbiguousIDs(t *testing.T) {
	t.Parallel()
	const ambiguous = "an ID is there twice, has a prefix, or is no name"
	expectRefused(t, []attack{
		{name: "the response's ID is the assertion's", reason: ambiguous,
			make: editedResponse(func(s *responseSpec) { s.ResponseID = "_a1" })},
		{name: "an ID twice, by another element", reason: ambiguous, make: statusAttr(`ID="_a1"`)},
		{name: "an ID twice, in mixed case", reason: ambiguous, make: statusAttr(`Id="_a1"`)},
		{name: "xml:id", reason: ambiguous, make: assertionAttr("xml:id", "_x")},
		{name: "an ID with a prefix", reason: ambiguous, make: assertionAttr("saml:ID", "_x")},
		{name: "an Id besides the ID", reason: ambiguous, make: assertionAttr("Id", "_x")},
		{name: "an ID that is no name", reason: ambiguous,
			make: editedResponse(func(s *responseSpec) { s.AssertionID = "a b" })},
		{name: "Id instead of ID", reason: "is of something else", make: replacedAll(` ID="_a1"`, ` Id="_a1"`)},
		{name: "no ID", reason: "is of something else", make: replacedAll(` ID="_a1"`, ``)},
		{name: "the ID twice", reason: `the attribute "ID" twice`,
			make: replaced(` ID="_a1"`, ` ID="_evil" ID="_a1"`)},
	})
}

// TestParseResponse_RefusesDuplicateAttributes refuses an element with two attributes of one name.
func TestParseResponse_RefusesDuplicateAttributes(t *testing.T) {
	t.Parallel()
	expectRefused(t, []attack{
		{name: "the Destination twice", reason: `the attribute "Destination" twice`,
			make: replaced(` Destination=`, ` Destination="https://evil.example/acs" Destination=`)},
		{name: "under two prefixes of one namespace", reason: "twice",
			make: replaced(` Destination=`, ` xmlns:p="urn:p" xmlns:q="urn:p" p:x="1" q:x="2" Destination=`)},
	})
}

// TestParseResponse_RefusesAmbiguousNamespaces refuses names and declarations that parsers resolve
// differently.
func TestParseResponse_RefusesAmbiguousNamespaces(t *testing.T) {
	t.Parallel()
	expectRefused(t, []attack{
		{name: "an undeclared prefix", reason: "in no namespace", make: beforeStatus("<evil:x/>")},
		{name: "an attribute with an undeclared prefix", reason: "is not declared", make: statusAttr(`evil:x=""`)},
		{name: "an element with an empty prefix", reason: "the name", make: beforeStatus("<:x/>")},
		{name: "the prefix xml of another namespace", reason: `prefix has the name "xml"`,
			make: statusAttr(`xmlns:xml="urn:evil"`)},
		{name: "a declaration of the prefix xmlns", reason: `prefix has the name "xmlns"`,
			make: statusAttr(`xmlns:xmlns="urn:evil"`)},
		{name: "an element with the prefix xmlns", reason: "the name", make: beforeStatus("<xmlns:x/>")},
		{name: "the prefix ID, which the signature's library reads as an ID", reason: `prefix has the name "ID"`,
			make: assertionAttr("xmlns:ID", "_x")},
		{name: "an empty prefix declaration", reason: "declared as empty", make: statusAttr(`xmlns:p=""`)},
		{name: "an empty default namespace", reason: "declared as empty", make: statusAttr(`xmlns=""`)},
		{name: "XML's own namespace as the default", reason: "declared as empty or",
			make: statusAttr(`xmlns="http://www.w3.org/2000/xmlns/"`)},
		{name: "another namespace of the assertion's prefix", reason: "has a child Issuer",
			make: replacedAll(`xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion"`, `xmlns:saml="urn:evil"`)},
		{name: "letters that only look like the name", reason: "the name",
			make: beforeStatus("<samlp:\u0455tatus/>")},
	})
}
