// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

const inlineField = "spec.trafficPolicy.inline"

// inline returns the text of a policy that is part of an object. The object's layout is lost, so
// that a mistake is named by its field, as the API server names those of other fields.
func inline(raw []byte, scheme, binding string) (string, error) {
	var text bytes.Buffer
	if err := json.Indent(&text, raw, "", "  "); err != nil {
		return "", &Problem{v1alpha1.ReasonPolicyInvalid, inlineField + ": is not an object"}
	}
	used, problems := check(text.String(), scheme, binding)
	if len(problems) == 0 {
		return used, nil
	}
	fields := fieldsOf(text.Bytes())
	return "", invalid("", problems, func(p trafficpolicy.Problem) string {
		return inlineField + fields.at(p.Line, p.Column) + ": " + p.Msg
	})
}

// place is where a value or its key begins in a document, and its field.
type place struct {
	line, column int
	field        string // such as .on_http_request[0].name; "" for the document
}

// places are in the order of the document.
type places []place

// fieldsOf returns the places of all values and keys of a JSON document: no two begin at one place.
func fieldsOf(text []byte) places {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || len(doc.Content) == 0 {
		return nil
	}
	var found places
	var add func(n *yaml.Node, field string)
	add = func(n *yaml.Node, field string) {
		found = append(found, place{n.Line, n.Column, field})
		for i, child := range n.Content {
			switch {
			case n.Kind == yaml.SequenceNode:
				add(child, field+"["+strconv.Itoa(i)+"]")
			case i%2 == 0:
				found = append(found, place{child.Line, child.Column, field + "." + child.Value})
			default:
				add(child, field+"."+n.Content[i-1].Value)
			}
		}
	}
	add(doc.Content[0], "")
	return found
}

// at returns the field at a place, or in whose value it lies.
func (p places) at(line, column int) string {
	field := ""
	for _, at := range p {
		if at.line > line || at.line == line && at.column > column {
			break
		}
		field = at.field
	}
	return field
}
