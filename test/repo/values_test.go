// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/reference"
)

// proseColumns leaves room for the links that paths of pages become.
const proseColumns = 90

// valuesPage makes the reference of a chart's values from values.yaml and values.schema.json. The
// comment of a value in values.yaml, where there is one, becomes its description in the schema.
type valuesPage struct {
	t      *testing.T
	schema *yaml.Node // JSON is YAML
	text   strings.Builder
}

func TestReference_DescribesValues(t *testing.T) {
	t.Parallel()
	for _, chart := range []string{"server", "operator"} {
		dir := "charts/fairlead-" + chart
		p := &valuesPage{t: t, schema: yamlDocument(t, read(t, dir+"/values.schema.json"))}
		p.describe("", yamlDocument(t, read(t, dir+"/values.yaml")), p.schema)
		reference.Block(t, "../../docs/reference/values-"+chart+".md", "values", p.text.String())
		var schema bytes.Buffer
		must.Succeed(t, json.Indent(&schema, []byte(jsonText(t, p.schema)), "", "  "))
		reference.File(t, "../../"+dir+"/values.schema.json", schema.String()+"\n")
	}
}

func yamlDocument(t *testing.T, src []byte) *yaml.Node {
	t.Helper()
	var document yaml.Node
	must.Succeed(t, yaml.Unmarshal(src, &document))
	return document.Content[0]
}

// describe writes the table of an object's values. Those of the chart have sections for the objects
// among them.
func (p *valuesPage) describe(prefix string, values, schema *yaml.Node) {
	table := reference.Header("Value", "Type", "Default", "What")
	var groups []func()
	var add func(prefix string, values, schema *yaml.Node)
	add = func(prefix string, values, schema *yaml.Node) {
		for i := 0; i < len(values.Content); i += 2 {
			name, value := values.Content[i], values.Content[i+1]
			property := member(member(p.resolve(schema), "properties"), name.Value)
			what := p.description(name, property)
			switch {
			case what == "":
				p.t.Errorf("%s%s has neither a comment in values.yaml nor a description", prefix, name.Value)
			case member(p.resolve(property), "properties") == nil || len(value.Content) == 0:
				table += reference.Row(reference.Code(prefix+name.Value), p.types(property), defaultOf(p.t, value),
					what)
			case prefix == "":
				groups = append(groups, func() {
					p.text.WriteString("\n## " + name.Value + "\n\n" + reference.Prose(what, proseColumns) + "\n")
					p.describe(name.Value+".", value, property)
				})
			default:
				table += reference.Row(reference.Code(prefix+name.Value), "object", "", what)
				add(prefix+name.Value+".", value, property)
			}
		}
	}
	add(prefix, values, schema)
	p.text.WriteString(table)
	for _, describe := range groups {
		describe()
	}
}

// description returns what a value is, and makes its comment the description of its schema.
func (p *valuesPage) description(name, property *yaml.Node) string {
	comment := strings.Join(strings.Fields(strings.ReplaceAll("\n"+name.HeadComment, "\n#", " ")), " ")
	own := member(property, "description")
	switch {
	case comment == "" && own == nil:
		own = member(p.resolve(property), "description")
	case comment != "" && own != nil:
		own.Value = comment
	case comment != "":
		property.Content = append([]*yaml.Node{text("description"), text(comment)}, property.Content...)
	}
	if own != nil {
		return own.Value
	}
	return comment
}

func (p *valuesPage) types(property *yaml.Node) string {
	property = p.resolve(property)
	types := cmp.Or(member(property, "enum"), member(property, "type"))
	if types == nil || types.Kind == yaml.ScalarNode {
		return member(property, "type").Value
	}
	var names []string
	for _, n := range types.Content {
		names = append(names, cmp.Or(n.Value, "empty"))
	}
	return strings.Join(names, ", ")
}

// resolve returns what a schema refers to, or the schema itself.
func (p *valuesPage) resolve(schema *yaml.Node) *yaml.Node {
	if ref := member(schema, "$ref"); ref != nil {
		return member(member(p.schema, "$defs"), strings.TrimPrefix(ref.Value, "#/$defs/"))
	}
	return schema
}

// member returns a member of an object, nil for none.
func member(object *yaml.Node, name string) *yaml.Node {
	for i := 0; object != nil && i < len(object.Content); i += 2 {
		if object.Content[i].Value == name {
			return object.Content[i+1]
		}
	}
	return nil
}

func defaultOf(t *testing.T, value *yaml.Node) string {
	if value.Kind == yaml.ScalarNode {
		return reference.Code(value.Value)
	}
	return reference.Code(jsonText(t, value))
}

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

// jsonText returns a node as JSON, its members in their order.
func jsonText(t *testing.T, n *yaml.Node) string {
	t.Helper()
	var parts []string
	for i, child := range n.Content {
		part := jsonText(t, child)
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			parts[len(parts)-1] += ": " + part
			continue
		}
		parts = append(parts, part)
	}
	switch {
	case n.Kind == yaml.MappingNode:
		return "{" + strings.Join(parts, ", ") + "}"
	case n.Kind == yaml.SequenceNode:
		return "[" + strings.Join(parts, ", ") + "]"
	case n.Tag != "!!str":
		return n.Value
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	must.Succeed(t, encoder.Encode(n.Value))
	return strings.TrimSpace(b.String())
}
