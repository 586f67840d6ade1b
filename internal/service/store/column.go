// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// column is a column of a table and the field that it is read into and written from: a *string,
// *int, *int64, *bool or *[]byte, or a converted one.
type column struct {
	name  string
	field any
	write columnWrite
}

// columnWrite tells which statements write a column.
type columnWrite bool

const (
	insertOnly columnWrite = false
	updatable  columnWrite = true
)

// value returns what the field's column holds.
func (c column) value() (any, error) {
	switch f := c.field.(type) {
	case driver.Valuer:
		return f.Value()
	case *string:
		return *f, nil
	case *int:
		return *f, nil
	case *int64:
		return *f, nil
	case *bool:
		return *f, nil
	case *[]byte:
		return notNil(*f), nil
	}
	return nil, fmt.Errorf("column %s cannot hold a %T", c.name, c.field)
}

// converted is a field whose column holds a C instead.
type converted[C any] struct {
	get func() (C, error)
	set func(C) error
}

// Scan implements sql.Scanner.
func (f converted[C]) Scan(src any) error {
	var v sql.Null[C]
	if err := v.Scan(src); err != nil {
		return err
	}
	return f.set(v.V)
}

// Value implements driver.Valuer.
func (f converted[C]) Value() (driver.Value, error) { return f.get() }

// convert makes a converted field of two conversions that cannot fail.
func convert[C any](get func() C, set func(C)) converted[C] {
	return converted[C]{
		get: func() (C, error) { return get(), nil },
		set: func(v C) error { set(v); return nil },
	}
}

// timeField is stored in microseconds.
func timeField(t *time.Time) converted[int64] {
	return convert(func() int64 { return micros(*t) }, func(n int64) { *t = fromMicros(n) })
}

// optionalTimeField is stored in microseconds, nil as 0.
func optionalTimeField(t **time.Time) converted[int64] {
	return convert(func() int64 { return microsOf(*t) }, func(n int64) { *t = timePointer(n) })
}

// refField is stored as the id, nil as "".
func refField(ref **account.Ref) converted[string] {
	return convert(func() string { return idOf(*ref) }, func(id string) { *ref = refTo(id) })
}

// optionalBytes is stored as it is, nil as the empty value.
func optionalBytes(b *[]byte) converted[[]byte] {
	return convert(func() []byte { return notNil(*b) }, func(v []byte) {
		if *b = nil; len(v) > 0 {
			*b = bytes.Clone(v)
		}
	})
}

// jsonField is stored as JSON; v is a pointer.
func jsonField(v any) converted[string] {
	return converted[string]{
		get: func() (string, error) {
			text, err := json.Marshal(v)
			return string(text), err
		},
		set: func(text string) error { return json.Unmarshal([]byte(text), v) },
	}
}
