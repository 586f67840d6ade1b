// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"time"
)

// Column is a column of a table and the field that it is read into and written from: a *string,
// *int, *int64, *bool or *[]byte, or a Converted one.
type Column struct {
	Name      string
	Field     any
	Updatable bool // Updatable is unset for a column that is written with a new row only.
}

// Fixed returns a column that is written with a new row only.
func Fixed(name string, field any) Column { return Column{Name: name, Field: field} }

// Updatable returns a column that updates write, too.
func Updatable(name string, field any) Column {
	return Column{Name: name, Field: field, Updatable: true}
}

// value returns what the field's column holds.
func (c Column) value() (any, error) {
	switch f := c.Field.(type) {
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
		return NotNil(*f), nil
	}
	return nil, fmt.Errorf("column %s cannot hold a %T", c.Name, c.Field)
}

// Converted is a field whose column holds a C instead.
type Converted[C any] struct {
	Get func() (C, error)
	Set func(C) error
}

// Scan implements sql.Scanner.
func (f Converted[C]) Scan(src any) error {
	var v sql.Null[C]
	if err := v.Scan(src); err != nil {
		return err
	}
	return f.Set(v.V)
}

// Value implements driver.Valuer.
func (f Converted[C]) Value() (driver.Value, error) { return f.Get() }

// Convert makes a Converted field of two conversions that cannot fail.
func Convert[C any](get func() C, set func(C)) Converted[C] {
	return Converted[C]{
		Get: func() (C, error) { return get(), nil },
		Set: func(v C) error { set(v); return nil },
	}
}

// TimeField is stored in microseconds.
func TimeField(t *time.Time) Converted[int64] {
	return Convert(func() int64 { return Micros(*t) }, func(n int64) { *t = FromMicros(n) })
}

// OptionalTimeField is stored in microseconds, nil as 0.
func OptionalTimeField(t **time.Time) Converted[int64] {
	return Convert(func() int64 {
		if *t == nil {
			return 0
		}
		return Micros(**t)
	}, func(n int64) {
		if *t = nil; n != 0 {
			*t = new(FromMicros(n))
		}
	})
}

// OptionalBytes is stored as it is, nil as the empty value.
func OptionalBytes(b *[]byte) Converted[[]byte] {
	return Convert(func() []byte { return NotNil(*b) }, func(v []byte) {
		if *b = nil; len(v) > 0 {
			*b = bytes.Clone(v)
		}
	})
}

// JSONField is stored as JSON; v is a pointer.
func JSONField(v any) Converted[string] {
	return Converted[string]{
		Get: func() (string, error) {
			text, err := json.Marshal(v)
			return string(text), err
		},
		Set: func(text string) error { return json.Unmarshal([]byte(text), v) },
	}
}

// NotNil returns the bytes, and the empty value for nil: columns hold no NULL.
func NotNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// Micros returns a time as it is stored, in microseconds; the zero time is 0.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// FromMicros returns the time that Micros made the number of.
func FromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// ColumnValues returns what the columns are named and hold.
func ColumnValues(columns []Column) (names []string, args []any, err error) {
	names, args = make([]string, 0, len(columns)), make([]any, 0, len(columns)+1)
	for _, c := range columns {
		value, err := c.value()
		if err != nil {
			return nil, nil, fmt.Errorf("writing column %s: %w", c.Name, err)
		}
		names, args = append(names, c.Name), append(args, value)
	}
	return names, args, nil
}
