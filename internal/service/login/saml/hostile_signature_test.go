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

// attack is a response that has to be refused, for that reason: a refusal for another one would
// hide that the rule is gone.
type attack struct {
	name   string
	make   func(t testing.TB) string
	reason string // part of the cause in the log
	config func(*trafficpolicy.LoginConfig)
}

// expectRefused runs the attacks.
func expectRefused(t *testing.T, attacks []attack) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			c, err := consume(t, providerWith(t, a.config), a.make(t))
			if c != nil {
				t.Fatalf("let %q in", c.Key)
			}
			if cause := causeOf(t, err); !strings.Contains(cause, a.reason) {
				t.Errorf("refused for %q, want %q", cause, a.reason)
			}
		})
	}
}

// signedThen signs a good response and then changes it.
func signedThen(edit func(t testing.TB, root *etree.Element)) func(testing.TB) string {
	return func(t testing.TB) string { return editSigned(t, validResponse(), edit) }
}

// responseSignedThen does that where the response is signed, and not the assertion.
func responseSignedThen(edit func(t testing.TB, root *etree.Element)) func(testing.TB) string {
	return func(t testing.TB) string {
		s := validResponse()
		s.signResponse = true
		return editSigned(t, s, edit)
	}
}

func editSigned(t testing.TB, s *responseSpec, edit func(testing.TB, *etree.Element)) string {
	doc := s.document(t)
	edit(t, doc.Root())
	return asXML(t, doc)
}

// editedResponse changes what is said before it is signed.
func editedResponse(edit func(*responseSpec)) func(testing.TB) string {
	return func(t testing.TB) string {
		s := validResponse()
		edit(s)
		return s.xml(t)
	}
}

// replaced changes the text of a signed response.
func replaced(from, to string) func(testing.TB) string {
	return func(t testing.TB) string {
		before := validResponse().xml(t)
		after := strings.Replace(before, from, to, 1)
		if before == after {
			t.Fatalf("%q is not in the response", from)
		}
		return after
	}
}

func assertionOf(root *etree.Element) *etree.Element { return root.SelectElement("saml:Assertion") }

// evilCopy is a copy of e that speaks of the attacker, without a signature, under another ID.
func evilCopy(e *etree.Element, id string) *etree.Element {
	evil := e.Copy()
	for _, sig := range evil.FindElements(".//ds:Signature") {
		sig.Parent().RemoveChild(sig)
	}
	evil.CreateAttr("ID", id)
	for _, n := range evil.FindElements(".//saml:NameID") {
		n.SetText("mallory")
	}
	return evil
}

// TestConsume_RefusesSignatureWrapping holds the eight known ways to keep a signed element where
// its check finds it, and another where the reader looks.
func TestConsume_RefusesSignatureWrapping(t *testing.T) {
	t.Parallel()
	const elsewhere = "more than one assertion, or one that is not a child"
	expectRefused(t, []attack{
		{name: "XSW1, the signed response within the signature of an evil one",
			make: responseSignedThen(func(_ testing.TB, root *etree.Element) {
				original := root.Copy()
				sig := root.SelectElement("ds:Signature")
				original.RemoveChild(original.SelectElement("ds:Signature"))
				root.CreateAttr("ID", "_evil")
				assertionOf(root).FindElement(".//saml:NameID").SetText("mallory")
				sig.AddChild(original)
			}), reason: "a response in the response"},
		{name: "XSW2, the signed response beside the signature of an evil one",
			make: responseSignedThen(func(_ testing.TB, root *etree.Element) {
				original := root.Copy()
				original.RemoveChild(original.SelectElement("ds:Signature"))
				root.CreateAttr("ID", "_evil")
				assertionOf(root).FindElement(".//saml:NameID").SetText("mallory")
				root.InsertChildAt(0, original)
			}), reason: "a response in the response"},
		{name: "XSW3, an evil assertion before the signed one",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				a := assertionOf(root)
				root.InsertChildAt(a.Index(), evilCopy(a, "_evil"))
			}), reason: elsewhere},
		{name: "XSW3, an evil assertion behind the signed one",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				root.AddChild(evilCopy(assertionOf(root), "_evil"))
			}), reason: elsewhere},
		{name: "XSW4, the signed assertion within an evil one",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				a := assertionOf(root)
				evil := evilCopy(a, "_evil")
				root.RemoveChild(a)
				evil.AddChild(a)
				root.AddChild(evil)
			}), reason: elsewhere},
		{name: "XSW5, the signature in an evil assertion, the signed one at the end",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				a := assertionOf(root)
				original := a.Copy()
				original.RemoveChild(original.SelectElement("ds:Signature"))
				a.CreateAttr("ID", "_evil")
				a.FindElement(".//saml:NameID").SetText("mallory")
				root.AddChild(original)
			}), reason: elsewhere},
		{name: "XSW6, the signed assertion within the signature of an evil one",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				a := assertionOf(root)
				original := a.Copy()
				original.RemoveChild(original.SelectElement("ds:Signature"))
				a.CreateAttr("ID", "_evil")
				a.FindElement(".//saml:NameID").SetText("mallory")
				a.SelectElement("ds:Signature").AddChild(original)
			}), reason: elsewhere},
		{name: "XSW7, an evil assertion in Extensions", make: signedThen(func(_ testing.TB, root *etree.Element) {
			extensions := etree.NewElement("samlp:Extensions")
			extensions.AddChild(evilCopy(assertionOf(root), "_evil"))
			root.InsertChildAt(0, extensions)
		}), reason: elsewhere},
		{name: "XSW8, the signed assertion in ds:Object of an evil one's signature",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				a := assertionOf(root)
				original := a.Copy()
				original.RemoveChild(original.SelectElement("ds:Signature"))
				a.CreateAttr("ID", "_evil")
				a.FindElement(".//saml:NameID").SetText("mallory")
				a.SelectElement("ds:Signature").CreateElement("ds:Object").AddChild(original)
			}), reason: "an element Object"},
		{name: "the only assertion in Extensions", make: signedThen(func(_ testing.TB, root *etree.Element) {
			a := assertionOf(root)
			root.RemoveChild(a)
			root.CreateElement("samlp:Extensions").AddChild(a)
		}), reason: elsewhere},
		{name: "the only assertion in an element of the attacker's",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				a := assertionOf(root)
				root.RemoveChild(a)
				root.CreateElement("samlp:Wrapper").AddChild(a)
			}), reason: "the response has a child Wrapper"},
		{name: "an evil assertion in another namespace", make: signedThen(func(_ testing.TB, root *etree.Element) {
			evil := evilCopy(assertionOf(root), "_evil")
			evil.CreateAttr("xmlns:saml", "urn:oasis:names:tc:SAML:1.0:assertion")
			root.AddChild(evil)
		}), reason: "has a child Assertion"},
		{name: "an evil assertion in small letters", make: signedThen(func(_ testing.TB, root *etree.Element) {
			evil := evilCopy(assertionOf(root), "_evil")
			evil.Tag = "assertion"
			root.AddChild(evil)
		}), reason: "has a child assertion"},
		{name: "an assertion in the assertion's Advice, all signed", make: editedResponse(func(s *responseSpec) {
			s.Attributes += `<saml:Advice><saml:Assertion ID="_b"/></saml:Advice>`
		}), reason: elsewhere},
		{name: "the root is the assertion", make: func(t testing.TB) string {
			return asXML(t, etree.NewDocumentWithRoot(assertionOf(validResponse().document(t).Root()).Copy()))
		}, reason: "root is not samlp:Response"},
		{name: "the root is of another namespace",
			make: replaced(`xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol"`,
				`xmlns:samlp="urn:oasis:names:tc:SAML:1.0:protocol"`), reason: "root is not samlp:Response"},
		{name: "two roots", make: func(t testing.TB) string {
			return validResponse().xml(t) + validResponse().xml(t)
		}, reason: "more than one root"},
	})
}

// TestConsume_ChecksSignatures holds what signatures can be, and must not be.
func TestConsume_ChecksSignatures(t *testing.T) {
	t.Parallel()
	with := func(s signatureSpec) func(testing.TB) string {
		return editedResponse(func(x *responseSpec) { x.assertion = s })
	}
	transforms := func(algorithms ...string) string {
		var b strings.Builder
		for _, a := range algorithms {
			b.WriteString(`<ds:Transform Algorithm="` + a + `"/>`)
		}
		return b.String()
	}
	const other = "other transforms than"
	expectRefused(t, []attack{
		{name: "none", make: editedResponse(func(s *responseSpec) {
			s.signNothing = true
		}), reason: "neither the response nor its assertion is signed"},
		{name: "another key", make: with(signatureSpec{by: others()}), reason: "verifying the assertion: crypto/rsa"},
		{name: "another key, which KeyInfo brings along", make: with(signatureSpec{by: others(), keyInfo: others()}),
			reason: "verifying the assertion: crypto/rsa"},
		{name: "another key, and KeyInfo names the right one", make: with(signatureSpec{by: others(), keyInfo: ours()}),
			reason: "verifying the assertion: crypto/rsa"},
		{name: "changed afterwards", make: replaced(">alice<", ">mallory<"), reason: "could not be verified"},
		{name: "an attribute added afterwards",
			make: replaced("<saml:AttributeValue>eng",
				"<saml:AttributeValue>admins</saml:AttributeValue><saml:AttributeValue>eng"),
			reason: "could not be verified"},
		{name: "of another ID", make: with(signatureSpec{uri: "#_r1"}), reason: "is of something else"},
		{name: "of the whole document", make: func(t testing.TB) string {
			return strings.Replace(validResponse().xml(t), `URI="#_a1"`, `URI=""`, 1)
		}, reason: "is of something else"},
		{name: "of an XPointer", make: with(signatureSpec{uri: "#xpointer(id('_a1'))"}),
			reason: "is of something else"},
		{name: "of another element, moved to the assertion",
			make: responseSignedThen(func(_ testing.TB, root *etree.Element) {
				assertionOf(root).InsertChildAt(0, root.RemoveChild(root.SelectElement("ds:Signature")))
			}), reason: "is of something else"},
		{name: "within the subject", make: signedThen(func(_ testing.TB, root *etree.Element) {
			a := assertionOf(root)
			a.SelectElement("saml:Subject").AddChild(a.RemoveChild(a.SelectElement("ds:Signature")))
		}), reason: "neither the response's nor the assertion's"},
		{name: "two of the assertion", make: signedThen(func(_ testing.TB, root *etree.Element) {
			a := assertionOf(root)
			a.AddChild(a.SelectElement("ds:Signature").Copy())
		}), reason: "two signatures"},
		{name: "a good one of the assertion, a bad one of the response", make: editedResponse(func(s *responseSpec) {
			s.signResponse, s.assertion.by, s.response.by = true, ours(), others()
		}), reason: "verifying the response: crypto/rsa"},
		{name: "a good one of the response, a bad one of the assertion", make: editedResponse(func(s *responseSpec) {
			s.signResponse, s.assertion.by = true, others()
		}), reason: "verifying the assertion: crypto/rsa"},
		{name: "SHA-1",
			make: with(signatureSpec{hash: crypto.SHA1, method: "http://www.w3.org/2000/09/xmldsig#rsa-sha1",
				digest: "http://www.w3.org/2000/09/xmldsig#sha1"}), reason: "not RSA with SHA-256"},
		{name: "SHA-1 of the digest", make: with(signatureSpec{digest: "http://www.w3.org/2000/09/xmldsig#sha1"}),
			reason: "not SHA-256 or more"},
		{name: "no algorithm", make: with(signatureSpec{method: "none"}), reason: "not RSA with SHA-256"},
		{name: "HMAC with the public certificate",
			make: with(signatureSpec{method: "http://www.w3.org/2001/04/xmldsig-more#hmac-sha256",
				secret: ours().cert.Raw}),
			reason: "not RSA with SHA-256"},
		{name: "HMAC with the public certificate, called RSA", make: with(signatureSpec{secret: ours().cert.Raw}),
			reason: "verifying the assertion: crypto/rsa"},
		{name: "HMAC cut to nothing", make: func(t testing.TB) string {
			return strings.Replace(validResponse().xml(t), `rsa-sha256"/>`,
				`rsa-sha256"><ds:HMACOutputLength>0</ds:HMACOutputLength></ds:SignatureMethod>`, 1)
		}, reason: "SignatureMethod of the signature has parameters"},
		{name: "canonical form with comments",
			make: with(signatureSpec{transforms: transforms(enveloped, exclusiveC14N+"WithComments")}), reason: other},
		{name: "SignedInfo in canonical form with comments",
			make:   with(signatureSpec{c14n: exclusiveC14N + "WithComments"}),
			reason: other},
		{name: "inclusive canonical form",
			make: with(
				signatureSpec{transforms: transforms(enveloped, "http://www.w3.org/TR/2001/REC-xml-c14n-20010315")}),
			reason: other},
		{name: "XPath",
			make: with(
				signatureSpec{transforms: transforms(enveloped, "http://www.w3.org/TR/1999/REC-xpath-19991116")}),
			reason: other},
		{name: "XSLT",
			make: with(signatureSpec{transforms: transforms("http://www.w3.org/TR/1999/REC-xslt-19991116",
				exclusiveC14N)}),
			reason: other},
		{name: "base64",
			make:   with(signatureSpec{transforms: transforms(enveloped, "http://www.w3.org/2000/09/xmldsig#base64")}),
			reason: other},
		{name: "three transforms",
			make:   with(signatureSpec{transforms: transforms(enveloped, exclusiveC14N, exclusiveC14N)}),
			reason: "has another element Transform"},
		{name: "one transform", make: with(signatureSpec{transforms: transforms(enveloped)}),
			reason: "has not the one Transform"},
		{name: "enveloped twice", make: with(signatureSpec{transforms: transforms(enveloped, enveloped)}),
			reason: other},
		{name: "a transform with a parameter",
			make: with(signatureSpec{transforms: transforms(enveloped) + `<ds:Transform Algorithm="` + exclusiveC14N +
				`"><ds:XPath>1</ds:XPath></ds:Transform>`}), reason: "has a parameter XPath"},
		{name: "two references", make: with(signatureSpec{reference: `<ds:Reference URI="#_r1"/>`}),
			reason: "has another element Reference"},
		{name: "a reference of another namespace before it", make: signedThen(func(_ testing.TB, root *etree.Element) {
			info := root.FindElement(".//ds:SignedInfo")
			info.InsertChildAt(0, etree.NewElement("saml:Reference"))
		}), reason: "has not the one CanonicalizationMethod"},
		{name: "a second SignedInfo", make: signedThen(func(_ testing.TB, root *etree.Element) {
			sig := root.FindElement(".//ds:Signature")
			sig.AddChild(sig.SelectElement("ds:SignedInfo").Copy())
		}), reason: "has another element SignedInfo"},
		{name: "an object", make: with(signatureSpec{within: `<ds:Object/>`}), reason: "an element Object"},
		{name: "a manifest", make: with(signatureSpec{within: `<ds:Manifest/>`}), reason: "an element Manifest"},
		{name: "no value", make: signedThen(func(_ testing.TB, root *etree.Element) {
			root.FindElement(".//ds:SignatureValue").SetText("")
		}), reason: "verifying the assertion"},
		{name: "a value that is no base64", make: signedThen(func(_ testing.TB, root *etree.Element) {
			root.FindElement(".//ds:SignatureValue").SetText("%%%")
		}), reason: "verifying the assertion: Could not decode"},
		{name: "in a namespace that only looks like the right one", make: func(t testing.TB) string {
			return strings.Replace(validResponse().xml(t), `xmlns:ds="http://www.w3.org/2000/09/xmldsig#"`,
				`xmlns:ds="http://www.w3.org/2000/09/xmldsig"`, 1)
		}, reason: "neither the response's nor the assertion's"},
		{name: "a key that has expired", make: validResponse().xml, config: func(c *trafficpolicy.LoginConfig) {
			c.IdPMetadata = metadataOf(idpID, expiredSigner())
		}, reason: "verifying the assertion"},
		{name: "an encrypted assertion", make: signedThen(func(_ testing.TB, root *etree.Element) {
			root.RemoveChild(assertionOf(root))
			root.CreateElement("saml:EncryptedAssertion")
		}), reason: "encrypted"},
		{name: "a short encrypted assertion, at which others panic",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				root.RemoveChild(assertionOf(root))
				data := root.CreateElement("saml:EncryptedAssertion").CreateElement("xenc:EncryptedData")
				data.CreateAttr("xmlns:xenc", "http://www.w3.org/2001/04/xmlenc#")
				data.CreateElement("xenc:EncryptionMethod").
					CreateAttr("Algorithm", "http://www.w3.org/2001/04/xmlenc#aes128-cbc")
				data.CreateElement("xenc:CipherData").CreateElement("xenc:CipherValue").
					SetText(base64.StdEncoding.EncodeToString([]byte("x")))
			}), reason: "encrypted"},
		{name: "an encrypted id in a signed assertion", make: editedResponse(func(s *responseSpec) {
			s.NameID = `<saml:EncryptedID/>`
		}),
			reason: "encrypted"},
	})
}
