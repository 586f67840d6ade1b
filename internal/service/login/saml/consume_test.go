// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// TestConsume_AcceptsResponse holds responses that are as they should be: without these, every
// refusal could be of anything.
func TestConsume_AcceptsResponse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		say    func(*responseSpec)
		config func(*trafficpolicy.LoginConfig)
	}{
		{name: "the assertion is signed"},
		{name: "the response is signed", say: func(s *responseSpec) { s.signResponse = true }},
		{name: "both are signed", say: func(s *responseSpec) { s.signResponse, s.assertion.by = true, ours() }},
		{name: "with KeyInfo", say: func(s *responseSpec) { s.assertion.keyInfo = ours() }},
		{name: "with a prefix list", say: func(s *responseSpec) {
			s.assertion.transforms = `<ds:Transform Algorithm="` + enveloped + `"/><ds:Transform Algorithm="` +
				exclusiveC14N +
				`"><ec:InclusiveNamespaces xmlns:ec="` + exclusiveC14N + `" PrefixList=""/></ds:Transform>`
		}},
		{name: "without an issuer of the response", say: func(s *responseSpec) { s.ResponseIssuer = "" }},
		{name: "with extensions", say: func(s *responseSpec) {
			s.Extensions = `<samlp:Extensions><x:y xmlns:x="urn:x">1</x:y></samlp:Extensions>`
		}},
		{name: "with our qualifiers", say: func(s *responseSpec) {
			s.Qualifiers = ` NameQualifier="` + idpID + `" SPNameQualifier="` + ourID + `"`
		}},
		{name: "clocks 59 s apart, late", say: func(s *responseSpec) {
			s.NotOnOrAfter, s.ConfirmedUntil = timestamp(-59*time.Second), timestamp(-59*time.Second)
		}},
		{name: "clocks 59 s apart, early", say: func(s *responseSpec) {
			s.NotBefore, s.Issued, s.Asked = timestamp(59*time.Second), timestamp(59*time.Second),
				timestamp(59*time.Second)
		}},
		{name: "used once, and several audiences", say: func(s *responseSpec) {
			s.Conditions = `<saml:OneTimeUse/><saml:AudienceRestriction>` +
				`<saml:Audience>urn:x</saml:Audience><saml:Audience>` +
				ourID + `</saml:Audience></saml:AudienceRestriction>`
		}},
		{name: "the second key", config: func(c *trafficpolicy.LoginConfig) {
			c.IdPMetadata = metadataOf(idpID, others(), expiredSigner(), ours())
		}},
		{name: "one of the groups", config: func(c *trafficpolicy.LoginConfig) {
			c.AuthorizedGroups = []string{"admins", "ops"}
		}},
		{name: "the provider began", say: func(s *responseSpec) {
			s.ResponseInResponseTo, s.InResponseTo = "", ""
		}, config: func(c *trafficpolicy.LoginConfig) { c.AllowIdPInitiated = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := validResponse()
			if c.say != nil {
				c.say(s)
			}
			got, err := consume(t, providerWith(t, c.config), s.xml(t))
			if err != nil {
				t.Fatal(err)
			}
			if want := "saml\x00" + idpID + "\x00" + formatPersistent + "\x00alice"; got.Key != want ||
				got.InResponseTo != s.InResponseTo {
				t.Errorf("got %q in response to %q", got.Key, got.InResponseTo)
			}
		})
	}
}

// TestConsume_ReadsSignedContentOnly: what is read afterwards was parsed from the signed bytes, and
// is no part of the document that was posted.
func TestConsume_ReadsSignedContentOnly(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*responseSpec){
		"assertion": func(*responseSpec) {}, "response": func(s *responseSpec) {
			s.signResponse = true
		}, "both": func(s *responseSpec) {
			s.signResponse, s.assertion.by = true, ours()
		},
	} {
		s := validResponse()
		edit(s)
		root, err := parseXML([]byte(s.xml(t)), responseLimits)
		if err != nil {
			t.Fatal(err)
		}
		r, err := parseResponse(root)
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.verify([]*x509.Certificate{ours().cert}, today)
		if err != nil {
			t.Fatal(err)
		}
		if got.assertion == r.assertion || got.root == r.root || (got.root != nil) != s.signResponse {
			t.Errorf("%s: it reads what was posted", name)
		}
		for up := got.assertion; up != nil; up = up.Parent() {
			if up == r.root {
				t.Errorf("%s: what is read belongs to what was posted", name)
			}
		}
	}
}

func TestConsume_ReturnsAuthentication(t *testing.T) {
	t.Parallel()
	got, err := consume(t, providerWith(t, nil), `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+validResponse().xml(t))
	if err != nil {
		t.Fatal(err)
	}
	want := &login.Authentication{
		Key:      "saml\x00" + idpID + "\x00" + formatPersistent + "\x00alice",
		Provider: account.IdentityProvider{Name: idpID, URL: idpID},
		Identity: account.LoginIdentity{ProviderUserID: "alice", Username: "alice@example.com",
			Email:      "alice@example.com",
			Groups:     []string{"eng", "ops"},
			Attributes: map[string][]string{"mail": {"alice@example.com"}, "groups": {"eng", "ops"}}},
		AuthTime: today.Add(-10 * time.Second), NotAfter: today.Add(8 * time.Hour), InResponseTo: "_q1",
		Once: "saml\x00" + idpID + "\x00_a1", OnceUntil: today.Add(5 * time.Minute),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestConsume_SetsReplayKey: an assertion keeps its Once however its post is written, and is
// refused by its time from OnceUntil on, when the id is forgotten.
func TestConsume_SetsReplayKey(t *testing.T) {
	t.Parallel()
	now := today
	p := providerWith(t, nil)
	p.now = func() time.Time { return now }
	s := validResponse()
	s.NotOnOrAfter, s.ConfirmedUntil = "9999-01-01T00:00:00Z", "9999-01-01T00:00:00Z"
	first, second := s.xml(t), strings.Replace(s.xml(t), `ID="_r1"`, `ID="_r2"`, 1)
	a, err := consume(t, p, first)
	if err != nil {
		t.Fatal(err)
	}
	b, err := consume(t, p, second)
	if err != nil {
		t.Fatal(err)
	}
	if a.Once != b.Once || a.Once == "" {
		t.Errorf("one assertion has two ids: %q, %q", a.Once, b.Once)
	}
	now = a.OnceUntil.Add(-time.Second)
	if _, err := consume(t, p, first); err != nil {
		t.Errorf("it is remembered longer than it is of use: %v", err)
	}
	now = a.OnceUntil
	_, err = consume(t, p, first)
	if cause := causeOf(t, err); !strings.Contains(cause, "was of use until") {
		t.Errorf("got %s", cause)
	}
}

// TestAttributes_LimitAndSkip: the same person, as different identity providers describe them.
func TestAttributes_LimitAndSkip(t *testing.T) {
	t.Parallel()
	const claims = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/"
	for _, c := range []struct {
		name       string
		nameID     string
		format     string
		attributes map[string][]string
		want       account.LoginIdentity
	}{
		{name: "SimpleSAMLphp, Okta, Google", attributes: map[string][]string{"uid": {"alice"}, "mail": {"a@x.org"},
			"displayName": {"Alice A"}, "groups": {"eng", "ops"}},
			want: account.LoginIdentity{Username: "alice", Email: "a@x.org", Name: "Alice A",
				Groups: []string{"eng", "ops"}}},
		{name: "Entra ID", attributes: map[string][]string{claims + "emailaddress": {"a@x.org"},
			claims + "name": {"alice@x.org"}, claims + "givenname": {"Alice"}, claims + "surname": {"A"},
			"http://schemas.microsoft.com/ws/2008/06/identity/claims/groups": {"7d1c"}},
			want: account.LoginIdentity{Username: "alice@x.org", Email: "a@x.org", Name: "Alice A",
				Groups: []string{"7d1c"}}},
		{name: "Keycloak, by OIDs", attributes: map[string][]string{"urn:oid:1.2.840.113549.1.9.1": {"a@x.org"},
			"urn:oid:2.5.4.42": {"Alice"}, "urn:oid:2.5.4.4": {"A"}, "memberOf": {"/eng"}},
			want: account.LoginIdentity{Username: "a@x.org", Email: "a@x.org", Name: "Alice A",
				Groups: []string{"/eng"}}},
		{name: "Shibboleth", attributes: map[string][]string{"urn:oid:0.9.2342.19200300.100.1.1": {"alice"},
			"urn:oid:0.9.2342.19200300.100.1.3": {"a@x.org"}, "urn:oid:1.3.6.1.4.1.5923.1.5.1.1": {"eng"}},
			want: account.LoginIdentity{Username: "alice", Email: "a@x.org", Groups: []string{"eng"}}},
		{name: "nothing but an address", nameID: "a@x.org", format: formatEmail,
			want: account.LoginIdentity{Username: "a@x.org", Email: "a@x.org"}},
		{name: "nothing", want: account.LoginIdentity{Username: "id-7"}},
		{name: "groups under two names", attributes: map[string][]string{"Groups": {"eng"}, "groups": {"eng", "ops"},
			"memberof": {"cn=all"}},
			want: account.LoginIdentity{Username: "id-7", Groups: []string{"eng", "ops", "cn=all"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := &assertion{nameID: firstNonEmpty(c.nameID, "id-7"), format: firstNonEmpty(c.format, formatPersistent),
				attributes: c.attributes}
			c.want.ProviderUserID, c.want.Attributes = a.nameID, c.attributes
			if diff := cmp.Diff(c.want, a.identity()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRefusedError_Messages: the page names what the identity provider's administrator can do, and
// contains nothing of what was posted.
func TestRefusedError_Messages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(testing.TB) string
		want string
	}{
		"status": {editedResponse(func(s *responseSpec) {
			s.Status = statusPrefix + "AuthnFailed"
		}), "did not confirm the login (AuthnFailed)"},
		"hostile": {editedResponse(func(s *responseSpec) {
			s.Status = statusPrefix + "&lt;script&gt;"
		}), "did not confirm the login (with a status that is not known here)"},
		"format":    {editedResponse(func(s *responseSpec) { s.Format = formatEmail }), "nameid_format"},
		"transient": {editedResponse(func(s *responseSpec) { s.Format = formatTransient }), "choose a persistent one"},
		"encrypted": {editedResponse(func(s *responseSpec) {
			s.NameID = "<saml:EncryptedID/>"
		}), "encrypts its assertions"},
		"other": {replaced(">alice<", ">mallory<"), "Start again from the endpoint's own address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := consume(t, providerWith(t, nil), c.make(t))
			causeOf(t, err)
			var e *account.Error
			if !errors.As(err, &e) || !strings.Contains(e.Msg, c.want) || strings.ContainsAny(e.Msg, "<>") {
				t.Errorf("got %q, want %q", e.Msg, c.want)
			}
		})
	}
}
