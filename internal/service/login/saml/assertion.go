// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/beevik/etree"

	"github.com/fairlead-dev/fairlead/internal/service/login"
)

const (
	// maxAssertionAge is the longest age of an assertion, whatever validity it states: its id is
	// remembered that long.
	maxAssertionAge = time.Hour

	confirmationBearer = "urn:oasis:names:tc:SAML:2.0:cm:bearer"
	formatEntity       = "urn:oasis:names:tc:SAML:2.0:nameid-format:entity"
)

// Formats of name ids.
const (
	formatPersistent  = "urn:oasis:names:tc:SAML:2.0:nameid-format:persistent"
	formatTransient   = "urn:oasis:names:tc:SAML:2.0:nameid-format:transient"
	formatUnspecified = "urn:oasis:names:tc:SAML:1.1:nameid-format:unspecified"
	formatEmail       = "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"
)

// validator checks a response against what the action expects.
type validator struct {
	entity   string // entity is the entity ID of the identity provider.
	audience string // audience is our entity ID.
	acs      string
	format   string // format is that of NameIDs, as configured.
	now      time.Time
}

// assertion is the content of a signed assertion.
type assertion struct {
	id, nameID, format string
	inResponseTo       string // inResponseTo is "" if the login began at the identity provider.
	validUntil         time.Time
	authnInstant       time.Time // authnInstant is the time of the authentication.
	sessionEnd         time.Time // sessionEnd is zero if it is not stated.
	attributes         map[string][]string
}

// readAssertion checks a signed assertion and reads it.
func (v *validator) readAssertion(e *etree.Element) (*assertion, error) {
	a := &assertion{id: attr(e, "ID")}
	if a.id == "" || attr(e, "Version") != "2.0" {
		return nil, errors.New("the assertion has no ID, or is not of version 2.0")
	}
	issued, err := timeAttr(e, "IssueInstant")
	if err != nil {
		return nil, err
	}
	if issued.After(v.now.Add(login.ClockSkew)) {
		return nil, fmt.Errorf("the assertion was issued at %s, in the future: the clocks differ",
			attr(e, "IssueInstant"))
	}
	a.validUntil = issued.Add(maxAssertionAge)
	for _, step := range []func(*etree.Element, *assertion) error{v.checkIssuer, v.readSubject, v.checkConditions,
		v.readAuthnStatement} {
		if err := step(e, a); err != nil {
			return nil, err
		}
	}
	if !v.now.Before(a.validUntil.Add(login.ClockSkew)) {
		return nil, fmt.Errorf("the assertion was of use until %s", a.validUntil.Format(time.RFC3339))
	}
	a.attributes, err = attributes(e)
	return a, err
}

func (v *validator) checkIssuer(e *etree.Element, _ *assertion) error {
	issuer, err := onlyChild(e, nsAssertion, "Issuer")
	if err != nil {
		return err
	}
	return v.checkIssuerElement(issuer)
}

// checkIssuerElement checks an Issuer.
func (v *validator) checkIssuerElement(issuer *etree.Element) error {
	name, err := elementText(issuer)
	if err != nil {
		return err
	}
	if f := attr(issuer, "Format"); name != v.entity || (f != "" && f != formatEntity) {
		return fmt.Errorf("the issuer is %.256q, and not %.256q", name, v.entity)
	}
	return nil
}

// readSubject reads the person's NameID, and checks that the assertion is for this action.
func (v *validator) readSubject(e *etree.Element, a *assertion) error {
	subject, err := onlyChild(e, nsAssertion, "Subject")
	if err != nil {
		return err
	}
	if err := v.readNameID(subject, a); err != nil {
		return err
	}
	confirmation, err := onlyChild(subject, nsAssertion, "SubjectConfirmation")
	if err != nil {
		return err
	}
	if m := attr(confirmation, "Method"); m != confirmationBearer {
		return fmt.Errorf("the subject's confirmation is %.128q, not bearer", m)
	}
	data, err := onlyChild(confirmation, nsAssertion, "SubjectConfirmationData")
	if err != nil {
		return err
	}
	if to := attr(data, "Recipient"); to != v.acs {
		return fmt.Errorf("the assertion is for %.256q, and not for %.256q", to, v.acs)
	}
	a.inResponseTo = attr(data, "InResponseTo")
	return v.checkValidity(data, a)
}

func (v *validator) readNameID(subject *etree.Element, a *assertion) error {
	id, err := onlyChild(subject, nsAssertion, "NameID")
	if err != nil {
		return err
	}
	if a.nameID, err = elementText(id); err != nil {
		return err
	}
	if a.nameID == "" || len(a.nameID) > 1024 || strings.TrimSpace(a.nameID) != a.nameID ||
		strings.ContainsFunc(a.nameID, unicode.IsControl) {
		return errors.New("the NameID is empty, longer than 1024 bytes, or has spaces around it")
	}
	if a.format = attr(id, "Format"); a.format == "" {
		a.format = formatUnspecified
	}
	// A persistent id is one person's only together with its qualifiers: those of others, that a
	// proxy passes on, are not this provider's.
	if q := attr(id, "NameQualifier"); q != "" && q != v.entity {
		return fmt.Errorf("the NameID is qualified by %.256q, another identity provider", q)
	}
	if q := attr(id, "SPNameQualifier"); q != "" && q != v.audience {
		return fmt.Errorf("the NameID is qualified by %.256q, another service", q)
	}
	switch {
	case a.format == formatTransient:
		return errTransient
	case v.format != formatUnspecified && a.format != v.format:
		return &formatError{got: a.format, want: v.format}
	}
	return nil
}

var errTransient = errors.New("the NameID is transient")

// formatError is a NameID of another format than the config's.
type formatError struct{ got, want string }

func (e *formatError) Error() string {
	return fmt.Sprintf("the NameID has the format %.128q, not %.128q", e.got, e.want)
}

func (v *validator) checkConditions(e *etree.Element, a *assertion) error {
	conditions, err := onlyChild(e, nsAssertion, "Conditions")
	if err != nil {
		return err
	}
	if err := v.checkValidity(conditions, a); err != nil {
		return err
	}
	restricted := false
	for _, c := range conditions.ChildElements() {
		switch {
		case isElement(c, nsAssertion, "AudienceRestriction"):
			restricted = true
			if err := v.checkAudience(c); err != nil {
				return err
			}
		// assertions are used once, and not passed on, anyway
		case isElement(c, nsAssertion, "OneTimeUse"), isElement(c, nsAssertion, "ProxyRestriction"):
		default:
			return fmt.Errorf("the assertion has a condition %s that is not known here", c.Tag)
		}
	}
	if !restricted {
		return errors.New("the assertion names no audience")
	}
	return nil
}

func (v *validator) checkAudience(restriction *etree.Element) error {
	var names []string
	for _, c := range children(restriction, nsAssertion, "Audience") {
		name, err := elementText(c)
		if err != nil {
			return err
		}
		names = append(names, name)
	}
	if !slices.Contains(names, v.audience) {
		return fmt.Errorf("the assertion is for the audience %.512q, and not for %.256q", names, v.audience)
	}
	return nil
}

// checkValidity checks NotBefore and NotOnOrAfter of an element; the latter is required.
func (v *validator) checkValidity(e *etree.Element, a *assertion) error {
	end, err := timeAttr(e, "NotOnOrAfter")
	if err != nil {
		return err
	}
	if attr(e, "NotBefore") != "" {
		begin, err := timeAttr(e, "NotBefore")
		if err != nil {
			return err
		}
		if begin.After(v.now.Add(login.ClockSkew)) {
			return fmt.Errorf("%s is not of use before %s: the clocks differ", e.Tag, attr(e, "NotBefore"))
		}
	}
	if end.Before(a.validUntil) {
		a.validUntil = end
	}
	return nil
}

// readAuthnStatement reads when the person was asked, and when the identity provider's session
// ends.
func (v *validator) readAuthnStatement(e *etree.Element, a *assertion) error {
	statement, err := onlyChild(e, nsAssertion, "AuthnStatement")
	if err != nil {
		return err
	}
	if a.authnInstant, err = timeAttr(statement, "AuthnInstant"); err != nil {
		return err
	}
	if a.authnInstant.After(v.now.Add(login.ClockSkew)) {
		return fmt.Errorf("the person was asked at %s, in the future: the clocks differ",
			attr(statement, "AuthnInstant"))
	}
	if attr(statement, "SessionNotOnOrAfter") == "" {
		return nil
	}
	if a.sessionEnd, err = timeAttr(statement, "SessionNotOnOrAfter"); err != nil {
		return err
	}
	if !v.now.Before(a.sessionEnd) {
		return fmt.Errorf("the identity provider's session ended at %s", attr(statement, "SessionNotOnOrAfter"))
	}
	return nil
}

// timeAttr reads an attribute that is a time with a zone.
func timeAttr(e *etree.Element, name string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, attr(e, name))
	if err != nil {
		return time.Time{}, fmt.Errorf("%s of %s is no time: %.64q", name, e.Tag, attr(e, name))
	}
	return t.UTC(), nil
}
