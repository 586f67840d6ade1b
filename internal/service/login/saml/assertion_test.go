// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"strings"
	"testing"
	"time"

	"github.com/beevik/etree"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// invalidAssertion is a response whose signatures are valid, and whose content is not.
type invalidAssertion struct {
	name   string
	edit   func(*responseSpec) // before it is signed; nil = none
	config func(*trafficpolicy.LoginConfig)
	reason string // part of the cause in the log
}

func expectInvalid(t *testing.T, assertions []invalidAssertion) {
	attacks := make([]attack, 0, len(assertions))
	for _, a := range assertions {
		if a.edit == nil {
			a.edit = func(*responseSpec) {}
		}
		attacks = append(attacks, attack{name: a.name, make: editedResponse(a.edit), reason: a.reason,
			config: a.config})
	}
	expectRefused(t, attacks)
}

// TestValidator_ChecksParties refuses responses of another issuer, and for another service or
// action.
func TestValidator_ChecksParties(t *testing.T) {
	t.Parallel()
	const other = "https://other.example.com"
	expectInvalid(t, []invalidAssertion{
		{name: "another issuer", reason: "the issuer is", edit: func(s *responseSpec) { s.Issuer = other }},
		{name: "no issuer", reason: "the issuer is", edit: func(s *responseSpec) { s.Issuer = "" }},
		{name: "another issuer of the response", reason: "the issuer is",
			edit: func(s *responseSpec) { s.ResponseIssuer = other }},
		{name: "another audience", reason: "for the audience",
			edit: func(s *responseSpec) { s.Audience = other + "/_fairlead/staff/metadata" }},
		{name: "the audience of another action", reason: "for the audience",
			edit: func(s *responseSpec) { s.Audience = "https://app.example.com/_fairlead/admins/metadata" }},
		{name: "no audience", reason: "names no audience", edit: func(s *responseSpec) { s.Audience = "" }},
		{name: "two restrictions, one without our audience", reason: "for the audience",
			edit: func(s *responseSpec) {
				s.Conditions = `<saml:AudienceRestriction><saml:Audience>` + other +
					`</saml:Audience></saml:AudienceRestriction>`
			}},
		{name: "another recipient", reason: "the assertion is for",
			edit: func(s *responseSpec) { s.Recipient = "https://app.example.com/_fairlead/admins/acs" }},
		{name: "no recipient", reason: "the assertion is for", edit: func(s *responseSpec) { s.Recipient = "" }},
		{name: "another destination", reason: "the response is for",
			edit: func(s *responseSpec) { s.Destination = other + "/_fairlead/staff/acs" }},
		{name: "no destination", reason: "the response is for", edit: func(s *responseSpec) { s.Destination = "" }},
	})
}

// TestValidator_ChecksInResponseTo refuses a response that names another request than its
// assertion, and one to no request with force_authn. Package login refuses one to no request unless
// the config allows it.
func TestValidator_ChecksInResponseTo(t *testing.T) {
	t.Parallel()
	allowUnsolicited := func(c *trafficpolicy.LoginConfig) { c.AllowIdPInitiated = true }
	unsolicited := func(s *responseSpec) { s.ResponseInResponseTo, s.InResponseTo = "", "" }
	expectInvalid(t, []invalidAssertion{
		{name: "another request than the assertion", reason: "to another request",
			edit: func(s *responseSpec) { s.ResponseInResponseTo = "_q2" }},
		{name: "a request, the assertion none", reason: "to another request", config: allowUnsolicited,
			edit: func(s *responseSpec) { s.InResponseTo = "" }},
		{name: "IdP-initiated, with force_authn", reason: "ask you again", edit: unsolicited,
			config: func(c *trafficpolicy.LoginConfig) { c.AllowIdPInitiated, c.ForceAuthn = true, true }},
	})
}

// TestValidator_ChecksTimes refuses responses that are expired, not valid yet, issued in the future
// or without an end.
func TestValidator_ChecksTimes(t *testing.T) {
	t.Parallel()
	minutes := func(n int) string { return timestamp(time.Duration(n) * time.Minute) }
	expectInvalid(t, []invalidAssertion{
		{name: "expired", reason: "was of use until", edit: func(s *responseSpec) { s.NotOnOrAfter = minutes(-1) }},
		{name: "the confirmation expired", reason: "was of use until",
			edit: func(s *responseSpec) { s.ConfirmedUntil = minutes(-1) }},
		{name: "no end", reason: "NotOnOrAfter of Conditions", edit: func(s *responseSpec) { s.NotOnOrAfter = "" }},
		{name: "no end of the confirmation", reason: "NotOnOrAfter of SubjectConfirmationData",
			edit: func(s *responseSpec) { s.ConfirmedUntil = "" }},
		{name: "valid for years, and old", reason: "was of use until", edit: func(s *responseSpec) {
			s.Issued, s.NotOnOrAfter, s.ConfirmedUntil = minutes(-62), "9999-01-01T00:00:00Z", "9999-01-01T00:00:00Z"
		}},
		{name: "not yet", reason: "not of use before", edit: func(s *responseSpec) { s.NotBefore = minutes(2) }},
		{name: "the response was issued in the future", reason: "the response was issued in the future",
			edit: func(s *responseSpec) { s.Issued = minutes(2) }},
		{name: "the assertion was issued in the future", reason: "the assertion was issued at",
			edit: func(s *responseSpec) { s.AssertionIssued = minutes(2) }},
		{name: "asked in the future", reason: "asked at", edit: func(s *responseSpec) { s.Asked = minutes(2) }},
		{name: "the provider's session is over", reason: "session ended",
			edit: func(s *responseSpec) { s.SessionEnd = minutes(0) }},
		{name: "a time without a zone", reason: "is no time",
			edit: func(s *responseSpec) { s.NotOnOrAfter = "2031-11-20T13:00:00" }},
	})
}

// TestValidator_ChecksNameID refuses a NameID that is ambiguous, of another format or of another
// provider.
func TestValidator_ChecksNameID(t *testing.T) {
	t.Parallel()
	transient := func(s *responseSpec) { s.Format = formatTransient }
	expectInvalid(t, []invalidAssertion{
		{name: "two", reason: "2 elements NameID",
			edit: func(s *responseSpec) { s.NameID = `alice</saml:NameID><saml:NameID>mallory` }},
		{name: "with an element", reason: "where text belongs",
			edit: func(s *responseSpec) { s.NameID = `alice<saml:x/>@evil` }},
		{name: "empty", reason: "NameID is empty", edit: func(s *responseSpec) { s.NameID = "" }},
		{name: "with spaces around it", reason: "spaces around it",
			edit: func(s *responseSpec) { s.NameID = "alice " }},
		{name: "with a line end", reason: "spaces around it", edit: func(s *responseSpec) { s.NameID = "ali&#10;ce" }},
		{name: "transient", reason: "transient", edit: transient},
		{name: "transient where any format is accepted", reason: "transient", edit: transient,
			config: func(c *trafficpolicy.LoginConfig) { c.NameIDFormat = formatUnspecified }},
		{name: "of another format", reason: "has the format", edit: func(s *responseSpec) { s.Format = formatEmail }},
		{name: "of another provider", reason: "another identity provider",
			edit: func(s *responseSpec) { s.Qualifiers = ` NameQualifier="https://other.example.com"` }},
		{name: "for another service", reason: "another service",
			edit: func(s *responseSpec) { s.Qualifiers = ` SPNameQualifier="https://other.example.com"` }},
	})
}

// TestValidator_ChecksContent refuses assertions with unknown conditions or confirmations, repeated
// elements, too many attributes, or for a person that the config does not admit.
func TestValidator_ChecksContent(t *testing.T) {
	t.Parallel()
	expectInvalid(t, []invalidAssertion{
		{name: "an unknown condition", reason: "a condition Condition",
			edit: func(s *responseSpec) { s.Conditions = `<saml:Condition/>` }},
		{name: "no conditions", reason: "0 elements Conditions",
			edit: func(s *responseSpec) { s.Conditions = "none" }},
		{name: "sender-vouches", reason: "not bearer", edit: func(s *responseSpec) {
			s.Confirmation = "urn:oasis:names:tc:SAML:2.0:cm:sender-vouches"
		}},
		{name: "two subjects", reason: "2 elements Subject", edit: func(s *responseSpec) {
			s.Attributes = `</saml:AttributeStatement><saml:Subject/><saml:AttributeStatement>`
		}},
		{name: "in none of the groups", reason: `the groups ["eng" "ops"]`,
			config: func(c *trafficpolicy.LoginConfig) { c.AuthorizedGroups = []string{"admins", "Eng"} }},
		{name: "too many values", reason: "900 values", edit: func(s *responseSpec) {
			s.Attributes = `<saml:Attribute Name="groups">` +
				strings.Repeat(`<saml:AttributeValue>g</saml:AttributeValue>`, 900) + `</saml:Attribute>`
		}},
		{name: "too much text", reason: "more than 800 or 65536", edit: func(s *responseSpec) {
			s.Attributes = `<saml:Attribute Name="x"><saml:AttributeValue>` + strings.Repeat("x", 65<<10) +
				`</saml:AttributeValue></saml:Attribute>`
		}},
	})
}

// TestValidator_ChecksStatus refuses a response that reports a failure, and a success without an
// assertion.
func TestValidator_ChecksStatus(t *testing.T) {
	t.Parallel()
	expectInvalid(t, []invalidAssertion{
		{name: "a failure with an assertion", reason: "answered Responder",
			edit: func(s *responseSpec) { s.Status = statusPrefix + "Responder" }},
		{name: "a status in letters of another case", reason: "not known here",
			edit: func(s *responseSpec) { s.Status = strings.ToLower(statusSuccess) }},
	})
	expectRefused(t, []attack{
		{name: "success without an assertion", reason: "has no assertion",
			make: signedThen(func(_ testing.TB, root *etree.Element) { root.RemoveChild(assertionOf(root)) })},
	})
}
