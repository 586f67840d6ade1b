// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"testing"

	"github.com/beevik/etree"
)

const misplacedAssertion = "more than one assertion, or one that is not a child"

// TestConsume_RefusesSignatureWrapping refuses the eight known ways (XSW1 to XSW8) to keep a signed
// element where its check finds it, and another one where the reader looks.
func TestConsume_RefusesSignatureWrapping(t *testing.T) {
	t.Parallel()
	expectRefused(t, []attack{
		{name: "XSW1, the signed response within the signature of an evil one", reason: "a response in the response",
			make: responseSignedThen(func(_ testing.TB, root *etree.Element) {
				sig := root.SelectElement("ds:Signature")
				sig.AddChild(makeEvil(root))
			})},
		{name: "XSW2, the signed response beside the signature of an evil one", reason: "a response in the response",
			make: responseSignedThen(func(_ testing.TB, root *etree.Element) {
				root.InsertChildAt(0, makeEvil(root))
			})},
		{name: "XSW3, an evil assertion before the signed one", reason: misplacedAssertion,
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				a := assertionOf(root)
				root.InsertChildAt(a.Index(), evilCopy(a))
			})},
		{name: "XSW3, an evil assertion behind the signed one", reason: misplacedAssertion,
			make: signedThen(func(_ testing.TB, root *etree.Element) { root.AddChild(evilCopy(assertionOf(root))) })},
		{name: "XSW4, the signed assertion within an evil one", reason: misplacedAssertion,
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				a := assertionOf(root)
				evil := evilCopy(a)
				root.RemoveChild(a)
				evil.AddChild(a)
				root.AddChild(evil)
			})},
		{name: "XSW5, the signature in an evil assertion, the signed one at the end", reason: misplacedAssertion,
			make: signedThen(func(_ testing.TB, root *etree.Element) { root.AddChild(makeEvil(assertionOf(root))) })},
		{name: "XSW6, the signed assertion within the signature of an evil one", reason: misplacedAssertion,
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				a := assertionOf(root)
				a.SelectElement("ds:Signature").AddChild(makeEvil(a))
			})},
		{name: "XSW7, an evil assertion in Extensions", reason: misplacedAssertion,
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				extensions := etree.NewElement("samlp:Extensions")
				extensions.AddChild(evilCopy(assertionOf(root)))
				root.InsertChildAt(0, extensions)
			})},
		{name: "XSW8, the signed assertion in ds:Object of an evil one's signature", reason: "an element Object",
			make: signedThen(func(_ testing.TB, root *etree.Element) {
				a := assertionOf(root)
				a.SelectElement("ds:Signature").CreateElement("ds:Object").AddChild(makeEvil(a))
			})},
	})
}

// TestConsume_RefusesMisplacedAssertions accepts a samlp:Response with one saml:Assertion as its
// child only.
func TestConsume_RefusesMisplacedAssertions(t *testing.T) {
	t.Parallel()
	moveAssertion := func(to string) func(testing.TB) string {
		return signedThen(func(_ testing.TB, root *etree.Element) {
			a := assertionOf(root)
			root.RemoveChild(a)
			root.CreateElement(to).AddChild(a)
		})
	}
	addEvil := func(edit func(evil *etree.Element)) func(testing.TB) string {
		return signedThen(func(_ testing.TB, root *etree.Element) {
			evil := evilCopy(assertionOf(root))
			edit(evil)
			root.AddChild(evil)
		})
	}
	expectRefused(t, []attack{
		{name: "in Extensions", reason: misplacedAssertion, make: moveAssertion("samlp:Extensions")},
		{name: "in an unknown element", reason: "the response has a child Wrapper",
			make: moveAssertion("samlp:Wrapper")},
		{name: "a second one in another namespace", reason: "has a child Assertion",
			make: addEvil(func(evil *etree.Element) {
				evil.CreateAttr("xmlns:saml", "urn:oasis:names:tc:SAML:1.0:assertion")
			})},
		{name: "a second one in small letters", reason: "has a child assertion",
			make: addEvil(func(evil *etree.Element) { evil.Tag = "assertion" })},
		{name: "in the assertion's Advice, all signed", reason: misplacedAssertion,
			make: editedResponse(func(s *responseSpec) {
				s.Attributes += `<saml:Advice><saml:Assertion ID="_b"/></saml:Advice>`
			})},
		{name: "the root is the assertion", reason: "root is not samlp:Response", make: func(t testing.TB) string {
			return asXML(t, etree.NewDocumentWithRoot(assertionOf(validResponse().document(t).Root()).Copy()))
		}},
		{name: "the root is of another namespace", reason: "root is not samlp:Response",
			make: replaced(`xmlns:samlp="urn:oasis:names:tc:SAML:2.0:protocol"`,
				`xmlns:samlp="urn:oasis:names:tc:SAML:1.0:protocol"`)},
		{name: "two roots", reason: "more than one root", make: func(t testing.TB) string {
			return validResponse().xml(t) + validResponse().xml(t)
		}},
	})
}
