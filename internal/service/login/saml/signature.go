// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/beevik/etree"
	dsig "github.com/russellhaering/goxmldsig"
	"github.com/russellhaering/goxmldsig/etreeutils"
)

// verifiedContent is what a signature covers of a response, parsed from the bytes that were signed.
type verifiedContent struct {
	assertion *etree.Element
	root      *etree.Element // root is nil if only the assertion is signed.
}

// verify checks every signature of a response with the identity provider's keys. There must be at
// least one signature.
func (r *response) verify(keys []*x509.Certificate, now time.Time) (*verifiedContent, error) {
	if r.rootSignature == nil && r.assertionSignature == nil {
		return nil, errors.New("neither the response nor its assertion is signed")
	}
	s := &verifiedContent{assertion: r.assertion}
	if r.rootSignature != nil {
		root, err := verifyElement(r.root, keys, now)
		if err != nil {
			return nil, fmt.Errorf("verifying the response: %w", err)
		}
		s.root = root
		if s.assertion, err = onlyChild(root, nsAssertion, "Assertion"); err != nil {
			return nil, err
		}
	}
	if r.assertionSignature != nil {
		var err error
		if s.assertion, err = verifyElement(s.assertion, keys, now); err != nil {
			return nil, fmt.Errorf("verifying the assertion: %w", err)
		}
	}
	return s, nil
}

// verifyElement returns what the signature in e covers, without the signature. It ignores KeyInfo:
// the keys come from the metadata.
func verifyElement(e *etree.Element, keys []*x509.Certificate, now time.Time) (*etree.Element, error) {
	scope, err := etreeutils.NSBuildParentContext(e)
	if err != nil {
		return nil, err
	}
	detached, err := etreeutils.NSDetatch(scope, e)
	if err != nil {
		return nil, err
	}
	sig, err := onlyChild(detached, nsSignature, "Signature")
	if err != nil {
		return nil, err
	}
	for _, k := range children(sig, nsSignature, "KeyInfo") {
		sig.RemoveChild(k)
	}
	value, err := onlyChild(sig, nsSignature, "SignatureValue")
	if err != nil {
		return nil, err
	}
	encoded, err := elementText(value)
	if err != nil {
		return nil, err
	}
	value.SetText(removeSpace(encoded))
	err = errors.New("the metadata has no key")
	for _, key := range keys {
		v := dsig.NewDefaultValidationContext(&dsig.MemoryX509CertificateStore{Roots: []*x509.Certificate{key}})
		v.Clock = dsig.NewFakeClockAt(now)
		var out *etree.Element
		if out, err = v.Validate(detached); err != nil {
			continue
		}
		if out == nil || !isElement(out, namespaceOf(e, e.Space), e.Tag) || attr(out, "ID") != attr(e, "ID") ||
			len(children(out, nsSignature, "Signature")) > 0 {
			return nil, errors.New("the signature covers something else")
		}
		return out, nil
	}
	return nil, err // the last key's error
}

func removeSpace(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsSpace(c) {
			return -1
		}
		return c
	}, s)
}
