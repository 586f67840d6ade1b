// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// FieldError is one broken rule of a request: the field, the value as it was given and the rule
// with its remedy. For a mistake in a document, such as a traffic policy, it has the place, from 1
// and in characters, with which the rule begins, too.
type FieldError struct {
	Field  string `json:"field"`
	Value  string `json:"value"`
	Rule   string `json:"rule"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// Error is the domain error: a code, a message that is safe to show to the caller, and the cause,
// which is only logged. The store maps driver errors to it, HTTP maps it to a status and back.
type Error struct {
	Code    Code
	Msg     string
	Fields  []FieldError      // for CodeInvalid: every broken rule
	Details map[string]string // more facts for programs, may be nil
	Status  int               // the HTTP status it came with, when it came over HTTP; 0 elsewhere
	Cause   error             // never shown to the caller
}

// HTTPStatus returns the status that the error came with, else the one of its code.
func (e *Error) HTTPStatus() int {
	if e.Status != 0 {
		return e.Status
	}
	return e.Code.Status()
}

// Error returns the safe message and, where there is one, the cause.
func (e *Error) Error() string {
	msg := e.Msg
	if msg == "" {
		for i, f := range e.Fields {
			if i > 0 {
				msg += "; "
			}
			msg += f.String()
		}
	}
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", msg, e.Cause)
	}
	return msg
}

// NotShown stands for a value that is not repeated: there is none, or it may be a secret.
const NotShown = "(not shown)"

// String formats the broken rule as a sentence.
func (f FieldError) String() string {
	if f.Value == NotShown {
		return f.Field + ": " + f.Rule
	}
	return fmt.Sprintf("%s %q: %s", f.Field, f.Value, f.Rule)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes an Error without a cause.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Msg: fmt.Sprintf(format, args...)}
}

// Invalid makes a CodeInvalid error of one broken rule.
func Invalid(field, value, rule string) *Error {
	return InvalidAll([]FieldError{{Field: field, Value: value, Rule: rule}})
}

// InvalidAll makes a CodeInvalid error that lists every broken rule.
func InvalidAll(fields []FieldError) *Error {
	sentences := make([]string, len(fields))
	for i, f := range fields {
		sentences[i] = f.String()
	}
	return &Error{Code: CodeInvalid, Msg: strings.Join(sentences, "; "), Fields: fields}
}

// FieldsOf returns the broken rules of the first *Error in err's chain.
func FieldsOf(err error) []FieldError {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Fields
	}
	return nil
}

// CodeOf returns the code of the first *Error in err's chain, CodeInternal when there is none, and
// "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}

// ErrorBody is the JSON body of every error that a part of Fairlead answers over HTTP.
type ErrorBody struct {
	Code    Code              `json:"error_code"`
	Status  int               `json:"status_code"`
	Msg     string            `json:"msg"`
	Details map[string]string `json:"details"` // never null
	Errors  []FieldError      `json:"errors,omitempty"`
}

// JSON returns the body as a line of JSON.
func (b ErrorBody) JSON() []byte {
	if b.Details == nil {
		b.Details = map[string]string{}
	}
	line, err := json.Marshal(b)
	if err != nil {
		panic(fmt.Sprintf("account: encoding an error body: %v", err)) // strings and numbers always encode
	}
	return append(line, '\n')
}
