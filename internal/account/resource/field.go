// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"
	"reflect"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Type is the type of a field.
type Type int

// Types of fields.
const (
	Text   Type = iota
	Choice      // one of Values, which may be null
	Bool
	Number
	Time
	ListOf // many Items
	MapOf  // Items by name
	Object // an object of Fields
	KeySet // a JSON Web Key Set
)

// Field is a field of a body, or a query parameter.
type Field struct {
	Name        string
	Type        Type
	Min, Max    int    // Max is in bytes of a Text and in entries of a ListOf or MapOf; 0 for no limit.
	Values      any    // Values is a slice of the values that the field may have; nil for any.
	Pattern     string // Pattern is a regular expression; "" for any text.
	Default     any    // Default is described where it is not the zero value.
	NotNull     bool   // NotNull is set where null, which otherwise is the default, is no value.
	Description string
	Items       *Field
	Fields      []Field
	Only        string // Only is the method whose bodies have the field; "" for POST and PATCH.
	Key         string // Key names a parameter in the OpenAPI document where another one has its Name.

	// Help describes the flag of `fairlead api` that sets the field; "" for no flag.
	Help       string
	Flag       string // Flag is the flag's name where it is not Name with hyphens.
	AtCreation bool   // AtCreation is set where only the command create has the flag.
	FromFile   bool   // FromFile is set where the flag names a file with the text.
}

// Choices returns what a flag of the field may be, or each of its items; nil for anything.
func (f Field) Choices() (all []string) {
	switch {
	case f.Items != nil:
		return f.Items.Choices()
	case f.Values == nil:
		return nil
	}
	values := reflect.ValueOf(f.Values)
	for i := range values.Len() {
		if text := fmt.Sprint(values.Index(i)); text != "" && text != "<nil>" {
			all = append(all, text)
		}
	}
	return all
}

// Fields that many resources have.
var (
	sameID      = Field{Name: "id", Description: "accepted if it is the one of the path"}
	description = Field{Name: "description", Max: account.MaxDescription, Help: "`TEXT` for people"}
	metadata    = Field{Name: "metadata", Max: account.MaxMetadata, Help: "`TEXT` for programs"}
)

// ignored is a field that has no meaning.
func ignored(name string) Field { return Field{Name: name, Description: "accepted and ignored"} }

// common returns the fields that most resources have, and others.
func common(others ...Field) []Field {
	return append([]Field{sameID, description, metadata}, others...)
}

// Bindings returns every binding of an endpoint.
func Bindings() []string { return append(account.Bindings(), account.BindingClusterset) }

// orUnset returns the values of a field of an answer, and those of one that is left out.
func orUnset(typeName, field string) []any {
	all := []any{"", nil}
	for _, v := range AnswerValues(typeName, field) {
		if v != "" {
			all = append(all, v)
		}
	}
	return all
}
