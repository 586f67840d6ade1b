// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/beevik/etree"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// TestParseXML_RefusesDangerousDocuments holds what parsers read in different ways, or at great
// cost.
func TestParseXML_RefusesDangerousDocuments(t *testing.T) {
	t.Parallel()
	const notPlain = "a document type, a CDATA section or a comment"
	before := func(s string) func(testing.TB) string {
		return func(t testing.TB) string { return s + validResponse().xml(t) }
	}
	inNameID := func(s string) func(testing.TB) string {
		return editedResponse(func(x *responseSpec) { x.NameID = s })
	}
	onAssertion := func(key, value string) func(testing.TB) string {
		return signedThen(func(_ testing.TB, root *etree.Element) { assertionOf(root).CreateAttr(key, value) })
	}
	expectRefused(t, []attack{
		{name: "empty", make: func(testing.TB) string { return "" }, reason: "no element"},
		{name: "not XML", make: func(testing.TB) string { return "hello" }, reason: "text outside"},
		{name: "cut off", make: func(t testing.TB) string {
			s := validResponse().xml(t)
			return s[:len(s)-20]
		}, reason: "reading XML"},
		{name: "a comment in the NameID", make: replaced(">alice<", ">alice<!-- -->.evil.example<"), reason: notPlain},
		{name: "a signed comment in the NameID", make: inNameID("alice<!-- -->@example.com"), reason: notPlain},
		{name: "a comment before the root", make: before("<!-- hello -->"), reason: notPlain},
		{name: "a CDATA section in the NameID", make: inNameID("alice<![CDATA[@example.com]]>"), reason: notPlain},
		{name: "a document type", make: before("<!DOCTYPE samlp:Response>"), reason: notPlain},
		{name: "an external entity", make: func(t testing.TB) string {
			return `<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>` + strings.Replace(validResponse().xml(t),
				">alice<",
				">&x;<",
				1)
		}, reason: notPlain},
		{name: "a billion laughs", make: func(t testing.TB) string {
			return `<!DOCTYPE r [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">` +
				`<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>` + strings.Replace(validResponse().xml(t), ">alice<",
				">&c;<", 1)
		}, reason: notPlain},
		{name: "an entity without a document type", make: replaced(">alice<", ">&alice;<"), reason: "reading XML"},
		{name: "a processing instruction in the NameID", make: inNameID("alice<?x y?>"),
			reason: "a processing instruction"},
		{name: "a stylesheet", make: before(`<?xml-stylesheet href="x"?>`), reason: "a processing instruction"},
		{name: "a declaration in the middle", make: replaced("<samlp:Status>", `<?xml version="1.0"?><samlp:Status>`),
			reason: "a processing instruction"},
		{name: "UTF-16", make: func(t testing.TB) string {
			var b strings.Builder
			b.WriteString("\xff\xfe")
			for _, u := range utf16.Encode([]rune(`<?xml version="1.0" encoding="UTF-16"?>` + validResponse().xml(t))) {
				b.WriteByte(byte(u))
				b.WriteByte(byte(u >> 8))
			}
			return b.String()
		}, reason: "not UTF-8"},
		{name: "declared as UTF-16, and is UTF-8", make: before(`<?xml version="1.0" encoding="UTF-16"?>`),
			reason: "another encoding"},
		{name: "declared as UTF-7", make: before(`<?xml version="1.0" encoding="UTF-7"?>`), reason: "another encoding"},
		{name: "declared as Latin-1", make: before(`<?xml version="1.0" encoding="ISO-8859-1"?>`),
			reason: "another encoding"},
		{name: "XML 1.1", make: before(`<?xml version="1.1"?>`), reason: "another encoding"},
		{name: "a byte order mark", make: before("\ufeff"), reason: "text outside"},
		{name: "bytes that are no UTF-8", make: replaced(">alice<", ">al\xffice<"), reason: "not UTF-8"},
		{name: "NUL", make: replaced(">alice<", ">alice\x00<"), reason: "not UTF-8"},
		{name: "a reference to NUL", make: replaced(">alice<", ">alice&#0;<"), reason: "reading XML"},
		{name: "text behind the root", make: func(t testing.TB) string {
			return validResponse().xml(t) + "x"
		}, reason: "text outside"},
		{name: "300 KiB", make: func(t testing.TB) string {
			return validResponse().xml(t) + strings.Repeat(" ", 300<<10)
		}, reason: "more than 256 KiB"},
		{name: "deep", make: func(t testing.TB) string {
			return strings.Replace(validResponse().xml(t), "<samlp:Status>",
				strings.Repeat("<samlp:x>", 500)+strings.Repeat("</samlp:x>", 500)+"<samlp:Status>", 1)
		}, reason: "reading XML"},
		{name: "very deep", make: func(testing.TB) string {
			return strings.Repeat("<a>", 60_000)
		}, reason: "more than 1000 elements"},
		{name: "wide", make: func(t testing.TB) string {
			return strings.Replace(validResponse().xml(t), "<samlp:Status>",
				"<samlp:Extensions>"+strings.Repeat("<samlp:x/>", 1001)+
					"</samlp:Extensions><samlp:Status>", 1)
		}, reason: "more than 1000 elements"},
		{name: "many prefixes", make: func(t testing.TB) string {
			var b strings.Builder
			for _, c := range "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" {
				b.WriteString(" xmlns:" + string(c) + `="urn:x"`)
			}
			return strings.Replace(validResponse().xml(t), "<samlp:Response", "<samlp:Response"+b.String(), 1)
		}, reason: "more than 32 prefixes"},

		{name: "the response's ID is the assertion's", make: editedResponse(func(s *responseSpec) {
			s.ResponseID = "_a1"
		}),
			reason: "an ID is there twice"},
		{name: "an ID twice, by another element", make: signedThen(func(_ testing.TB, root *etree.Element) {
			root.SelectElement("samlp:Status").CreateAttr("ID", "_a1")
		}), reason: "an ID is there twice"},
		{name: "an ID twice, in mixed case", make: signedThen(func(_ testing.TB, root *etree.Element) {
			root.SelectElement("samlp:Status").CreateAttr("Id", "_a1")
		}), reason: "an ID is there twice"},
		{name: "xml:id", make: onAssertion("xml:id", "_x"), reason: "an ID is there twice, has a prefix"},
		{name: "an ID with a prefix", make: onAssertion("saml:ID", "_x"), reason: "an ID is there twice, has a prefix"},
		{name: "an Id besides the ID", make: onAssertion("Id", "_x"), reason: "an ID is there twice"},
		{name: "an ID that is no name", make: editedResponse(func(s *responseSpec) { s.AssertionID = "a b" }),
			reason: "is no name"},
		{name: "Id instead of ID", make: func(t testing.TB) string {
			return strings.ReplaceAll(validResponse().xml(t), ` ID="_a1"`, ` Id="_a1"`)
		}, reason: "is of something else"},
		{name: "no ID", make: func(t testing.TB) string {
			return strings.ReplaceAll(validResponse().xml(t), ` ID="_a1"`, ``)
		}, reason: "is of something else"},
		{name: "the ID twice", make: replaced(` ID="_a1"`, ` ID="_evil" ID="_a1"`), reason: `the attribute "ID" twice`},
		{name: "the Destination twice",
			make:   replaced(` Destination=`, ` Destination="https://evil.example/acs" Destination=`),
			reason: `the attribute "Destination" twice`},
		{name: "an attribute twice, under two prefixes of one namespace",
			make:   replaced(` Destination=`, ` xmlns:p="urn:p" xmlns:q="urn:p" p:x="1" q:x="2" Destination=`),
			reason: "twice"},

		{name: "a prefix that is not declared", make: replaced("<samlp:Status>", "<evil:x/><samlp:Status>"),
			reason: "in no namespace"},
		{name: "an attribute's prefix that is not declared",
			make:   replaced("<samlp:Status>", `<samlp:Status evil:x="">`),
			reason: "is not declared"},
		{name: "an element with two colons", make: replaced("<samlp:Status>", "<samlp:a:b/><samlp:Status>"),
			reason: "reading XML"},
		{name: "an element with an empty prefix", make: replaced("<samlp:Status>", "<:x/><samlp:Status>"),
			reason: "the name"},
		{name: "the prefix xml is taken for another namespace",
			make:   replaced("<samlp:Status>", `<samlp:Status xmlns:xml="urn:evil">`),
			reason: `prefix has the name "xml"`},
		{name: "the prefix xmlns is declared",
			make:   replaced("<samlp:Status>", `<samlp:Status xmlns:xmlns="urn:evil">`),
			reason: `prefix has the name "xmlns"`},
		{name: "an element of the prefix xmlns", make: replaced("<samlp:Status>", "<xmlns:x/><samlp:Status>"),
			reason: "the name"},
		{name: "a prefix with the name of the ID, which the signature's library takes for one",
			make: onAssertion("xmlns:ID", "_x"), reason: `prefix has the name "ID"`},
		{name: "a prefix that is declared as nothing", make: replaced("<samlp:Status>", `<samlp:Status xmlns:p="">`),
			reason: "declared as empty"},
		{name: "the default namespace taken back", make: replaced("<samlp:Status>", `<samlp:Status xmlns="">`),
			reason: "declared as empty"},
		{name: "the default namespace is XML's own",
			make:   replaced("<samlp:Status>", `<samlp:Status xmlns="http://www.w3.org/2000/xmlns/">`),
			reason: "declared as empty or"},
		{name: "the assertion's prefix means something else", make: func(t testing.TB) string {
			return strings.ReplaceAll(validResponse().xml(t), `xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion"`,
				`xmlns:saml="urn:evil"`)
		}, reason: "has a child Issuer"},
		{name: "letters that only look like the name",
			make:   replaced("<samlp:Status>", "<samlp:\u0455tatus/><samlp:Status>"),
			reason: "the name"},
	})
}

// TestValidator_RefusesInvalidAssertions holds assertions that are signed by the right key, and are
// not for this place, this time or this reader.
func TestValidator_RefusesInvalidAssertions(t *testing.T) {
	t.Parallel()
	minutes := func(n int) string { return timestamp(time.Duration(n) * time.Minute) }
	expectRefused(t, []attack{
		{name: "another issuer", make: editedResponse(func(s *responseSpec) {
			s.Issuer = "https://other.example.com"
		}), reason: "the issuer is"},
		{name: "no issuer", make: editedResponse(func(s *responseSpec) { s.Issuer = "" }), reason: "the issuer is"},
		{name: "another issuer of the response", make: editedResponse(func(s *responseSpec) {
			s.ResponseIssuer = "https://other.example.com"
		}), reason: "the issuer is"},
		{name: "another audience", make: editedResponse(func(s *responseSpec) {
			s.Audience = "https://other.example.com/_fairlead/staff/metadata"
		}), reason: "for the audience"},
		{name: "the audience of another action", make: editedResponse(func(s *responseSpec) {
			s.Audience = "https://app.example.com/_fairlead/admins/metadata"
		}), reason: "for the audience"},
		{name: "no audience", make: editedResponse(func(s *responseSpec) {
			s.Audience = ""
		}), reason: "names no audience"},
		{name: "two audiences, of which one is ours only in part", make: editedResponse(func(s *responseSpec) {
			s.Conditions = `<saml:AudienceRestriction><saml:Audience>https://other.example.com</saml:Audience>` +
				`</saml:AudienceRestriction>`
		}), reason: "for the audience"},
		{name: "a condition that is not known", make: editedResponse(func(s *responseSpec) {
			s.Conditions = `<saml:Condition/>`
		}),
			reason: "a condition Condition"},
		{name: "no conditions", make: editedResponse(func(s *responseSpec) {
			s.Conditions = "none"
		}), reason: "0 elements Conditions"},
		{name: "another recipient", make: editedResponse(func(s *responseSpec) {
			s.Recipient = "https://app.example.com/_fairlead/admins/acs"
		}), reason: "the assertion is for"},
		{name: "no recipient", make: editedResponse(func(s *responseSpec) {
			s.Recipient = ""
		}), reason: "the assertion is for"},
		{name: "another destination", make: editedResponse(func(s *responseSpec) {
			s.Destination = "https://other.example.com/_fairlead/staff/acs"
		}), reason: "the response is for"},
		{name: "no destination", make: editedResponse(func(s *responseSpec) {
			s.Destination = ""
		}), reason: "the response is for"},
		{name: "the response answers another request than the assertion", make: editedResponse(func(s *responseSpec) {
			s.ResponseInResponseTo = "_q2"
		}), reason: "to another request"},
		{name: "the response answers a request, the assertion none", make: editedResponse(func(s *responseSpec) {
			s.InResponseTo = ""
		}),
			reason: "to another request",
			config: func(c *trafficpolicy.LoginConfig) { c.AllowIdPInitiated = true }},
		{name: "the provider began, which is not admitted", make: editedResponse(func(s *responseSpec) {
			s.ResponseInResponseTo, s.InResponseTo = "", ""
		}), reason: "began at the identity provider"},
		{name: "the provider began, and force_authn is set", make: editedResponse(func(s *responseSpec) {
			s.ResponseInResponseTo, s.InResponseTo = "", ""
		}), reason: "ask you again",
			config: func(c *trafficpolicy.LoginConfig) { c.AllowIdPInitiated, c.ForceAuthn = true, true }},
		{name: "expired", make: editedResponse(func(s *responseSpec) {
			s.NotOnOrAfter = minutes(-1)
		}), reason: "was of use until"},
		{name: "the confirmation expired", make: editedResponse(func(s *responseSpec) {
			s.ConfirmedUntil = minutes(-1)
		}),
			reason: "was of use until"},
		{name: "no end", make: editedResponse(func(s *responseSpec) {
			s.NotOnOrAfter = ""
		}), reason: "NotOnOrAfter of Conditions"},
		{name: "no end of the confirmation", make: editedResponse(func(s *responseSpec) {
			s.ConfirmedUntil = ""
		}), reason: "NotOnOrAfter of SubjectConfirmationData"},
		{name: "good for years, and old", make: editedResponse(func(s *responseSpec) {
			s.Issued, s.NotOnOrAfter, s.ConfirmedUntil = minutes(-62), "9999-01-01T00:00:00Z", "9999-01-01T00:00:00Z"
		}), reason: "was of use until"},
		{name: "not yet", make: editedResponse(func(s *responseSpec) {
			s.NotBefore = minutes(2)
		}), reason: "not of use before"},
		{name: "the response was issued in the future", make: editedResponse(func(s *responseSpec) {
			s.Issued = minutes(2)
		}),
			reason: "the response was issued in the future"},
		{name: "the assertion was issued in the future", make: editedResponse(func(s *responseSpec) {
			s.AssertionIssued = minutes(2)
		}),
			reason: "the assertion was issued at"},
		{name: "asked in the future", make: editedResponse(func(s *responseSpec) { s.Asked = minutes(2) }),
			reason: "asked at"},
		{name: "the provider's session is over", make: editedResponse(func(s *responseSpec) {
			s.SessionEnd = minutes(0)
		}),
			reason: "session ended"},
		{name: "a time without a zone", make: editedResponse(func(s *responseSpec) {
			s.NotOnOrAfter = "2031-11-20T13:00:00"
		}),
			reason: "is no time"},
		{name: "sender-vouches", make: editedResponse(func(s *responseSpec) {
			s.Confirmation = "urn:oasis:names:tc:SAML:2.0:cm:sender-vouches"
		}), reason: "not bearer"},
		{name: "two subjects", make: editedResponse(func(s *responseSpec) {
			s.Attributes = `</saml:AttributeStatement><saml:Subject/><saml:AttributeStatement>`
		}), reason: "2 elements Subject"},
		{name: "two NameIDs", make: editedResponse(func(s *responseSpec) {
			s.NameID = `alice</saml:NameID><saml:NameID>mallory`
		}),
			reason: "2 elements NameID"},
		{name: "an element in the NameID", make: editedResponse(func(s *responseSpec) {
			s.NameID = `alice<saml:x/>@evil`
		}),
			reason: "where text belongs"},
		{name: "an empty NameID", make: editedResponse(func(s *responseSpec) {
			s.NameID = ""
		}), reason: "NameID is empty"},
		{name: "spaces around the NameID", make: editedResponse(func(s *responseSpec) { s.NameID = "alice " }),
			reason: "spaces around it"},
		{name: "a line end in the NameID", make: editedResponse(func(s *responseSpec) {
			s.NameID = "ali&#10;ce"
		}), reason: "spaces around it"},
		{name: "a transient NameID", make: editedResponse(func(s *responseSpec) { s.Format = formatTransient }),
			reason: "transient"},
		{name: "a transient NameID where any is taken", make: editedResponse(func(s *responseSpec) {
			s.Format = formatTransient
		}),
			reason: "transient",
			config: func(c *trafficpolicy.LoginConfig) { c.NameIDFormat = formatUnspecified }},
		{name: "a NameID of another format", make: editedResponse(func(s *responseSpec) {
			s.Format = formatEmail
		}), reason: "has the format"},
		{name: "a NameID of another provider's", make: editedResponse(func(s *responseSpec) {
			s.Qualifiers = ` NameQualifier="https://other.example.com"`
		}), reason: "another identity provider"},
		{name: "a NameID for another service", make: editedResponse(func(s *responseSpec) {
			s.Qualifiers = ` SPNameQualifier="https://other.example.com"`
		}), reason: "another service"},
		{name: "in none of the groups", make: validResponse().xml, reason: `the groups ["eng" "ops"]`,
			config: func(c *trafficpolicy.LoginConfig) { c.AuthorizedGroups = []string{"admins", "Eng"} }},
		{name: "too many values", make: editedResponse(func(s *responseSpec) {
			s.Attributes = `<saml:Attribute Name="groups">` +
				strings.Repeat(`<saml:AttributeValue>g</saml:AttributeValue>`,
					900) + `</saml:Attribute>`
		}), reason: "900 values"},
		{name: "too much text", make: editedResponse(func(s *responseSpec) {
			s.Attributes = `<saml:Attribute Name="x"><saml:AttributeValue>` + strings.Repeat("x", 65<<10) +
				`</saml:AttributeValue></saml:Attribute>`
		}), reason: "more than 800 or 65536"},
		{name: "a failure with an assertion", make: editedResponse(func(s *responseSpec) {
			s.Status = statusPrefix + "Responder"
		}),
			reason: "answered Responder"},
		{name: "a status in letters of another case", make: editedResponse(func(s *responseSpec) {
			s.Status = strings.ToLower(statusSuccess)
		}), reason: "not known here"},
		{name: "success without an assertion", make: signedThen(func(_ testing.TB, root *etree.Element) {
			root.RemoveChild(assertionOf(root))
		}), reason: "has no assertion"},
	})
}

// TestDecodeForm holds posts that bring no response.
func TestDecodeForm(t *testing.T) {
	t.Parallel()
	encoded := base64.StdEncoding.EncodeToString([]byte(validResponse().xml(t)))
	for name, form := range map[string]string{
		"nothing":   "",
		"two":       url.Values{"SAMLResponse": {encoded, encoded}}.Encode(),
		"no base64": url.Values{"SAMLResponse": {"<samlp:Response/>"}}.Encode(),
		"10 MB":     "SAMLResponse=" + strings.Repeat("ICAg", 10<<20/3),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPost, acsURL, strings.NewReader(form))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			_, err := providerWith(t, nil).ConsumeResponse(t.Context(), r, place)
			if cause := causeOf(t, err); !strings.Contains(cause, "form") {
				t.Errorf("got %v", cause)
			}
		})
	}
	t.Run("in the query", func(t *testing.T) {
		t.Parallel()
		r := httptest.NewRequest(http.MethodPost, acsURL+"?"+url.Values{"SAMLResponse": {encoded}}.Encode(),
			http.NoBody)
		_, err := providerWith(t, nil).ConsumeResponse(t.Context(), r, place)
		if cause := causeOf(t, err); !strings.Contains(cause, "0 fields") {
			t.Errorf("got %v", cause)
		}
	})
	t.Run("deflated", func(t *testing.T) { // of the redirect binding: it is not unpacked, so that it cannot be a bomb
		t.Parallel()
		packed, err := deflate(validResponse().document(t))
		if err != nil {
			t.Fatal(err)
		}
		_, err = consume(t, providerWith(t, nil), string(packed))
		if cause := causeOf(t, err); !strings.Contains(cause, "reading the response") {
			t.Errorf("got %v", cause)
		}
	})
}
