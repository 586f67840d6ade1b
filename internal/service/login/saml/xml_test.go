// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"strings"
	"testing"
	"unicode/utf16"
)

// prefixed puts text before a valid response.
func prefixed(text string) func(testing.TB) string {
	return func(t testing.TB) string { return text + validResponse().xml(t) }
}

// suffixed puts text behind a valid response.
func suffixed(text string) func(testing.TB) string {
	return func(t testing.TB) string { return validResponse().xml(t) + text }
}

// beforeStatus puts XML before the Status of a signed response.
func beforeStatus(xml string) func(testing.TB) string {
	return replaced("<samlp:Status>", xml+"<samlp:Status>")
}

// nameIDResponse signs a response with that XML in its NameID.
func nameIDResponse(xml string) func(testing.TB) string {
	return editedResponse(func(s *responseSpec) { s.NameID = xml })
}

// TestParseXML_RefusesMalformedDocuments refuses what is no XML document.
func TestParseXML_RefusesMalformedDocuments(t *testing.T) {
	t.Parallel()
	expectRefused(t, []attack{
		{name: "empty", reason: "no element", make: func(testing.TB) string { return "" }},
		{name: "not XML", reason: "text outside", make: func(testing.TB) string { return "hello" }},
		{name: "cut off", reason: "reading XML", make: func(t testing.TB) string {
			s := validResponse().xml(t)
			return s[:len(s)-20]
		}},
		{name: "text behind the root", reason: "text outside", make: suffixed("x")},
		{name: "an entity without a document type", reason: "reading XML", make: replaced(">alice<", ">&alice;<")},
		{name: "a reference to NUL", reason: "reading XML", make: replaced(">alice<", ">alice&#0;<")},
		{name: "an element with two colons", reason: "reading XML", make: beforeStatus("<samlp:a:b/>")},
	})
}

// TestParseXML_RefusesMarkup accepts elements and text only.
func TestParseXML_RefusesMarkup(t *testing.T) {
	t.Parallel()
	const notPlain = "a document type, a CDATA section or a comment"
	withEntities := func(documentType, reference string) func(testing.TB) string {
		return func(t testing.TB) string { return documentType + replaced(">alice<", ">"+reference+"<")(t) }
	}
	expectRefused(t, []attack{
		{name: "a comment in the NameID", reason: notPlain,
			make: replaced(">alice<", ">alice<!-- -->.evil.example<")},
		{name: "a signed comment in the NameID", reason: notPlain, make: nameIDResponse("alice<!-- -->@example.com")},
		{name: "a comment before the root", reason: notPlain, make: prefixed("<!-- hello -->")},
		{name: "a CDATA section in the NameID", reason: notPlain,
			make: nameIDResponse("alice<![CDATA[@example.com]]>")},
		{name: "a document type", reason: notPlain, make: prefixed("<!DOCTYPE samlp:Response>")},
		{name: "an external entity", reason: notPlain,
			make: withEntities(`<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>`, "&x;")},
		{name: "a billion laughs", reason: notPlain,
			make: withEntities(`<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa">`+
				`<!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>`, "&c;")},
		{name: "a processing instruction in the NameID", reason: "a processing instruction",
			make: nameIDResponse("alice<?x y?>")},
		{name: "a stylesheet", reason: "a processing instruction", make: prefixed(`<?xml-stylesheet href="x"?>`)},
		{name: "a declaration in the middle", reason: "a processing instruction",
			make: beforeStatus(`<?xml version="1.0"?>`)},
	})
}

// TestParseXML_RefusesOtherEncodings accepts UTF-8 only.
func TestParseXML_RefusesOtherEncodings(t *testing.T) {
	t.Parallel()
	const other = "another encoding"
	expectRefused(t, []attack{
		{name: "UTF-16", reason: "not UTF-8", make: func(t testing.TB) string {
			var b strings.Builder
			b.WriteString("\xff\xfe")
			for _, u := range utf16.Encode([]rune(prefixed(`<?xml version="1.0" encoding="UTF-16"?>`)(t))) {
				b.WriteByte(byte(u))
				b.WriteByte(byte(u >> 8))
			}
			return b.String()
		}},
		{name: "declared as UTF-16, and is UTF-8", reason: other,
			make: prefixed(`<?xml version="1.0" encoding="UTF-16"?>`)},
		{name: "declared as UTF-7", reason: other, make: prefixed(`<?xml version="1.0" encoding="UTF-7"?>`)},
		{name: "declared as Latin-1", reason: other, make: prefixed(`<?xml version="1.0" encoding="ISO-8859-1"?>`)},
		{name: "XML 1.1", reason: other, make: prefixed(`<?xml version="1.1"?>`)},
		{name: "a byte order mark", reason: "text outside", make: prefixed("\ufeff")},
		{name: "bytes that are no UTF-8", reason: "not UTF-8", make: replaced(">alice<", ">al\xffice<")},
		{name: "NUL", reason: "not UTF-8", make: replaced(">alice<", ">alice\x00<")},
	})
}

// TestParseXML_LimitsSize refuses documents that are expensive to read.
func TestParseXML_LimitsSize(t *testing.T) {
	t.Parallel()
	expectRefused(t, []attack{
		{name: "300 KiB", reason: "more than 256 KiB", make: suffixed(strings.Repeat(" ", 300<<10))},
		{name: "deep", reason: "reading XML",
			make: beforeStatus(strings.Repeat("<samlp:x>", 500) + strings.Repeat("</samlp:x>", 500))},
		{name: "very deep", reason: "more than 1000 elements", make: func(testing.TB) string {
			return strings.Repeat("<a>", 60_000)
		}},
		{name: "wide", reason: "more than 1000 elements",
			make: beforeStatus("<samlp:Extensions>" + strings.Repeat("<samlp:x/>", 1001) + "</samlp:Extensions>")},
		{name: "many prefixes", reason: "more than 32 prefixes", make: func(t testing.TB) string {
			var b strings.Builder
			for _, c := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
				b.WriteString(" xmlns:" + string(c) + `="urn:x"`)
			}
			return replaced("<samlp:Response", "<samlp:Response"+b.String())(t)
		}},
	})
}
