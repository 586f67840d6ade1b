// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/beevik/etree"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Limits of a person's attributes.
const (
	maxValues = 800
	maxText   = 64 << 10 // bytes of all names and values
)

// Names of an attribute at different identity providers, the preferred first. Case is ignored.
var (
	emailNames = []string{"mail", "email", "emailAddress", "urn:oid:0.9.2342.19200300.100.1.3",
		"urn:oid:1.2.840.113549.1.9.1",
		"http://schemas.xmlsoap.org/ws/2005/05/identity/claims/emailaddress",
		"http://schemas.xmlsoap.org/claims/EmailAddress"}
	nameNames = []string{"displayName", "urn:oid:2.16.840.1.113730.3.1.241",
		"http://schemas.microsoft.com/identity/claims/displayname", "cn",
		"commonName", "urn:oid:2.5.4.3", "http://schemas.xmlsoap.org/claims/CommonName", "fullName"}
	firstNames = []string{"givenName", "firstName", "urn:oid:2.5.4.42",
		"http://schemas.xmlsoap.org/ws/2005/05/identity/claims/givenname"}
	lastNames = []string{"sn", "surname", "lastName", "urn:oid:2.5.4.4",
		"http://schemas.xmlsoap.org/ws/2005/05/identity/claims/surname"}
	userNames = []string{"uid", "username", "preferred_username", "login", "urn:oid:0.9.2342.19200300.100.1.1",
		"eduPersonPrincipalName",
		"urn:oid:1.3.6.1.4.1.5923.1.1.1.6", "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/upn",
		"http://schemas.xmlsoap.org/ws/2005/05/identity/claims/name"}
	groupNames = []string{"groups", "group", "memberOf", "isMemberOf", "urn:oid:1.3.6.1.4.1.5923.1.5.1.1",
		"http://schemas.xmlsoap.org/claims/Group",
		"http://schemas.microsoft.com/ws/2008/06/identity/claims/groups", "eduPersonAffiliation",
		"urn:oid:1.3.6.1.4.1.5923.1.1.1.1"}
)

// attributes reads all attribute statements of an assertion. It skips values that are not text.
func attributes(e *etree.Element) (map[string][]string, error) {
	found := map[string][]string{}
	values, size := 0, 0
	for _, statement := range children(e, nsAssertion, "AttributeStatement") {
		for _, a := range children(statement, nsAssertion, "Attribute") {
			name := attr(a, "Name")
			if name == "" {
				return nil, errors.New("the assertion has an attribute without a name")
			}
			size += len(name)
			for _, v := range children(a, nsAssertion, "AttributeValue") {
				value, err := elementText(v)
				if err != nil || value == "" {
					continue
				}
				values++
				size += len(value)
				found[name] = append(found[name], value)
			}
		}
	}
	if values > maxValues || size > maxText {
		return nil, fmt.Errorf("the assertion has %d values in %d bytes, more than %d or %d: let the identity "+
			"provider send fewer groups", values, size, maxValues, maxText)
	}
	return found, nil
}

// identity returns the identity of the assertion's person, for rules and upstreams.
func (a *assertion) identity() account.LoginIdentity {
	folded := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(a.attributes)) {
		key := strings.ToLower(name)
		folded[key] = append(folded[key], a.attributes[name]...)
	}
	first := func(names []string) string {
		for _, n := range names {
			if v := folded[strings.ToLower(n)]; len(v) > 0 {
				return v[0]
			}
		}
		return ""
	}
	id := account.LoginIdentity{ProviderUserID: a.nameID, Email: first(emailNames), Name: first(nameNames),
		Username: first(userNames), Attributes: a.attributes}
	if id.Email == "" && a.format == formatEmail {
		id.Email = a.nameID
	}
	id.Name = cmp.Or(id.Name, strings.TrimSpace(first(firstNames)+" "+first(lastNames)))
	id.Username = cmp.Or(id.Username, id.Email, a.nameID)
	for _, n := range groupNames {
		for _, g := range folded[strings.ToLower(n)] {
			if !slices.Contains(id.Groups, g) {
				id.Groups = append(id.Groups, g)
			}
		}
	}
	return id
}
