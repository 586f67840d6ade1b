// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package printable

import (
	"cmp"
	"regexp"
	"strings"
)

var (
	// wrongKind matches the text of json.UnmarshalTypeError: a value's kind, field and Go type.
	wrongKind = regexp.MustCompile(`json: cannot unmarshal ` +
		`(string|object|array|bool|number(?: [-+.0-9eE]+)?) into Go ` +
		`(?:struct field [^.\s]*\.(\S+)|value) of type (struct \{.*\}|map\[string\]interface \{\}|\S+)`)
	// notJSON matches the text of json.SyntaxError.
	notJSON = regexp.MustCompile(`invalid character ('(?:\\?.)[^']*') (?:looking for|after|in) [a-z" :\-]+`)

	embedded    = regexp.MustCompile(`\b[A-Z]\w*\.`) // an embedded struct in a field's path: JSON has no such level
	wholeNumber = regexp.MustCompile(`^u?int\d*$`)

	libraryWords = strings.NewReplacer("failed to unmarshal", "cannot read", "failed to decode", "cannot read",
		"could not unmarshal as", "it is not", "unexpected end of JSON input", "it is JSON that ends too early")
	jsonKinds = map[string]string{"string": "a text", "object": "an object", "array": "a list", "bool": "true or false"}
)

// DecodeError returns the text of an error with what encoding/json says about Go's types in other
// words: the field, what it is and what it must be.
func DecodeError(text string) string {
	text = wrongKind.ReplaceAllStringFunc(text, func(found string) string {
		m := wrongKind.FindStringSubmatch(found)
		is, isKind := jsonKinds[m[1]]
		if !isKind {
			is = "a " + m[1] // number, or number 1.5
		}
		return cmp.Or(embedded.ReplaceAllString(m[2], ""), "the value") + " is " + is + " and must be " + kindOf(m[3])
	})
	text = notJSON.ReplaceAllString(text, "it is not JSON: $1 cannot stand there")
	return libraryWords.Replace(text)
}

// kindOf returns what JSON calls a value of the Go type.
func kindOf(goType string) string {
	switch {
	case goType == "string":
		return jsonKinds["string"]
	case goType == "bool":
		return jsonKinds["bool"]
	case strings.HasPrefix(goType, "[]"):
		return jsonKinds["array"]
	case wholeNumber.MatchString(goType):
		return "a whole number"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case strings.HasPrefix(goType, "map[") || strings.HasPrefix(goType, "struct {"):
		return jsonKinds["object"]
	}
	return "of another kind"
}
