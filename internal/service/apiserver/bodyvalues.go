// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// checkID accepts an id that is the one of the path, because clients of the public API send it with
// an update, or none.
func (o *object) checkID(c *call) {
	if id := o.text("id"); id != nil && *id != "" && *id != c.ID() {
		o.reject("id", *id, "does not change; leave it out")
	}
}

// integer reads a whole number: nil when absent or null.
func (o *object) integer(name string) *int {
	if string(o.fields[name]) == "null" {
		delete(o.fields, name)
		o.reject(name, "null", "must be a whole number")
		return nil
	}
	return scalar[int](o, name, "must be a whole number")
}

// integerOrDefault reads a whole number: nil when absent, the default for null.
func (o *object) integerOrDefault(name string, def int) *int {
	if string(o.fields[name]) == "null" {
		delete(o.fields, name)
		return &def
	}
	return o.integer(name)
}

// integers reads a list of whole numbers: nil when absent, the empty list for null.
func (o *object) integers(name string) *[]int {
	value, null, present := o.takeField(name)
	if !present {
		return nil
	}
	list := []int{}
	var items []json.RawMessage
	if null || !o.decode(name, value, &items, "must be a list of whole numbers") {
		return &list
	}
	for i, item := range items {
		o.fields[name+"["+strconv.Itoa(i)+"]"] = item
		if n := o.integer(name + "[" + strconv.Itoa(i) + "]"); n != nil {
			list = append(list, *n)
		}
	}
	return &list
}

// mapOf reads an object whose fields all have values of one type: nil when absent, the empty one
// for null.
func mapOf[V any](o *object, name, rule string, read func(o *object, name string) *V) *map[string]V {
	value, null, present := o.takeField(name)
	if !present {
		return nil
	}
	all := map[string]V{}
	switch {
	case null:
	case value[0] != '{':
		o.reject(name, string(value), rule)
	default:
		inner := o.body.object(o.path+name+".", value)
		for _, key := range slices.Sorted(maps.Keys(inner.fields)) {
			if string(inner.fields[key]) == "null" {
				inner.reject(key, "null", rule)
			} else if v := read(inner, key); v != nil {
				all[key] = *v
			}
		}
	}
	return &all
}

// integerOrNull reads a whole number: nil when absent or null.
func (o *object) integerOrNull(name string) *int {
	if string(o.fields[name]) == "null" {
		delete(o.fields, name)
		return nil
	}
	return o.integer(name)
}

// limit32 returns n as far as it fits; what does not is no valid value either.
func limit32(n int) int32 { return int32(min(max(n, -1), 1<<20)) }

// objects reads a list of objects; nil when it is absent or null.
func (o *object) objects(name string) []*object {
	value, null, present := o.takeField(name)
	var items []json.RawMessage
	if !present || null || !o.decode(name, value, &items, "must be a list of objects") {
		return nil
	}
	all := make([]*object, 0, len(items))
	for i, item := range items {
		at := name + "[" + strconv.Itoa(i) + "]"
		if item[0] != '{' {
			o.reject(at, string(item), "must be an object")
			continue
		}
		all = append(all, o.body.object(o.path+at+".", item))
	}
	return all
}

// valueOf returns the value that was read, the zero value for nil.
func valueOf[T any](read *T) (value T) {
	if read != nil {
		value = *read
	}
	return value
}
