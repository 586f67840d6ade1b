// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// acceptedResponses are responses that log a person in: without them, a refusal in another test
// could be for any reason.
var acceptedResponses = []struct {
	name   string
	edit   func(*responseSpec)
	config func(*trafficpolicy.LoginConfig)
}{
	{name: "the assertion is signed"},
	{name: "the response is signed", edit: func(s *responseSpec) { s.signResponse = true }},
	{name: "both are signed", edit: func(s *responseSpec) { s.signResponse, s.assertion.by = true, trustedSigner() }},
	{name: "with KeyInfo", edit: func(s *responseSpec) { s.assertion.keyInfo = trustedSigner() }},
	{name: "with a prefix list", edit: func(s *responseSpec) {
		s.assertion.transforms = `<ds:Transform Algorithm="` + enveloped + `"/><ds:Transform Algorithm="` +
			exclusiveC14N + `"><ec:InclusiveNamespaces xmlns:ec="` + exclusiveC14N +
			`" PrefixList=""/></ds:Transform>`
	}},
	{name: "without an issuer of the response", edit: func(s *responseSpec) { s.ResponseIssuer = "" }},
	{name: "with extensions", edit: func(s *responseSpec) {
		s.Extensions = `<samlp:Extensions><x:y xmlns:x="urn:x">1</x:y></samlp:Extensions>`
	}},
	{name: "with our qualifiers", edit: func(s *responseSpec) {
		s.Qualifiers = ` NameQualifier="` + idpID + `" SPNameQualifier="` + spID + `"`
	}},
	{name: "clocks 59 s apart, late", edit: func(s *responseSpec) {
		s.NotOnOrAfter, s.ConfirmedUntil = timestamp(-59*time.Second), timestamp(-59*time.Second)
	}},
	{name: "clocks 59 s apart, early", edit: func(s *responseSpec) {
		ahead := timestamp(59 * time.Second)
		s.NotBefore, s.Issued, s.Asked = ahead, ahead, ahead
	}},
	{name: "OneTimeUse, and several audiences", edit: func(s *responseSpec) {
		s.Conditions = `<saml:OneTimeUse/><saml:AudienceRestriction><saml:Audience>urn:x</saml:Audience>` +
			`<saml:Audience>` + spID + `</saml:Audience></saml:AudienceRestriction>`
	}},
	{name: "the second key", config: func(c *trafficpolicy.LoginConfig) {
		c.IdPMetadata = metadataOf(idpID, otherSigner(), expiredSigner(), trustedSigner())
	}},
	{name: "one of the groups", config: func(c *trafficpolicy.LoginConfig) {
		c.AuthorizedGroups = []string{"admins", "ops"}
	}},
	{name: "IdP-initiated", edit: func(s *responseSpec) { s.ResponseInResponseTo, s.InResponseTo = "", "" },
		config: func(c *trafficpolicy.LoginConfig) { c.AllowIdPInitiated = true }},
}

func TestConsume_AcceptsResponse(t *testing.T) {
	t.Parallel()
	want := "saml\x00" + idpID + "\x00" + formatPersistent + "\x00alice"
	for _, c := range acceptedResponses {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := validResponse()
			if c.edit != nil {
				c.edit(s)
			}
			got, err := consume(t, providerWith(t, c.config), s.xml(t))
			if err != nil {
				t.Fatal(err)
			}
			if got.Key != want || got.InResponseTo != s.InResponseTo {
				t.Errorf("got %q in response to %q", got.Key, got.InResponseTo)
			}
		})
	}
}

// TestConsume_ReadsSignedContentOnly checks that verify returns elements parsed from the signed
// bytes, and none of the posted document.
func TestConsume_ReadsSignedContentOnly(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*responseSpec){
		"assertion": func(*responseSpec) {}, "response": func(s *responseSpec) {
			s.signResponse = true
		}, "both": func(s *responseSpec) {
			s.signResponse, s.assertion.by = true, trustedSigner()
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
		got, err := r.verify([]*x509.Certificate{trustedSigner().cert}, today)
		if err != nil {
			t.Fatal(err)
		}
		if got.assertion == r.assertion || got.root == r.root || (got.root != nil) != s.signResponse {
			t.Errorf("%s: verify returns a posted element", name)
		}
		for up := got.assertion; up != nil; up = up.Parent() {
			if up == r.root {
				t.Errorf("%s: the assertion is within the posted document", name)
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
	want := &login.Authentication{Authentication: account.Authentication{
		Key:      "saml\x00" + idpID + "\x00" + formatPersistent + "\x00alice",
		Provider: account.IdentityProvider{Name: idpID, URL: idpID},
		Identity: account.LoginIdentity{ProviderUserID: "alice", Username: "alice@example.com",
			Email:      "alice@example.com",
			Groups:     []string{"eng", "ops"},
			Attributes: map[string][]string{"mail": {"alice@example.com"}, "groups": {"eng", "ops"}}},
		AuthTime: today.Add(-10 * time.Second), NotAfter: today.Add(8 * time.Hour)}, InResponseTo: "_q1",
		Once: "saml\x00" + idpID + "\x00_a1", OnceUntil: today.Add(5 * time.Minute),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestConsume_SetsReplayKey checks that an assertion has one Once key in differently written
// responses, and is expired from OnceUntil on, when the store forgets the key.
func TestConsume_SetsReplayKey(t *testing.T) {
	t.Parallel()
	now := today
	p := providerWith(t, nil)
	p.source.now = func() time.Time { return now }
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
		t.Errorf("the assertion expires before OnceUntil: %v", err)
	}
	now = a.OnceUntil
	_, err = consume(t, p, first)
	if cause := causeOf(t, err); !strings.Contains(cause, "was of use until") {
		t.Errorf("got %s", cause)
	}
}

// TestIdentity_ReadsProviderAttributes reads one person as different identity providers describe
// them.
func TestIdentity_ReadsProviderAttributes(t *testing.T) {
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
			a := &assertion{nameID: "id-7", format: formatPersistent, attributes: c.attributes}
			if c.nameID != "" {
				a.nameID, a.format = c.nameID, c.format
			}
			c.want.ProviderUserID, c.want.Attributes = a.nameID, c.attributes
			if diff := cmp.Diff(c.want, a.identity()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRefusedError_Messages checks that the page names what the identity provider's administrator
// can do, and contains no text of the response.
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

// TestDecodeForm_RefusesInvalidForms refuses posts without exactly one SAMLResponse in base64.
func TestDecodeForm_RefusesInvalidForms(t *testing.T) {
	t.Parallel()
	encoded := base64.StdEncoding.EncodeToString([]byte(validResponse().xml(t)))
	query := url.Values{"SAMLResponse": {encoded}}.Encode()
	for name, c := range map[string]struct{ target, form, reason string }{
		"nothing":      {acsURL, "", "0 fields"},
		"two":          {acsURL, url.Values{"SAMLResponse": {encoded, encoded}}.Encode(), "2 fields"},
		"no base64":    {acsURL, url.Values{"SAMLResponse": {"<samlp:Response/>"}}.Encode(), "reading the form"},
		"10 MB":        {acsURL, "SAMLResponse=" + strings.Repeat("ICAg", 10<<20/3), "reading the form"},
		"in the query": {acsURL + "?" + query, "", "0 fields"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(http.MethodPost, c.target, strings.NewReader(c.form))
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			_, err := providerWith(t, nil).ConsumeResponse(t.Context(), r, testAction)
			if cause := causeOf(t, err); !strings.Contains(cause, c.reason) {
				t.Errorf("got %q, want %q", cause, c.reason)
			}
		})
	}
}

// TestConsume_RefusesDeflatedResponse does not unpack what the redirect binding would deflate, so
// that a small post cannot become a large document.
func TestConsume_RefusesDeflatedResponse(t *testing.T) {
	t.Parallel()
	packed, err := deflate(validResponse().document(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = consume(t, providerWith(t, nil), string(packed))
	if cause := causeOf(t, err); !strings.Contains(cause, "reading the response") {
		t.Errorf("got %v", cause)
	}
}
