// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redact owns what of a traffic policy is secret: it takes secrets out of the text of a
// document, and puts them back.
//
// What comes in: texts in YAML or JSON, and a function that makes a mark of a secret. Whom it hands
// over to: none; the text keeps its form, its comments and its order.
package redact

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Mark makes what stands for a secret: always the same for the same one, of the form
// "redacted:" and 8 hexadecimal digits.
type Mark func(secret string) string

var marked = regexp.MustCompile(`^redacted:[0-9a-f]{8}$`)

// secretNames are parts of the names of fields whose values are secret; "-" counts as "_".
var secretNames = []string{"secret", "password", "token", "private_key", "credential", "authorization", "api_key",
	"apikey"}

func secretName(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "-", "_")
	for _, part := range secretNames {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// Text returns the text with a mark in the place of every secret. A text that is no document
// becomes one mark.
func Text(text string, mark Mark) string {
	if strings.TrimSpace(text) == "" {
		return text
	}
	root, err := parse(text)
	if err != nil {
		return mark(text)
	}
	replace := map[*yaml.Node]string{}
	for _, n := range secrets(root) {
		replace[n] = mark(n.Value)
	}
	out, err := rewrite(text, root, replace)
	if err != nil {
		return mark(text)
	}
	return out
}

// UnknownMarkError reports that a text has a mark for which the stored text has no secret.
type UnknownMarkError struct{ Mark string }

func (e UnknownMarkError) Error() string {
	return "the stored document has no secret with this mark"
}

// Restore returns the text with the secrets of the stored one in the place of its marks. Nothing in
// a text that is no document is restored.
func Restore(text, stored string, mark Mark) (string, error) {
	if stored != "" && text == Text(stored, mark) {
		return stored, nil
	}
	root, err := parse(text)
	if err != nil {
		return text, nil //nolint:nilerr // compiling the text reports its errors
	}
	kept := map[string]string{}
	if old, err := parse(stored); err == nil {
		for _, n := range secrets(old) {
			kept[mark(n.Value)] = n.Value
		}
	}
	replace := map[*yaml.Node]string{}
	for _, n := range scalars(root) {
		if !marked.MatchString(n.Value) {
			continue
		}
		secret, known := kept[n.Value]
		if !known {
			return "", UnknownMarkError{Mark: n.Value}
		}
		replace[n] = secret
	}
	return rewrite(text, root, replace)
}

// parse reads exactly one document.
func parse(text string) (*yaml.Node, error) {
	dec := yaml.NewDecoder(strings.NewReader(text))
	var root, second yaml.Node
	if err := dec.Decode(&root); err != nil {
		return nil, err
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	return &root, nil
}

// scalars returns all scalars but the names of fields, each once.
func scalars(root *yaml.Node) []*yaml.Node { return collect(root, true) }

// secrets returns the scalars below fields with secret names.
func secrets(root *yaml.Node) (found []*yaml.Node) {
	for _, n := range collect(root, false) {
		if n.Value != "" && n.Tag != "!!null" && n.Tag != "!!bool" {
			found = append(found, n)
		}
	}
	return found
}

func collect(root *yaml.Node, all bool) (found []*yaml.Node) {
	type visit struct {
		node   *yaml.Node
		secret bool
	}
	seen := map[visit]bool{}
	taken := map[*yaml.Node]bool{}
	for todo := []visit{{root, all}}; len(todo) > 0; {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[v] {
			continue
		}
		seen[v] = true
		switch v.node.Kind {
		case yaml.ScalarNode:
			if v.secret && !taken[v.node] {
				taken[v.node] = true
				found = append(found, v.node)
			}
		case yaml.AliasNode:
			todo = append(todo, visit{v.node.Alias, v.secret})
		case yaml.MappingNode:
			for i := 0; i+1 < len(v.node.Content); i += 2 {
				todo = append(todo, visit{v.node.Content[i+1], v.secret || secretName(v.node.Content[i].Value)})
			}
		default:
			for _, inner := range v.node.Content {
				todo = append(todo, visit{inner, v.secret})
			}
		}
	}
	return found
}

// rewrite returns the text with other values in the place of some scalars. Where the place of one
// cannot be told from the text alone, the whole document is written anew.
func rewrite(text string, root *yaml.Node, replace map[*yaml.Node]string) (string, error) {
	if len(replace) == 0 {
		return text, nil
	}
	out, placed := splice(text, replace)
	for n, value := range replace {
		n.Value, n.Style, n.Tag = value, yaml.DoubleQuotedStyle, "!!str"
	}
	if placed {
		if again, err := parse(out); err == nil && equal(root, again) {
			return out, nil
		}
	}
	var buffer bytes.Buffer
	enc := yaml.NewEncoder(&buffer)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(root), enc.Close()); err != nil {
		return "", err
	}
	return buffer.String(), nil
}

// equal reports whether two documents mean the same.
func equal(a, b *yaml.Node) bool {
	if a.Kind != b.Kind || a.Value != b.Value || a.ShortTag() != b.ShortTag() || a.Anchor != b.Anchor ||
		len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !equal(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}
