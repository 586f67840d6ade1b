// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
)

const inlineField = "spec.trafficPolicy.inline"

// inline returns the text of a policy that is part of an object. The object's layout is lost, so
// that a mistake is named by its field, as the API server names those of other fields.
func inline(raw []byte, scheme, binding string, s *trafficpolicy.Sealing) (string, error) {
	var text bytes.Buffer
	if err := json.Indent(&text, raw, "", "  "); err != nil {
		return "", status.Problemf(v1alpha1.ReasonPolicyInvalid, inlineField+": is not an object")
	}
	used, problems := check(text.String(), scheme, binding, s)
	if len(problems) == 0 {
		return used, nil
	}
	fields := fieldsOf(text.Bytes())
	return "", invalid("", problems, func(p trafficpolicy.Problem) string {
		return inlineField + fields.at(p.Line) + ": " + p.Msg
	})
}

// place is the line on which a value or its key begins, and its field.
type place struct {
	line  int
	field string // such as .on_http_request[0].name; "" for the document
}

// places are in the order of the document.
type places []place

// fieldsOf returns the places of all keys and values of an indented JSON document. What begins on
// one line has one field: a key and its value.
func fieldsOf(text []byte) places {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || len(doc.Content) == 0 {
		return nil
	}
	var found places
	var add func(n *yaml.Node, field string)
	add = func(n *yaml.Node, field string) {
		found = append(found, place{n.Line, field})
		for i, child := range n.Content {
			switch {
			case n.Kind == yaml.SequenceNode:
				add(child, field+"["+strconv.Itoa(i)+"]")
			case i%2 == 1:
				add(child, field+"."+n.Content[i-1].Value)
			}
		}
	}
	add(doc.Content[0], "")
	return found
}

// at returns the field of a line.
func (p places) at(line int) string {
	field := ""
	for _, at := range p {
		if at.line > line {
			break
		}
		field = at.field
	}
	return field
}
