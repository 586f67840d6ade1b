// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// body is a JSON object whose fields are read one by one, so that every broken rule is reported:
// unknown and repeated fields, wrong types, text that is not Unicode.
type body struct {
	top         *object
	fieldErrors []account.FieldError
}

// object is one JSON object of a body.
type object struct {
	body   *body
	path   string                     // prefix of its fields: "" or "binding."
	fields map[string]json.RawMessage // fields that were not read yet
}

// readBody reads a request's body within the limits of size and time.
func (c *call) readBody() (*body, error) {
	if kind, _, err := mime.ParseMediaType(c.Request.Header.Get("Content-Type")); err != nil ||
		kind != "application/json" {
		return nil, account.Errorf(account.CodeContentType, "send the body as Content-Type: application/json")
	}
	done := c.LimitBody(c.server.opt.Limits.BodyBytes, c.server.opt.Limits.BodyTimeout)
	raw, err := io.ReadAll(c.Request.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, account.Errorf(account.CodeTooLarge, "the body has more than %d bytes", tooLarge.Limit)
	case err != nil:
		return nil, &account.Error{Code: account.CodeMalformed, Msg: "the body is incomplete", Cause: err}
	case !utf8.Valid(raw):
		return nil, account.Errorf(account.CodeMalformed, "the body is not valid UTF-8")
	}
	done()
	return parseBody(raw)
}

// readRequest reads the body of a request that creates or updates an object.
func (c *call) readRequest() (*body, error) {
	b, err := c.readBody()
	if err != nil {
		return nil, err
	}
	b.top.checkID(c)
	return b, nil
}

// noFields accepts no body, or an empty object.
func (c *call) noFields() error {
	if c.Request.ContentLength == 0 {
		return nil
	}
	b, err := c.readBody()
	if err != nil {
		return err
	}
	b.top.rejectUnknown()
	return b.err(nil)
}

func parseBody(raw []byte) (*body, error) {
	var probe json.RawMessage
	if err := json.Unmarshal(raw, &probe); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, account.Errorf(account.CodeMalformed, "malformed JSON at byte %d: %s", syntax.Offset, syntax)
		}
		return nil, &account.Error{Code: account.CodeMalformed, Msg: "malformed JSON", Cause: err}
	}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, account.Errorf(account.CodeMalformed, "the body must be a JSON object")
	}
	b := &body{}
	b.top = b.object("", raw)
	return b, nil
}

// object reads the fields of a JSON object that is known to be well-formed.
func (b *body) object(path string, raw json.RawMessage) *object {
	o := &object{body: b, path: path, fields: map[string]json.RawMessage{}}
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, _ = dec.Token() // the brace; the text is well-formed
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			break
		}
		key := fmt.Sprint(name)
		if _, twice := o.fields[key]; twice {
			o.reject(key, "", "is given more than once")
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			break
		}
		o.fields[key] = value
	}
	return o
}

func (o *object) reject(name, value, rule string) {
	field := account.Shorten(o.path + name)
	o.body.fieldErrors = append(o.body.fieldErrors, account.FieldError{Field: field, Value: account.Shorten(value),
		Rule: rule})
}

// takeField removes a field, which is thereby read. null reports whether its value is null.
func (o *object) takeField(name string) (value json.RawMessage, null, present bool) {
	value, present = o.fields[name]
	delete(o.fields, name)
	return value, string(value) == "null", present
}

// text reads a string: nil when absent, the empty text for null.
func (o *object) text(name string) *string { return scalar[string](o, name, "must be a string") }

// boolean reads true or false: nil when absent, false for null.
func (o *object) boolean(name string) *bool { return scalar[bool](o, name, "must be true or false") }

// scalar reads a value: nil when it is absent or no such value, the zero value for null.
func scalar[T any](o *object, name, rule string) *T {
	value, null, present := o.takeField(name)
	var v T
	if !present || !null && !o.decode(name, value, &v, rule) {
		return nil
	}
	return &v
}

// texts reads a list of strings: nil when absent, the empty list for null.
func (o *object) texts(name string) *[]string { return o.textsOrDefault(name, []string{}) }

// textsOrDefault reads a list of strings: nil when absent, the default for null.
func (o *object) textsOrDefault(name string, def []string) *[]string {
	value, null, present := o.takeField(name)
	if !present {
		return nil
	}
	if null {
		return &def
	}
	list := []string{}
	var items []json.RawMessage
	if !o.decode(name, value, &items, "must be a list of strings") {
		return nil
	}
	for i, item := range items {
		var s string
		at := name + "[" + strconv.Itoa(i) + "]"
		if string(item) == "null" {
			o.reject(at, "null", "must be a string")
		} else if o.decode(at, item, &s, "must be a string") {
			list = append(list, s)
		}
	}
	return &list
}

// time reads a time in RFC 3339; given reports whether the field is there. null is no time.
func (o *object) time(name string) (at *time.Time, given bool) {
	const rule = "must be a time such as 2027-01-31T00:00:00Z (RFC 3339), or null"
	value, null, present := o.takeField(name)
	var text string
	if !present || null || !o.decode(name, value, &text, rule) {
		return nil, present
	}
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		o.reject(name, text, rule)
		return nil, true
	}
	return &parsed, true
}

// object reads an object: nil when it is absent, null or not an object.
func (o *object) object(name string) (inner *object, null bool) {
	value, null, present := o.takeField(name)
	switch {
	case !present || null:
		return nil, null
	case value[0] != '{':
		o.reject(name, string(value), "must be an object")
		return nil, false
	}
	return o.body.object(o.path+name+".", value), false
}

// ignore accepts a string and ignores it.
func (o *object) ignore(name string) { o.text(name) }

func (o *object) decode(name string, value json.RawMessage, into any, rule string) bool {
	if err := json.Unmarshal(value, into); err != nil {
		o.reject(name, string(value), rule)
		return false
	}
	if s, ok := into.(*string); ok && strings.ContainsRune(*s, utf8.RuneError) && !hasReplacementChar(value) {
		o.reject(name, *s, "contains half of a surrogate pair, which is no character")
		return false
	}
	return true
}

// hasReplacementChar reports whether the JSON text itself has the replacement character, which
// decoding otherwise puts in place of an invalid one.
func hasReplacementChar(value json.RawMessage) bool {
	return bytes.ContainsRune(value, utf8.RuneError) || bytes.Contains(bytes.ToLower(value), []byte(`\ufffd`))
}

// rejectUnknown rejects the fields that were not read.
func (o *object) rejectUnknown() {
	for _, name := range slices.Sorted(maps.Keys(o.fields)) {
		o.reject(name, string(o.fields[name]), "unknown field")
	}
}

// hasError reports whether there is a field error of the field.
func (b *body) hasError(field string) bool {
	return slices.ContainsFunc(b.fieldErrors, func(f account.FieldError) bool { return f.Field == field })
}

// err returns CodeInvalid with every field error, those of more included, or nil.
func (b *body) err(more error) error {
	var invalid *account.Error
	switch {
	case len(b.fieldErrors) == 0:
		return more
	case errors.As(more, &invalid) && invalid.Code != account.CodeInvalid:
		return more
	}
	return account.InvalidAll(append(b.fieldErrors, account.FieldsOf(more)...))
}
