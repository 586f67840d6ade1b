// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package redact replaces the secrets in the text of a traffic policy with marks, and restores
// them; and it removes what looks like a token from texts of other servers.
//
// What comes in: texts in YAML or JSON, and a function that makes a mark of a secret. What goes
// out: the text, with its layout, comments and order.
package redact

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Mark returns the mark of a secret: "redacted:" and 8 hexadecimal digits, the same for the same
// secret.
type Mark func(secret string) string

var marked = regexp.MustCompile(`^redacted:[0-9a-f]{8}$`)

// SecretNames matches parts of the names of fields whose values are secret, in lower case. It is a
// regular expression of Go and of JavaScript.
const SecretNames = "secret|password|token|private[-_]key|credential|authorization|api[-_]?key"

var secretName = regexp.MustCompile("(?i)" + SecretNames)

// Text returns the text with a mark in place of every secret, and one mark for a text that is not a
// valid document.
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

// Restore returns the text with the secrets of stored in place of its marks, or UnknownMarkError.
// It returns a text that is not a valid document as it is.
func Restore(text, stored string, mark Mark) (string, error) {
	return RestoreWith(text, stored, nil, mark)
}

// RestoreWith is Restore with further secrets that marks of the text may stand for.
func RestoreWith(text, stored string, more []string, mark Mark) (string, error) {
	if stored != "" && text == Text(stored, mark) {
		return stored, nil
	}
	root, err := parse(text)
	if err != nil {
		return text, nil //nolint:nilerr // compiling the text reports its errors
	}
	kept := map[string]string{}
	for _, secret := range more {
		kept[mark(secret)] = secret
	}
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

// IsMark reports whether the text is a mark.
func IsMark(text string) bool { return marked.MatchString(text) }

// Secrets returns the secrets of a text for which Text shows marks; none for a text that is not a
// valid document.
func Secrets(text string) (all []string) {
	root, err := parse(text)
	if err != nil {
		return nil
	}
	for _, n := range secrets(root) {
		if !marked.MatchString(n.Value) {
			all = append(all, n.Value)
		}
	}
	return all
}

// Valid reports whether Text shows the text with marks in place of its secrets, and not one mark
// for the whole of it.
func Valid(text string) bool {
	_, err := parse(text)
	return err == nil || strings.TrimSpace(text) == ""
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

// scalars returns all scalars but the names of fields.
func scalars(root *yaml.Node) []*yaml.Node { return collect(root, true) }

// secrets returns the non-empty scalars below fields with secret names, but booleans.
func secrets(root *yaml.Node) (found []*yaml.Node) {
	for _, n := range collect(root, false) {
		if n.Value != "" && n.Tag != "!!null" && n.Tag != "!!bool" {
			found = append(found, n)
		}
	}
	return found
}

// collect returns all scalars but the names of fields, or only those below fields with secret
// names, each once.
func collect(root *yaml.Node, all bool) (found []*yaml.Node) {
	type queuedNode struct {
		node   *yaml.Node
		secret bool
	}
	visited := map[queuedNode]bool{}
	added := map[*yaml.Node]bool{}
	for queue := []queuedNode{{root, all}}; len(queue) > 0; {
		v := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if visited[v] {
			continue
		}
		visited[v] = true
		switch v.node.Kind {
		case yaml.ScalarNode:
			if v.secret && !added[v.node] {
				added[v.node] = true
				found = append(found, v.node)
			}
		case yaml.AliasNode:
			queue = append(queue, queuedNode{v.node.Alias, v.secret})
		case yaml.MappingNode:
			for i := 0; i+1 < len(v.node.Content); i += 2 {
				secret := v.secret || secretName.MatchString(v.node.Content[i].Value)
				queue = append(queue, queuedNode{v.node.Content[i+1], secret})
			}
		default:
			for _, inner := range v.node.Content {
				queue = append(queue, queuedNode{inner, v.secret})
			}
		}
	}
	return found
}

// rewrite returns the text with other values in place of some scalars. If splice cannot find one in
// the text, it encodes the whole document again.
func rewrite(text string, root *yaml.Node, replace map[*yaml.Node]string) (string, error) {
	if len(replace) == 0 {
		return text, nil
	}
	out, ok := splice(text, replace)
	for n, value := range replace {
		n.Value, n.Style, n.Tag = value, yaml.DoubleQuotedStyle, "!!str"
	}
	if ok {
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

var (
	// secretParameter is a parameter of a URL or form whose value is a secret or becomes one.
	secretParameter = regexp.MustCompile(`(?i)\b((?:[a-z_]*(?:token|secret|password|assertion)|code|state|nonce|` +
		`ticket|samlresponse|samlrequest|relaystate|client_info|session_state|sid)=)[^&\s"'<>]+`)
	userInfo = regexp.MustCompile(`//[^/\s@"]+@`)
	jws      = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)*`)
	bearer   = regexp.MustCompile(`(?i)\b(bearer|basic) [A-Za-z0-9._~+/=-]{8,}`)
	longWord = regexp.MustCompile(`[A-Za-z0-9_+=-]{20,}`)
	uuid     = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
)

// Tokens returns a text of another server's, or one that quotes it, with "…" in place of what looks
// like a token.
func Tokens(s string) string {
	s = secretParameter.ReplaceAllString(s, "${1}…")
	s = userInfo.ReplaceAllString(s, "//…@")
	s = jws.ReplaceAllString(s, "…")
	s = bearer.ReplaceAllString(s, "$1 …")
	return longWord.ReplaceAllStringFunc(s, func(word string) string {
		if strings.ContainsAny(word, "0123456789") && !uuid.MatchString(word) {
			return "…"
		}
		return word
	})
}
