// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/beevik/etree"
)

// maxPrefixes is how many prefixes a response may declare; canonicalization costs elements times
// prefixes.
const maxPrefixes = 32

// ncName matches the names that are allowed: fewer than XML allows, all that SAML and its
// signatures need.
var ncName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9._-]*$`)

// response is a document with the structure of a SAML response; its content is not verified.
type response struct {
	root, assertion *etree.Element // assertion is nil in a response that reports a failure.
	// The signatures, of the root and of the assertion; either may be nil.
	rootSignature, assertionSignature *etree.Element
}

// parseResponse checks that a document is a response that can be read in one way only. Known
// attacks move a signed element to where the signature check still finds it and another one to
// where the reader looks. So each element has one place, and nothing of the same name may stand
// elsewhere.
func parseResponse(root *etree.Element) (*response, error) {
	if !isElement(root, nsProtocol, "Response") {
		return nil, errors.New("its root is not samlp:Response")
	}
	s := structureChecker{root: root, ids: map[string]bool{}, prefixes: map[string]bool{}}
	if err := s.checkElement(root); err != nil {
		return nil, err
	}
	if s.encrypted {
		return nil, errEncrypted
	}
	r := &response{root: root}
	for _, c := range root.ChildElements() {
		switch {
		case isElement(c, nsAssertion, "Assertion"):
			r.assertion = c
		case isElement(c, nsSignature, "Signature"):
			r.rootSignature = c
		case isElement(c, nsAssertion, "Issuer"), isElement(c, nsProtocol, "Status"),
			isElement(c, nsProtocol, "Extensions"):
		default:
			return nil, fmt.Errorf("the response has a child %s", c.Tag)
		}
	}
	if s.assertions > 1 || (s.assertions == 1) != (r.assertion != nil) {
		return nil, errors.New("it has more than one assertion, or one that is not a child of the response")
	}
	var err error
	if r.rootSignature, err = signatureOf(root); err != nil {
		return nil, err
	}
	signatures := 0
	if r.rootSignature != nil {
		signatures++
	}
	if r.assertion != nil {
		if r.assertionSignature, err = signatureOf(r.assertion); err != nil {
			return nil, err
		}
		if r.assertionSignature != nil {
			signatures++
		}
	}
	if s.signatures != signatures {
		return nil, errors.New("it has a signature that is neither the response's nor the assertion's")
	}
	return r, nil
}

var errEncrypted = errors.New("its assertion is encrypted")

// structureChecker walks all elements of a response once.
type structureChecker struct {
	root                             *etree.Element
	ids, prefixes                    map[string]bool
	elements, assertions, signatures int
	encrypted                        bool
}

func (s *structureChecker) checkElement(e *etree.Element) error {
	if s.elements++; s.elements > responseLimits.elements {
		return fmt.Errorf("it has more than %d elements: let the identity provider send fewer groups",
			responseLimits.elements)
	}
	if err := s.checkName(e); err != nil {
		return err
	}
	if err := s.checkAttributes(e); err != nil {
		return err
	}
	for _, t := range e.Child {
		switch t := t.(type) {
		case *etree.Element:
			if err := s.checkElement(t); err != nil {
				return err
			}
		case *etree.CharData:
		default:
			return errors.New("it has something other than elements and text")
		}
	}
	return nil
}

// checkName counts the elements of which there may be only one, in any spelling and namespace.
func (s *structureChecker) checkName(e *etree.Element) error {
	if !ncName.MatchString(e.Tag) || (e.Space != "" && !ncName.MatchString(e.Space)) ||
		strings.HasPrefix(strings.ToLower(e.Space), "xml") {
		return fmt.Errorf("an element has the name %.64q", e.FullTag())
	}
	if namespaceOf(e, e.Space) == "" {
		return fmt.Errorf("element %.64q is in no namespace", e.FullTag())
	}
	switch tag := strings.ToLower(e.Tag); tag {
	case "response":
		if e != s.root {
			return errors.New("it has a response in the response")
		}
	case "assertion":
		s.assertions++
	case "signature":
		s.signatures++
	case "encryptedassertion", "encryptedid", "encryptedattribute", "newencryptedid", "encrypteddata", "encryptedkey":
		s.encrypted = true
	case "object", "manifest":
		return fmt.Errorf("it has an element %s", e.Tag)
	}
	return nil
}

// checkAttributes refuses duplicate attributes and ids. The signature library matches an ID by its
// local name, whatever its prefix; other programs read Id, id and xml:id as one. So each of them is
// an id, and must be the only one of its element.
func (s *structureChecker) checkAttributes(e *etree.Element) error {
	seen := map[string]bool{}
	id := false
	for _, a := range e.Attr {
		if a.Space == "xmlns" || (a.Space == "" && a.Key == "xmlns") {
			if err := s.checkNamespace(a); err != nil {
				return err
			}
		} else if !ncName.MatchString(a.Key) || (a.Space != "" && !ncName.MatchString(a.Space)) {
			return fmt.Errorf("an attribute has the name %.64q", a.FullKey())
		}
		in := a.Space // attributes without a prefix are in no namespace
		if in != "" && in != "xmlns" && in != "xml" {
			if in = namespaceOf(e, a.Space); in == "" {
				return fmt.Errorf("the prefix of attribute %.64q is not declared", a.FullKey())
			}
		}
		if key := in + " " + a.Key; seen[key] {
			return fmt.Errorf("element %s has the attribute %.64q twice", e.Tag, a.FullKey())
		} else {
			seen[key] = true
		}
		if a.Space != "xmlns" && strings.EqualFold(a.Key, "id") {
			if id || a.Space != "" || !ncName.MatchString(a.Value) || s.ids[a.Value] {
				return errors.New("an ID is there twice, has a prefix, or is no name")
			}
			id, s.ids[a.Value] = true, true
		}
	}
	return nil
}

func (s *structureChecker) checkNamespace(a etree.Attr) error {
	if prefix := strings.ToLower(a.Key); a.Space == "xmlns" &&
		(!ncName.MatchString(a.Key) || strings.HasPrefix(prefix, "xml") || prefix == "id") {
		return fmt.Errorf("a prefix has the name %.64q", a.Key)
	}
	if a.Value == "" || a.Value == nsXML || a.Value == nsXMLNS {
		return errors.New("a namespace is declared as empty or as one of XML's own")
	}
	if s.prefixes[a.FullKey()] = true; len(s.prefixes) > maxPrefixes {
		return fmt.Errorf("it declares more than %d prefixes", maxPrefixes)
	}
	return nil
}

// Algorithms of signatures. SHA-1 and everything with a shared key are not among them; of the
// transforms, both are needed, in this order.
var (
	signatureMethods = []string{
		"http://www.w3.org/2001/04/xmldsig-more#rsa-sha256", "http://www.w3.org/2001/04/xmldsig-more#rsa-sha384",
		"http://www.w3.org/2001/04/xmldsig-more#rsa-sha512",
	}
	digestMethods = []string{
		"http://www.w3.org/2001/04/xmlenc#sha256", "http://www.w3.org/2001/04/xmldsig-more#sha384",
		"http://www.w3.org/2001/04/xmlenc#sha512",
	}
)

const (
	exclusiveC14N = "http://www.w3.org/2001/10/xml-exc-c14n#"
	enveloped     = "http://www.w3.org/2000/09/xmldsig#enveloped-signature"
)

// signatureOf returns the signature of e, nil when it has none, and checks that it references e and
// nothing else.
func signatureOf(e *etree.Element) (*etree.Element, error) {
	found := children(e, nsSignature, "Signature")
	if len(found) == 0 {
		return nil, nil
	}
	if len(found) > 1 {
		return nil, fmt.Errorf("%s has two signatures", e.Tag)
	}
	sig := found[0]
	top, err := signatureParts(sig, "SignedInfo", "SignatureValue", "KeyInfo?")
	if err != nil {
		return nil, err
	}
	info, err := top[0].parts("CanonicalizationMethod", "SignatureMethod", "Reference")
	if err != nil {
		return nil, err
	}
	reference, err := info[2].parts("Transforms", "DigestMethod", "DigestValue")
	if err != nil {
		return nil, err
	}
	transforms, err := reference[0].parts("Transform", "Transform")
	if err != nil {
		return nil, err
	}
	id := attr(e, "ID")
	switch {
	case id == "" || attr(info[2].Element, "URI") != "#"+id:
		return nil, fmt.Errorf("the signature in %s is of something else", e.Tag)
	case info[0].algorithm() != exclusiveC14N || transforms[0].algorithm() != enveloped ||
		transforms[1].algorithm() != exclusiveC14N:
		return nil, errors.New("the signature has other transforms than enveloped-signature and xml-exc-c14n")
	case !slices.Contains(signatureMethods, info[1].algorithm()):
		return nil, fmt.Errorf("signature method %.128q is not RSA with SHA-256 or more", info[1].algorithm())
	case !slices.Contains(digestMethods, reference[1].algorithm()):
		return nil, fmt.Errorf("digest method %.128q is not SHA-256 or more", reference[1].algorithm())
	}
	for _, leaf := range []signaturePart{info[0], info[1], transforms[0], reference[1], reference[2], top[1]} {
		if len(leaf.ChildElements()) > 0 {
			return nil, fmt.Errorf("%s of the signature has parameters", leaf.Tag)
		}
	}
	for _, c := range transforms[1].ChildElements() {
		if !isElement(c, exclusiveC14N, "InclusiveNamespaces") || len(c.ChildElements()) > 0 {
			return nil, fmt.Errorf("a transform of the signature has a parameter %s", c.Tag)
		}
	}
	return sig, nil
}

// signaturePart is an element of a signature.
type signaturePart struct{ *etree.Element }

func (p signaturePart) algorithm() string { return attr(p.Element, "Algorithm") }

func (p signaturePart) parts(names ...string) ([]signaturePart, error) {
	return signatureParts(p.Element, names...)
}

// signatureParts returns the children of e, which must be these, in this order, and no others. A
// name that ends in "?" is optional.
func signatureParts(e *etree.Element, names ...string) ([]signaturePart, error) {
	all := e.ChildElements()
	var found []signaturePart
	for _, name := range names {
		name, optional := strings.CutSuffix(name, "?")
		if len(all) == 0 || !isElement(all[0], nsSignature, name) {
			if optional {
				continue
			}
			return nil, fmt.Errorf("%s of the signature has not the one %s", e.Tag, name)
		}
		found, all = append(found, signaturePart{all[0]}), all[1:]
	}
	if len(all) > 0 {
		return nil, fmt.Errorf("%s of the signature has another element %s", e.Tag, all[0].Tag)
	}
	return found, nil
}
