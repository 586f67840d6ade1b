// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	"github.com/beevik/etree"
	dsig "github.com/russellhaering/goxmldsig"
	"github.com/russellhaering/goxmldsig/etreeutils"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/login"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

const (
	idpID  = "https://idp.example.com/metadata"
	idpSSO = "https://idp.example.com/sso?tenant=7"
	acsURL = "https://app.example.com:8443/_fairlead/staff/acs"
	spID   = "https://app.example.com/_fairlead/staff/metadata"
)

var (
	// testAction is called at a port that is mapped to the usual one.
	testAction = login.Action{AccountID: "ac_1", EndpointURL: "https://app.example.com:8443",
		EntityURL: "https://app.example.com", AuthID: "staff"}
	today = time.Date(2031, 11, 20, 12, 0, 0, 0, time.UTC)
)

// signer is an identity provider's key.
type signer struct {
	key  *rsa.PrivateKey
	cert *x509.Certificate
}

func newSigner(bits int) *signer {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return signerUntil(key, today.AddDate(1, 0, 0))
}

func signerUntil(key *rsa.PrivateKey, until time.Time) *signer {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "idp"},
		NotBefore: today.AddDate(-1, 0, 0), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return &signer{key: key, cert: cert}
}

var (
	trustedSigner = sync.OnceValue(func() *signer { return newSigner(2048) }) // its key is in the metadata
	otherSigner   = sync.OnceValue(func() *signer { return newSigner(2048) })
)

// expiredSigner is trustedSigner with an expired certificate.
func expiredSigner() *signer { return signerUntil(trustedSigner().key, today.Add(-time.Hour)) }

func metadataOf(id string, keys ...*signer) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<md:EntityDescriptor xmlns:md=%q entityID=%q><md:IDPSSODescriptor protocolSupportEnumeration=%q>`,
		nsMetadata, id, nsProtocol)
	for _, k := range keys {
		fmt.Fprintf(&b,
			`<md:KeyDescriptor use="signing"><ds:KeyInfo xmlns:ds=%q><ds:X509Data>`+
				`<ds:X509Certificate>%s</ds:X509Certificate></ds:X509Data></ds:KeyInfo></md:KeyDescriptor>`,
			nsSignature, base64.StdEncoding.EncodeToString(k.cert.Raw))
	}
	fmt.Fprintf(&b, `<md:SingleSignOnService Binding=%q Location=%q/></md:IDPSSODescriptor></md:EntityDescriptor>`,
		bindingRedirect, idpSSO)
	return b.String()
}

// providerWith makes a provider whose metadata has the key of trustedSigner; edit may change its
// config.
func providerWith(t testing.TB, edit func(*trafficpolicy.LoginConfig)) *Provider {
	t.Helper()
	c := &trafficpolicy.LoginConfig{Kind: trafficpolicy.LoginSAML, AuthID: "staff",
		IdPMetadata: metadataOf(idpID, trustedSigner())}
	if edit != nil {
		edit(c)
	}
	p, err := newProvider(c, http.DefaultClient, func() time.Time { return today })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// responseSpec is the content of a response. By default only the assertion is signed.
type responseSpec struct {
	ResponseID, AssertionID, ResponseIssuer, Issuer, Destination, Recipient, Status string
	ResponseInResponseTo, InResponseTo                                              string
	NameID, Format, Qualifiers, Confirmation                                        string // NameID is XML
	Issued, NotBefore, NotOnOrAfter, ConfirmedUntil, Asked, SessionEnd, Audience    string
	Conditions, Attributes, Extensions, AssertionIssued                             string // XML
	signResponse, signNothing                                                       bool
	response, assertion                                                             signatureSpec
}

func timestamp(d time.Duration) string { return today.Add(d).Format(time.RFC3339) }

// validResponse returns the identity provider's valid response for alice.
func validResponse() *responseSpec {
	return &responseSpec{
		ResponseID: "_r1", AssertionID: "_a1", Status: statusSuccess,
		ResponseIssuer: idpID, Issuer: idpID, Destination: acsURL, Recipient: acsURL, Audience: spID,
		ResponseInResponseTo: "_q1", InResponseTo: "_q1",
		NameID: "alice", Format: formatPersistent, Confirmation: confirmationBearer,
		Issued: timestamp(-5 * time.Second), NotBefore: timestamp(-time.Minute),
		NotOnOrAfter: timestamp(5 * time.Minute), ConfirmedUntil: timestamp(4 * time.Minute),
		Asked: timestamp(-10 * time.Second), SessionEnd: timestamp(8 * time.Hour),
		Attributes: `<saml:Attribute Name="mail"><saml:AttributeValue xmlns:xs="http://www.w3.org/2001/XMLSchema" ` +
			`xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" ` +
			`xsi:type="xs:string">alice@example.com</saml:AttributeValue></saml:Attribute>` +
			`<saml:Attribute Name="groups"><saml:AttributeValue>eng</saml:AttributeValue>` +
			`<saml:AttributeValue>ops</saml:AttributeValue></saml:Attribute>`,
	}
}

var responseTemplate = template.Must(template.New("").
	Parse(
		`<samlp:Response xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol" ` +
			`xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="{{.ResponseID}}" Version="2.0" ` +
			`IssueInstant="{{.Issued}}"{{with .Destination}} Destination="{{.}}"{{end}}` +
			`{{with .ResponseInResponseTo}} InResponseTo="{{.}}"{{end}}>
{{with .ResponseIssuer}}<saml:Issuer>{{.}}</saml:Issuer>{{end}}{{.Extensions}}
<samlp:Status><samlp:StatusCode Value="{{.Status}}"/></samlp:Status>
<saml:Assertion xmlns:saml="urn:oasis:names:tc:SAML:2.0:assertion" ID="{{.AssertionID}}" Version="2.0" ` +
			`IssueInstant="{{or .AssertionIssued .Issued}}">
 <saml:Issuer>{{.Issuer}}</saml:Issuer>
 <saml:Subject><saml:NameID{{with .Format}} Format="{{.}}"{{end}}{{.Qualifiers}}>{{.NameID}}</saml:NameID>
  <saml:SubjectConfirmation Method="{{.Confirmation}}"><saml:SubjectConfirmationData{{with .InResponseTo}} ` +
			`InResponseTo="{{.}}"{{end}}{{with .ConfirmedUntil}} NotOnOrAfter="{{.}}"{{end}}{{with .Recipient}} ` +
			`Recipient="{{.}}"{{end}}/></saml:SubjectConfirmation>
 </saml:Subject>
 {{if eq .Conditions "none"}}{{else}}<saml:Conditions NotBefore="{{.NotBefore}}"{{with .NotOnOrAfter}} ` +
			`NotOnOrAfter="{{.}}"{{end}}>{{with .Audience}}<saml:AudienceRestriction><saml:Audience>{{.}}` +
			`</saml:Audience></saml:AudienceRestriction>{{end}}{{.Conditions}}</saml:Conditions>{{end}}
 <saml:AuthnStatement AuthnInstant="{{.Asked}}"{{with .SessionEnd}} SessionNotOnOrAfter="{{.}}"{{end}} ` +
			`SessionIndex="_s1"><saml:AuthnContext>` +
			`<saml:AuthnContextClassRef>urn:oasis:names:tc:SAML:2.0:ac:classes:Password</saml:AuthnContextClassRef>` +
			`</saml:AuthnContext></saml:AuthnStatement>
 <saml:AttributeStatement>{{.Attributes}}</saml:AttributeStatement>
</saml:Assertion>
</samlp:Response>`))

// document builds and signs the response.
func (s *responseSpec) document(t testing.TB) *etree.Document {
	t.Helper()
	var b bytes.Buffer
	if err := responseTemplate.Execute(&b, s); err != nil {
		t.Fatal(err)
	}
	doc := etree.NewDocument()
	doc.ReadSettings.PreserveCData = true
	if err := doc.ReadFromBytes(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	if s.signNothing {
		return doc
	}
	if !s.signResponse || s.assertion.by != nil {
		s.assertion.sign(t, doc.Root().SelectElement("saml:Assertion"))
	}
	if s.signResponse {
		s.response.sign(t, doc.Root())
	}
	return doc
}

func (s *responseSpec) xml(t testing.TB) string { return asXML(t, s.document(t)) }

func asXML(t testing.TB, doc *etree.Document) string {
	t.Helper()
	out, err := doc.WriteToString()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// signatureSpec configures the signature of an element; the zero value makes a valid one.
type signatureSpec struct {
	by                            *signer // nil = trustedSigner
	method, digest, c14n, uri     string
	hash                          crypto.Hash
	transforms, reference, within string  // XML: of Transforms, beside the Reference, beside SignatureValue
	secret                        []byte  // of an HMAC in place of an RSA signature; nil = none
	keyInfo                       *signer // whose certificate is in KeyInfo; nil = no KeyInfo
}

// sign puts a signature behind the element's Issuer, or first.
func (s signatureSpec) sign(t testing.TB, e *etree.Element) {
	t.Helper()
	by, hash := cmp.Or(s.by, trustedSigner()), cmp.Or(s.hash, crypto.SHA256)
	transforms := cmp.Or(s.transforms, `<ds:Transform Algorithm="`+enveloped+`"/><ds:Transform Algorithm="`+
		exclusiveC14N+`"/>`)
	value := digest(hash, canonical(t, e, strings.Contains(transforms, "WithComments")))
	sig := etree.NewDocument()
	if err := sig.ReadFromString(fmt.Sprintf(
		`<ds:Signature xmlns:ds=%q><ds:SignedInfo><ds:CanonicalizationMethod Algorithm=%q/>`+
			`<ds:SignatureMethod Algorithm=%q/><ds:Reference URI=%q><ds:Transforms>%s</ds:Transforms>`+
			`<ds:DigestMethod Algorithm=%q/><ds:DigestValue>%s</ds:DigestValue></ds:Reference>%s</ds:SignedInfo>`+
			`<ds:SignatureValue/>%s</ds:Signature>`,
		nsSignature, cmp.Or(s.c14n, exclusiveC14N), cmp.Or(s.method, signatureMethods[0]),
		cmp.Or(s.uri, "#"+e.SelectAttrValue("ID", "")), transforms, cmp.Or(s.digest, digestMethods[0]),
		base64.StdEncoding.EncodeToString(value), s.reference, s.within)); err != nil {
		t.Fatal(err)
	}
	root := sig.Root()
	info := canonical(t, root.SelectElement("ds:SignedInfo"), false)
	value, err := rsa.SignPKCS1v15(rand.Reader, by.key, hash, digest(hash, info))
	if s.secret != nil {
		mac := hmac.New(sha256.New, s.secret)
		mac.Write(info)
		value, err = mac.Sum(nil), nil
	}
	if err != nil {
		t.Fatal(err)
	}
	root.SelectElement("ds:SignatureValue").SetText(base64.StdEncoding.EncodeToString(value))
	if s.keyInfo != nil {
		root.CreateElement("ds:KeyInfo").CreateElement("ds:X509Data").CreateElement("ds:X509Certificate").
			SetText(base64.StdEncoding.EncodeToString(s.keyInfo.cert.Raw))
	}
	at := 0
	if issuer := e.SelectElement("saml:Issuer"); issuer != nil {
		at = issuer.Index() + 1
	}
	e.InsertChildAt(at, root)
}

func digest(h crypto.Hash, b []byte) []byte {
	w := h.New()
	w.Write(b)
	return w.Sum(nil)
}

// canonical returns e in exclusive canonical form, with the namespaces of its parents.
func canonical(t testing.TB, e *etree.Element, comments bool) []byte {
	t.Helper()
	scope, err := etreeutils.NSBuildParentContext(e)
	if err != nil {
		t.Fatal(err)
	}
	detached, err := etreeutils.NSDetatch(scope, e)
	if err != nil {
		t.Fatal(err)
	}
	c := dsig.MakeC14N10ExclusiveCanonicalizerWithPrefixList("")
	if comments {
		c = dsig.MakeC14N10ExclusiveWithCommentsCanonicalizerWithPrefixList("")
	}
	out, err := c.Canonicalize(detached)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// post returns the browser's post of a response.
func post(response string) *http.Request {
	form := url.Values{"RelayState": {"state"},
		"SAMLResponse": {base64.StdEncoding.EncodeToString([]byte(response))}}.Encode()
	r := httptest.NewRequest(http.MethodPost, acsURL, strings.NewReader(form))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

func consume(t testing.TB, p *Provider, response string) (*login.Authentication, error) {
	t.Helper()
	return p.ConsumeResponse(t.Context(), post(response), testAction)
}

// causeOf returns the cause of a CodeLoginFailed for the log, or its message without one. It fails
// the test for any other error.
func causeOf(t testing.TB, err error) string {
	t.Helper()
	var e *account.Error
	if !errors.As(err, &e) || e.Code != account.CodeLoginFailed || e.Msg == "" {
		t.Fatalf("got %v, want ERR_FL_3015", err)
	}
	if e.Cause == nil {
		return e.Msg
	}
	return e.Cause.Error()
}
