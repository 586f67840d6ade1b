// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package saml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"unicode/utf8"

	"github.com/beevik/etree"
)

// Namespaces.
const (
	nsProtocol  = "urn:oasis:names:tc:SAML:2.0:protocol"
	nsAssertion = "urn:oasis:names:tc:SAML:2.0:assertion"
	nsMetadata  = "urn:oasis:names:tc:SAML:2.0:metadata"
	nsSignature = "http://www.w3.org/2000/09/xmldsig#"
	nsXML       = "http://www.w3.org/XML/1998/namespace"
	nsXMLNS     = "http://www.w3.org/2000/xmlns/"
)

// limits bound the cost of reading a document.
type limits struct {
	bytes, elements, depth int
	comments               bool // comments is set if they are allowed.
}

var (
	responseLimits = limits{bytes: 256 << 10, elements: 1000, depth: 24}
	metadataLimits = limits{bytes: 1 << 20, elements: 20_000, depth: 24, comments: true}
)

// declaration is the one processing instruction that a document may have, at its very beginning.
var declaration = regexp.MustCompile(
	`^<\?xml\s+version=["']1\.0["'](\s+encoding=["'](?i:utf-8)["'])?(\s+standalone=["'](yes|no)["'])?\s*\?>`)

// parseXML reads a document of plain elements and text in UTF-8, and returns its root. It refuses
// by their bytes, before any parser runs, what parsers are known to disagree about: document types
// and thereby entities, CDATA sections, processing instructions, and comments.
func parseXML(raw []byte, l limits) (*etree.Element, error) {
	switch {
	case len(raw) > l.bytes:
		return nil, fmt.Errorf("it has more than %d KiB", l.bytes>>10)
	case !utf8.Valid(raw) || bytes.IndexByte(raw, 0) >= 0:
		return nil, errors.New("it is not UTF-8")
	}
	raw = raw[len(declaration.Find(raw)):]
	if err := checkPlain(raw, l); err != nil {
		return nil, err
	}
	doc := etree.NewDocument()
	doc.ReadSettings = etree.ReadSettings{PreserveDuplicateAttrs: true, MaxDepth: l.depth, CharsetReader: rejectCharset}
	if err := doc.ReadFromBytes(raw); err != nil {
		return nil, fmt.Errorf("reading XML: %w", err)
	}
	var root *etree.Element
	for _, t := range doc.Child {
		switch t := t.(type) {
		case *etree.Element:
			if root != nil {
				return nil, errors.New("it has more than one root element")
			}
			root = t
		case *etree.CharData:
			if !t.IsWhitespace() {
				return nil, errors.New("it has text outside its root element")
			}
		}
	}
	if root == nil {
		return nil, errors.New("it has no element")
	}
	return root, nil
}

func checkPlain(raw []byte, l limits) error {
	if bytes.Count(raw, []byte("<")) > 2*l.elements {
		return fmt.Errorf("it has more than %d elements", l.elements)
	}
	if bytes.Contains(raw, []byte("<?")) {
		return errors.New("it has a processing instruction, or a declaration of another encoding than UTF-8")
	}
	for rest := raw; ; {
		i := bytes.Index(rest, []byte("<!"))
		if i < 0 {
			return nil
		}
		rest = rest[i:]
		if !l.comments || !bytes.HasPrefix(rest, []byte("<!--")) {
			return errors.New("it has a document type, a CDATA section or a comment")
		}
		rest = rest[2:]
	}
}

func rejectCharset(charset string, _ io.Reader) (io.Reader, error) {
	return nil, fmt.Errorf("encoding %q is not UTF-8", charset)
}

// isElement reports whether e has that namespace and local name.
func isElement(e *etree.Element, namespace, name string) bool {
	return e != nil && e.Tag == name && namespaceOf(e, e.Space) == namespace
}

// namespaceOf returns the namespace of a prefix at e, "" for an undeclared one. The prefix "" is
// the default namespace.
func namespaceOf(e *etree.Element, prefix string) string {
	for ; e != nil; e = e.Parent() {
		for _, a := range e.Attr {
			if (prefix != "" && a.Space == "xmlns" && a.Key == prefix) ||
				(prefix == "" && a.Space == "" && a.Key == "xmlns") {
				return a.Value
			}
		}
	}
	return ""
}

// attr returns the attribute of that exact name, without a prefix.
func attr(e *etree.Element, name string) string {
	for _, a := range e.Attr {
		if a.Space == "" && a.Key == name {
			return a.Value
		}
	}
	return ""
}

// children returns the children of that name.
func children(e *etree.Element, namespace, name string) []*etree.Element {
	var found []*etree.Element
	for _, c := range e.ChildElements() {
		if isElement(c, namespace, name) {
			found = append(found, c)
		}
	}
	return found
}

// onlyChild returns the one child of that name.
func onlyChild(e *etree.Element, namespace, name string) (*etree.Element, error) {
	found := children(e, namespace, name)
	if len(found) != 1 {
		return nil, fmt.Errorf("%s has %d elements %s, not one", e.Tag, len(found), name)
	}
	return found[0], nil
}

// elementText returns the text of an element that has no child elements.
func elementText(e *etree.Element) (string, error) {
	var b bytes.Buffer
	for _, t := range e.Child {
		switch t := t.(type) {
		case *etree.CharData:
			b.WriteString(t.Data)
		case *etree.Element:
			return "", fmt.Errorf("%s has an element where text belongs", e.Tag)
		}
	}
	return b.String(), nil
}
