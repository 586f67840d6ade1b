// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mapping is a mapping of the document that is read key by key. Keys that were never read are
// unknown keys.
type mapping struct {
	c      *compiler
	node   *yaml.Node
	what   string // "a rule"
	keys   map[string]*yaml.Node
	values map[string]*yaml.Node
	order  []string
	known  []string
}

// mapping reads a mapping. It returns nil when n is none, which it reports.
func (c *compiler) mapping(n *yaml.Node, what string) *mapping {
	if n.Kind != yaml.MappingNode {
		c.problem(n, scalarValue(n), "%s is a mapping of keys to values, not %s", what, describeNode(n))
		return nil
	}
	o := &mapping{c: c, node: n, what: what, keys: map[string]*yaml.Node{}, values: map[string]*yaml.Node{}}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Tag == "!!merge":
			c.problem(key, key.Value, "merge keys (<<) are not supported: write the keys out")
		case key.Kind != yaml.ScalarNode || key.Tag != "!!str":
			c.problem(key, scalarValue(key), "a key is a text, not %s", describeNode(key))
		case o.keys[key.Value] != nil:
			c.problem(key, key.Value, "the key %q is there twice, first on line %d", key.Value, o.keys[key.Value].Line)
		default:
			o.keys[key.Value], o.values[key.Value] = key, n.Content[i+1]
			o.order = append(o.order, key.Value)
		}
	}
	return o
}

// get returns the value of a key, nil when the key is missing. The key is then known.
func (m *mapping) get(key string) *yaml.Node {
	if !slices.Contains(m.known, key) {
		m.known = append(m.known, key)
	}
	return m.values[key]
}

// reportUnknown reports the keys that were not read. The hints explain some of them.
func (m *mapping) reportUnknown(hints map[string]string) {
	for _, key := range m.order {
		if slices.Contains(m.known, key) {
			continue
		}
		switch {
		case hints[key] != "":
			m.c.problem(m.keys[key], key, "%s has no key %q: %s", m.what, key, hints[key])
		case m.nearestKey(key) != "":
			m.c.problem(m.keys[key], key, "%s has no key %q; did you mean %s?", m.what, key, m.nearestKey(key))
		case len(m.known) == 0:
			m.c.problem(m.keys[key], key, "%s has no keys", m.what)
		default:
			m.c.problem(m.keys[key], key, "%s has no key %q; it has %s", m.what, key, strings.Join(m.known, ", "))
		}
	}
}

// nearestKey returns the known key with the most similar spelling; "" when none is similar.
func (m *mapping) nearestKey(key string) string {
	plain := strings.NewReplacer("_", "", "-", "", " ", "")
	given := plain.Replace(strings.ToLower(key))
	best, least := "", len(given)/4+1 // one in four letters may be wrong
	for _, known := range m.known {
		if n := levenshtein(given, plain.Replace(known)); n < least {
			best, least = known, n
		}
	}
	return best
}

// levenshtein returns how many letters have to be inserted, deleted or replaced to turn a into b.
func levenshtein(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// isList reports whether n is a sequence; it reports a problem when not.
func (c *compiler) isList(n *yaml.Node, key, of string) bool {
	if n.Kind != yaml.SequenceNode {
		c.problem(n, scalarValue(n), "%s is a list of %s, not %s", key, of, describeNode(n))
		return false
	}
	return true
}

// stringValue returns a string scalar.
func (c *compiler) stringValue(n *yaml.Node, key string) (string, bool) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		return n.Value, true
	}
	remedy := ""
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		remedy = ": put it in quotes"
	}
	c.problem(n, "", "%s is a text, not %s%s", key, describeNode(n), remedy) // without the value: it may be a password
	return "", false
}

func scalarValue(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

func describeNode(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	names := map[string]string{"!!str": "a text", "!!int": "a number", "!!float": "a number with a point",
		"!!bool": "true or false", "!!null": "nothing"}
	if name := names[n.Tag]; name != "" {
		return name
	}
	return "a value of type " + n.Tag
}

// config is the config of one action.
type config struct {
	*mapping
	kind *actionType
}

// missing reports that a required key is missing.
func (c *config) missing(key, why string) {
	c.c.problem(c.node, "", "%s needs %s: %s", c.kind.name, key, why)
}

// has reports whether the key is set, and marks it as known.
func (c *config) has(key string) bool { n := c.get(key); return n != nil && n.Tag != "!!null" }

// refuseSecret reports a mistake where a document with a secret is one.
func (c *compiler) refuseSecret(n *yaml.Node, what string) {
	if c.policy.options.NoSecrets != "" {
		c.problem(n, "", "%s is a secret, and everyone who may read this document would know it: %s", what,
			c.policy.options.NoSecrets)
	}
}

// str reads an optional text.
func (c *config) str(key, def string) string {
	if !c.has(key) {
		return def
	}
	s, _ := c.c.stringValue(c.values[key], key)
	return s
}

// flag reads an optional boolean.
func (c *config) flag(key string, def bool) bool {
	if !c.has(key) {
		return def
	}
	n := c.values[key]
	if n.Tag != "!!bool" {
		c.c.problem(n, scalarValue(n), "%s is true or false, not %s", key, describeNode(n))
		return def
	}
	return strings.EqualFold(n.Value, "true")
}

// number reads an optional integer.
func (c *config) number(key string, def, least, most int) int {
	if !c.has(key) {
		return def
	}
	n := c.values[key]
	var i int
	if n.Tag != "!!int" || n.Decode(&i) != nil {
		c.c.problem(n, scalarValue(n), "%s is a whole number, not %s", key, describeNode(n))
		return def
	}
	if i < least || i > most {
		c.c.problem(n, n.Value, "%s must be between %d and %d", key, least, most)
		return def
	}
	return i
}

// items reads a list of texts and returns its nodes.
func (c *config) items(key string, most int) []*yaml.Node {
	if !c.has(key) {
		return nil
	}
	n := c.values[key]
	if !c.c.isList(n, key, "texts") {
		return nil
	}
	if len(n.Content) > most {
		c.c.problem(n, "", "%s has %d entries, at most %d are allowed", key, len(n.Content), most)
		return nil
	}
	var items []*yaml.Node
	for _, item := range n.Content {
		if _, ok := c.c.stringValue(item, "an entry of "+key); ok {
			items = append(items, item)
		}
	}
	return items
}

// template reads a text with optional ${expressions}. It returns nil when there is none.
func (c *config) template(key string) *template {
	if !c.has(key) {
		return nil
	}
	n := c.values[key]
	if _, ok := c.c.stringValue(n, key); !ok {
		return nil
	}
	return c.c.compileTemplate(n)
}

// headers reads a mapping of header names to texts with optional ${expressions}, in the order of
// the document.
func (c *config) headers(key string, allowHost bool) []header {
	if !c.has(key) {
		return nil
	}
	o := c.c.mapping(c.values[key], key)
	if o == nil {
		return nil
	}
	if len(o.order) > maxHeaders {
		c.c.problem(o.node, "", "%s has %d entries, at most %d are allowed", key, len(o.order), maxHeaders)
		return nil
	}
	var all []header
	for _, name := range o.order {
		canonical, err := headerName(name, allowHost)
		if err != nil {
			c.c.problem(o.keys[name], name, "%v", err)
			continue
		}
		if slices.ContainsFunc(all, func(h header) bool { return h.name == canonical }) {
			c.c.problem(o.keys[name], name, "the header %s is there twice", canonical)
			continue
		}
		value := o.values[name]
		if _, ok := c.c.stringValue(value, "the value of "+name); !ok {
			continue
		}
		t := c.c.compileTemplate(value)
		if _, fixed := t.fixed(); fixed && canonical == "Authorization" {
			c.c.refuseSecret(o.keys[name], "the value of "+canonical)
		}
		if s, fixed := t.fixed(); fixed && !validHeaderValue(canonical, s) {
			c.c.problem(value, "", "the value of %s holds a line break or another character that a header cannot have",
				name)
		}
		all = append(all, header{name: canonical, value: t})
	}
	return all
}

// oneOf reads a text out of a fixed set. Values with a hint are refused with it.
func (c *config) oneOf(key, def string, meanings map[string]string) {
	s := c.str(key, def)
	if hint, ok := meanings[s]; !ok {
		c.c.problem(c.values[key], s, "%s must be %s", key, strings.Join(slices.Sorted(maps.Keys(meanings)), " or "))
	} else if hint != "" {
		c.c.problem(c.values[key], s, "%s", fmt.Sprintf("%s %q is not offered by this version: %s", key, s, hint))
	}
}
