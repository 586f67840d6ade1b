// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account

import (
	"fmt"
	"strconv"
	"strings"
)

// ResourceVersion is a position in an account's sequence of changes: the store's epoch, which
// changes when a store is restored, and a number that grows by one with each change. Clients treat
// its text form "<epoch>-<seq>" as opaque.
type ResourceVersion struct {
	Epoch int64
	Seq   int64
}

// String returns "<epoch>-<seq>".
func (v ResourceVersion) String() string {
	return strconv.FormatInt(v.Epoch, 10) + "-" + strconv.FormatInt(v.Seq, 10)
}

// ParseResourceVersion reads what String wrote.
func ParseResourceVersion(s string) (ResourceVersion, error) {
	epoch, seq, ok := strings.Cut(s, "-")
	if ok {
		e, err1 := strconv.ParseInt(epoch, 10, 64)
		n, err2 := strconv.ParseInt(seq, 10, 64)
		v := ResourceVersion{Epoch: e, Seq: n}
		if err1 == nil && err2 == nil && e >= 0 && n >= 0 && v.String() == s {
			return v, nil
		}
	}
	return ResourceVersion{}, Invalid("resource_version", s, "take it from a list or a watch event, unchanged")
}

// MarshalText writes the text form.
func (v ResourceVersion) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads the text form; the empty text is the zero version.
func (v *ResourceVersion) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*v = ResourceVersion{}
		return nil
	}
	parsed, err := ParseResourceVersion(string(b))
	if err != nil {
		return fmt.Errorf("reading resource version: %w", err)
	}
	*v = parsed
	return nil
}
