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

// object is a mapping of the document that is read key by key. What nobody has taken in the end is
// unknown.
type object struct {
	c      *compiler
	node   *yaml.Node
	what   string // "a rule"
	keys   map[string]*yaml.Node
	values map[string]*yaml.Node
	order  []string
	known  []string
}

// object reads a mapping. nil means that it is none, which has been said.
func (c *compiler) object(n *yaml.Node, what string) *object {
	if n.Kind != yaml.MappingNode {
		c.problem(n, scalar(n), "%s is a mapping of keys to values, not %s", what, describe(n))
		return nil
	}
	o := &object{c: c, node: n, what: what, keys: map[string]*yaml.Node{}, values: map[string]*yaml.Node{}}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Tag == "!!merge":
			c.problem(key, key.Value, "merge keys (<<) are not supported: write the keys out")
		case key.Kind != yaml.ScalarNode || key.Tag != "!!str":
			c.problem(key, scalar(key), "a key is a text, not %s", describe(key))
		case o.keys[key.Value] != nil:
			c.problem(key, key.Value, "the key %q is there twice, first on line %d", key.Value, o.keys[key.Value].Line)
		default:
			o.keys[key.Value], o.values[key.Value] = key, n.Content[i+1]
			o.order = append(o.order, key.Value)
		}
	}
	return o
}

// take returns the value of a key, nil when the key is not there. The key is then known.
func (o *object) take(key string) *yaml.Node {
	if !slices.Contains(o.known, key) {
		o.known = append(o.known, key)
	}
	return o.values[key]
}

// finish reports the keys that nobody took. The hints say more about some of them.
func (o *object) finish(hints map[string]string) {
	for _, key := range o.order {
		if slices.Contains(o.known, key) {
			continue
		}
		switch {
		case hints[key] != "":
			o.c.problem(o.keys[key], key, "%s has no key %q: %s", o.what, key, hints[key])
		case o.meant(key) != "":
			o.c.problem(o.keys[key], key, "%s has no key %q; did you mean %s?", o.what, key, o.meant(key))
		case len(o.known) == 0:
			o.c.problem(o.keys[key], key, "%s has no keys", o.what)
		default:
			o.c.problem(o.keys[key], key, "%s has no key %q; it has %s", o.what, key, strings.Join(o.known, ", "))
		}
	}
}

// meant is the known key that somebody most likely meant; "" when none is near.
func (o *object) meant(key string) string {
	plain := strings.NewReplacer("_", "", "-", "", " ", "")
	given := plain.Replace(strings.ToLower(key))
	best, least := "", len(given)/4+1 // one in four letters may be wrong
	for _, known := range o.known {
		if n := distance(given, plain.Replace(known)); n < least {
			best, least = known, n
		}
	}
	return best
}

// distance is how many letters have to be put in, left out or changed to make a word of the other
// (Levenshtein).
func distance(a, b string) int {
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

// list says whether n is a sequence, and reports it otherwise.
func (c *compiler) list(n *yaml.Node, key, of string) bool {
	if n.Kind != yaml.SequenceNode {
		c.problem(n, scalar(n), "%s is a list of %s, not %s", key, of, describe(n))
		return false
	}
	return true
}

// text returns a string scalar.
func (c *compiler) text(n *yaml.Node, key string) (string, bool) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		return n.Value, true
	}
	remedy := ""
	if n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		remedy = ": put it in quotes"
	}
	c.problem(n, "", "%s is a text, not %s%s", key, describe(n), remedy) // without the value: it may be a password
	return "", false
}

func scalar(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

func describe(n *yaml.Node) string {
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
	*object
	kind *kind
}

// missing reports a key that has to be there.
func (c *config) missing(key, why string) {
	c.c.problem(c.node, "", "%s needs %s: %s", c.kind.name, key, why)
}

// has says whether the key is there, and takes it.
func (c *config) has(key string) bool { n := c.take(key); return n != nil && n.Tag != "!!null" }

// str reads an optional text.
func (c *config) str(key, def string) string {
	if !c.has(key) {
		return def
	}
	s, _ := c.c.text(c.values[key], key)
	return s
}

// flag reads an optional boolean.
func (c *config) flag(key string, def bool) bool {
	if !c.has(key) {
		return def
	}
	n := c.values[key]
	if n.Tag != "!!bool" {
		c.c.problem(n, scalar(n), "%s is true or false, not %s", key, describe(n))
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
		c.c.problem(n, scalar(n), "%s is a whole number, not %s", key, describe(n))
		return def
	}
	if i < least || i > most {
		c.c.problem(n, n.Value, "%s must be between %d and %d", key, least, most)
		return def
	}
	return i
}

// items reads a list of texts: its nodes, of which every one is a text.
func (c *config) items(key string, most int) []*yaml.Node {
	if !c.has(key) {
		return nil
	}
	n := c.values[key]
	if !c.c.list(n, key, "texts") {
		return nil
	}
	if len(n.Content) > most {
		c.c.problem(n, "", "%s has %d entries, at most %d are allowed", key, len(n.Content), most)
		return nil
	}
	var items []*yaml.Node
	for _, item := range n.Content {
		if _, ok := c.c.text(item, "an entry of "+key); ok {
			items = append(items, item)
		}
	}
	return items
}

// template reads a text that may hold ${expressions}. nil means that there is none.
func (c *config) template(key string, escape func(string) string) *template {
	if !c.has(key) {
		return nil
	}
	n := c.values[key]
	if _, ok := c.c.text(n, key); !ok {
		return nil
	}
	return c.c.template(n, escape)
}

// headers reads a mapping of header names to texts that may hold ${expressions}, in the order of
// the document.
func (c *config) headers(key string, allowHost bool) []header {
	if !c.has(key) {
		return nil
	}
	o := c.c.object(c.values[key], key)
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
		if _, ok := c.c.text(value, "the value of "+name); !ok {
			continue
		}
		t := c.c.template(value, nil)
		if s, fixed := t.fixed(); fixed && !validHeaderValue(canonical, s) {
			c.c.problem(value, "", "the value of %s holds a line break or another character that a header cannot have", name)
		}
		all = append(all, header{name: canonical, value: t})
	}
	return all
}

// oneOf reads a text out of a few. Those with a hint are known, and refused with it.
func (c *config) oneOf(key, def string, meanings map[string]string) {
	s := c.str(key, def)
	if hint, ok := meanings[s]; !ok {
		c.c.problem(c.values[key], s, "%s must be %s", key, strings.Join(slices.Sorted(maps.Keys(meanings)), " or "))
	} else if hint != "" {
		c.c.problem(c.values[key], s, "%s", fmt.Sprintf("%s %q is not offered by this version: %s", key, s, hint))
	}
}
