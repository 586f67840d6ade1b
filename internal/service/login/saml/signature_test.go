// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"crypto"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/beevik/etree"

	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

// withSignature signs the assertion of a valid response as s specifies.
func withSignature(s signatureSpec) func(testing.TB) string {
	return editedResponse(func(r *responseSpec) { r.assertion = s })
}

// TestConsume_RequiresSignature refuses responses without a signature, and with one that covers
// another element.
func TestConsume_RequiresSignature(t *testing.T) {
	t.Parallel()
	expectRefused(t, []attack{
		{name: "none", reason: "neither the response nor its assertion is signed",
			make: editedResponse(func(s *responseSpec) { s.signNothing = true })},
		{name: "changed afterwards", reason: "could not be verified", make: replaced(">alice<", ">mallory<")},
		{name: "an attribute added afterwards", reason: "could not be verified",
			make: replaced("<saml:AttributeValue>eng",
				"<saml:AttributeValue>admins</saml:AttributeValue><saml:AttributeValue>eng")},
		{name: "of another ID", reason: "is of something else", make: withSignature(signatureSpec{uri: "#_r1"})},
		{name: "of the whole document", reason: "is of something else", make: replaced(`URI="#_a1"`, `URI=""`)},
		{name: "of an XPointer", reason: "is of something else",
			make: withSignature(signatureSpec{uri: "#xpointer(id('_a1'))"})},
		{name: "of another element, moved to the assertion", reason: "is of something else",
			make: responseSignedThen(func(_ testing.TB, root *etree.Element) {
				assertionOf(root).InsertChildAt(0, root.RemoveChild(root.SelectElement("ds:Signature")))
			})},
		{name: "within the subject", reason: "neither the response's nor the assertion's",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				a := assertionOf(root)
				a.SelectElement("saml:Subject").AddChild(a.RemoveChild(a.SelectElement("ds:Signature")))
			})},
		{name: "in a namespace that only looks like the right one",
			reason: "neither the response's nor the assertion's",
			make: replaced(`xmlns:ds="http://www.w3.org/2000/09/xmldsig#"`,
				`xmlns:ds="http://www.w3.org/2000/09/xmldsig"`)},
	})
}

// TestConsume_ChecksSigningKey refuses signatures that a key of the metadata has not made.
func TestConsume_ChecksSigningKey(t *testing.T) {
	t.Parallel()
	const wrongKey = "verifying the assertion: crypto/rsa"
	expectRefused(t, []attack{
		{name: "another key", reason: wrongKey, make: withSignature(signatureSpec{by: otherSigner()})},
		{name: "another key, which KeyInfo brings along", reason: wrongKey,
			make: withSignature(signatureSpec{by: otherSigner(), keyInfo: otherSigner()})},
		{name: "another key, and KeyInfo names the right one", reason: wrongKey,
			make: withSignature(signatureSpec{by: otherSigner(), keyInfo: trustedSigner()})},
		{name: "an expired certificate", reason: "verifying the assertion", make: validResponse().xml,
			config: func(c *trafficpolicy.LoginConfig) { c.IdPMetadata = metadataOf(idpID, expiredSigner()) }},
		{name: "valid for the assertion, invalid for the response", reason: "verifying the response: crypto/rsa",
			make: editedResponse(func(s *responseSpec) {
				s.signResponse, s.assertion.by, s.response.by = true, trustedSigner(), otherSigner()
			})},
		{name: "valid for the response, invalid for the assertion", reason: wrongKey,
			make: editedResponse(func(s *responseSpec) { s.signResponse, s.assertion.by = true, otherSigner() })},
		{name: "HMAC with the public certificate, called RSA", reason: wrongKey,
			make: withSignature(signatureSpec{secret: trustedSigner().cert.Raw})},
	})
}

// TestConsume_RefusesWeakAlgorithms accepts RSA with SHA-256 or more only.
func TestConsume_RefusesWeakAlgorithms(t *testing.T) {
	t.Parallel()
	const sha1 = "http://www.w3.org/2000/09/xmldsig#sha1"
	expectRefused(t, []attack{
		{name: "SHA-1", reason: "not RSA with SHA-256",
			make: withSignature(signatureSpec{hash: crypto.SHA1,
				method: "http://www.w3.org/2000/09/xmldsig#rsa-sha1", digest: sha1})},
		{name: "SHA-1 of the digest", reason: "not SHA-256 or more", make: withSignature(signatureSpec{digest: sha1})},
		{name: "no algorithm", reason: "not RSA with SHA-256", make: withSignature(signatureSpec{method: "none"})},
		{name: "HMAC with the public certificate", reason: "not RSA with SHA-256",
			make: withSignature(signatureSpec{method: "http://www.w3.org/2001/04/xmldsig-more#hmac-sha256",
				secret: trustedSigner().cert.Raw})},
		{name: "HMAC cut to nothing", reason: "SignatureMethod of the signature has parameters",
			make: replaced(`rsa-sha256"/>`,
				`rsa-sha256"><ds:HMACOutputLength>0</ds:HMACOutputLength></ds:SignatureMethod>`)},
	})
}

// TestConsume_RefusesOtherTransforms accepts the enveloped signature in exclusive canonical form
// without comments only.
func TestConsume_RefusesOtherTransforms(t *testing.T) {
	t.Parallel()
	const other = "other transforms than"
	transforms := func(algorithms ...string) func(testing.TB) string {
		var b strings.Builder
		for _, a := range algorithms {
			b.WriteString(`<ds:Transform Algorithm="` + a + `"/>`)
		}
		return withSignature(signatureSpec{transforms: b.String()})
	}
	expectRefused(t, []attack{
		{name: "canonical form with comments", reason: other,
			make: transforms(enveloped, exclusiveC14N+"WithComments")},
		{name: "SignedInfo in canonical form with comments", reason: other,
			make: withSignature(signatureSpec{c14n: exclusiveC14N + "WithComments"})},
		{name: "inclusive canonical form", reason: other,
			make: transforms(enveloped, "http://www.w3.org/TR/2001/REC-xml-c14n-20010315")},
		{name: "XPath", reason: other,
			make: transforms(enveloped, "http://www.w3.org/TR/1999/REC-xpath-19991116")},
		{name: "XSLT", reason: other,
			make: transforms("http://www.w3.org/TR/1999/REC-xslt-19991116", exclusiveC14N)},
		{name: "base64", reason: other, make: transforms(enveloped, "http://www.w3.org/2000/09/xmldsig#base64")},
		{name: "three transforms", reason: "has another element Transform",
			make: transforms(enveloped, exclusiveC14N, exclusiveC14N)},
		{name: "one transform", reason: "has not the one Transform", make: transforms(enveloped)},
		{name: "enveloped twice", reason: other, make: transforms(enveloped, enveloped)},
		{name: "a transform with a parameter", reason: "has a parameter XPath",
			make: withSignature(signatureSpec{transforms: `<ds:Transform Algorithm="` + enveloped +
				`"/><ds:Transform Algorithm="` + exclusiveC14N + `"><ds:XPath>1</ds:XPath></ds:Transform>`})},
	})
}

// TestConsume_ChecksSignatureElements refuses signatures with repeated, missing or unknown
// elements.
func TestConsume_ChecksSignatureElements(t *testing.T) {
	t.Parallel()
	signatureThen := func(edit func(sig *etree.Element)) func(testing.TB) string {
		return signedThen(func(_ testing.TB, root *etree.Element) { edit(root.FindElement(".//ds:Signature")) })
	}
	expectRefused(t, []attack{
		{name: "two of the assertion", reason: "two signatures",
			make: signatureThen(func(sig *etree.Element) { sig.Parent().AddChild(sig.Copy()) })},
		{name: "two references", reason: "has another element Reference",
			make: withSignature(signatureSpec{reference: `<ds:Reference URI="#_r1"/>`})},
		{name: "a reference of another namespace before it", reason: "has not the one CanonicalizationMethod",
			make: signatureThen(func(sig *etree.Element) {
				sig.SelectElement("ds:SignedInfo").InsertChildAt(0, etree.NewElement("saml:Reference"))
			})},
		{name: "a second SignedInfo", reason: "has another element SignedInfo",
			make: signatureThen(func(sig *etree.Element) { sig.AddChild(sig.SelectElement("ds:SignedInfo").Copy()) })},
		{name: "an object", reason: "an element Object", make: withSignature(signatureSpec{within: `<ds:Object/>`})},
		{name: "a manifest", reason: "an element Manifest",
			make: withSignature(signatureSpec{within: `<ds:Manifest/>`})},
		{name: "no value", reason: "verifying the assertion",
			make: signatureThen(func(sig *etree.Element) { sig.SelectElement("ds:SignatureValue").SetText("") })},
		{name: "a value that is no base64", reason: "verifying the assertion: Could not decode",
			make: signatureThen(func(sig *etree.Element) { sig.SelectElement("ds:SignatureValue").SetText("%%%") })},
	})
}

// TestConsume_RefusesEncryption refuses encrypted assertions and ids without decrypting them.
func TestConsume_RefusesEncryption(t *testing.T) {
	t.Parallel()
	expectRefused(t, []attack{
		{name: "an encrypted assertion", reason: "encrypted",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				root.RemoveChild(assertionOf(root))
				root.CreateElement("saml:EncryptedAssertion")
			})},
		{name: "an encrypted assertion shorter than a block", reason: "encrypted",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				root.RemoveChild(assertionOf(root))
				data := root.CreateElement("saml:EncryptedAssertion").CreateElement("xenc:EncryptedData")
				data.CreateAttr("xmlns:xenc", "http://www.w3.org/2001/04/xmlenc#")
				data.CreateElement("xenc:EncryptionMethod").
					CreateAttr("Algorithm", "http://www.w3.org/2001/04/xmlenc#aes128-cbc")
				data.CreateElement("xenc:CipherData").CreateElement("xenc:CipherValue").
					SetText(base64.StdEncoding.EncodeToString([]byte("x")))
			})},
		{name: "an encrypted id in a signed assertion", reason: "encrypted",
			make: editedResponse(func(s *responseSpec) { s.NameID = `<saml:EncryptedID/>` })},
	})
}
