// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// headerMap presents headers to CEL as a map from lower-case names to lists of values. Names are
// looked up in any case, without a copy of the headers. It includes host if set, which net/http
// keeps elsewhere.
type headerMap struct {
	h    http.Header
	host string
}

var _ traits.Mapper = (*headerMap)(nil)

func (m *headerMap) values(name string) []string {
	if m.host != "" && strings.EqualFold(name, "host") {
		return []string{m.host}
	}
	return m.h.Values(name)
}

// Find implements traits.Mapper.
func (m *headerMap) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), false
	}
	values := m.values(string(name))
	if len(values) == 0 {
		return nil, false
	}
	return types.NewStringList(types.DefaultTypeAdapter, values), true
}

// Get implements traits.Indexer.
func (m *headerMap) Get(key ref.Val) ref.Val {
	v, found := m.Find(key)
	switch {
	case found:
		return v
	case v != nil:
		return v
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (m *headerMap) Contains(key ref.Val) ref.Val {
	v, found := m.Find(key)
	if v != nil && !found {
		return v
	}
	return types.Bool(found)
}

// names returns the names of the headers that have a value, in lower case.
func (m *headerMap) names() []string {
	all := make([]string, 0, len(m.h)+1)
	for name, values := range m.h {
		if len(values) > 0 {
			all = append(all, strings.ToLower(name))
		}
	}
	if m.host != "" {
		all = append(all, "host")
	}
	return all
}

// toMap returns the whole map, for operations that read all of it.
func (m *headerMap) toMap() traits.Mapper {
	all := make(map[string][]string, len(m.h)+1)
	for name, values := range m.h {
		if len(values) > 0 {
			all[strings.ToLower(name)] = values
		}
	}
	if m.host != "" {
		all["host"] = []string{m.host}
	}
	return types.NewDynamicMap(types.DefaultTypeAdapter, all)
}

// Iterator implements traits.Iterable.
func (m *headerMap) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, m.names()).Iterator()
}

// Size implements traits.Sizer.
func (m *headerMap) Size() ref.Val {
	size := 0
	for _, values := range m.h {
		if len(values) > 0 {
			size++
		}
	}
	if m.host != "" {
		size++
	}
	return types.Int(size)
}

// valueSteps returns the steps of reading all headers.
func (m *headerMap) valueSteps(bytes int) int {
	steps := itemSteps
	for name, values := range m.h {
		steps += entrySteps + len(name)/bytes
		for _, v := range values {
			steps += itemSteps + len(v)/bytes
		}
	}
	return steps
}

// ConvertToNative implements ref.Val.
func (m *headerMap) ConvertToNative(t reflect.Type) (any, error) {
	v, err := m.toMap().ConvertToNative(t)
	if err != nil {
		return nil, fmt.Errorf("converting headers: %w", err)
	}
	return v, nil
}

// ConvertToType implements ref.Val.
func (m *headerMap) ConvertToType(t ref.Type) ref.Val { return m.toMap().ConvertToType(t) }

// Equal implements ref.Val.
func (m *headerMap) Equal(other ref.Val) ref.Val {
	if o, ok := other.(*headerMap); ok {
		other = o.toMap()
	}
	return m.toMap().Equal(other)
}

// Type implements ref.Val.
func (m *headerMap) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (m *headerMap) Value() any { return m.toMap().Value() }
