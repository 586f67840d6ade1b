// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"net/url"
	"slices"
	"strings"
)

// protects says whether the rule has an action that keeps requests out.
func (r *rule) protects() bool {
	return slices.ContainsFunc(r.actions, func(s step) bool { return s.kind.protects })
}

// otherwise says whether the rule may hold for a request for which it does not, because the upstream may read its path in another way than we do: then
// what protects applies. Where nobody tries such a thing, there is one reading only.
func (r *rule) otherwise(x *exchange) bool {
	if x.r == nil || x.status != 0 || len(r.expressions) == 0 || !r.protects() {
		return false
	}
	given := x.r.URL.Path
	switch {
	case !ambiguous(given):
		return false
	case len(given) > maxRead:
		return true
	}
	all := readings(given)
	defer clear(x.cache)
	for _, path := range all {
		clear(x.cache)
		x.once("path", func() any { return path })
		if r.match(x) != skipped {
			return true
		}
	}
	return false
}

// maxRead bounds the paths that are read in several ways, in bytes; a longer one that could be, may be anything.
const maxRead = 4 << 10

// ambiguous says whether a path may have more than one reading.
func ambiguous(given string) bool {
	return strings.ContainsAny(given, `;\%`) || cleanPath(given) != given
}

// readings are what servers make of a decoded path, but for the one that rules see: as it is, with "\" for "/", decoded once more, and without what
// follows a ";" in each part. Of "/open/..;/admin", a servlet container makes "/admin".
func readings(given string) []string {
	seen, all := cleanPath(given), []string{given}
	add := func(change func(string) string) {
		for _, path := range slices.Clone(all) {
			if changed := change(path); !slices.Contains(all, changed) {
				all = append(all, changed)
			}
		}
	}
	add(func(p string) string {
		if again, err := url.PathUnescape(p); err == nil {
			return again
		}
		return p
	})
	add(func(p string) string { return strings.ReplaceAll(p, `\`, "/") })
	add(withoutParams)
	add(cleanPath)
	return slices.DeleteFunc(all, func(p string) bool { return p == seen })
}

// withoutParams cuts each part of a path at its ";".
func withoutParams(path string) string {
	if !strings.Contains(path, ";") {
		return path
	}
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i], _, _ = strings.Cut(parts[i], ";")
	}
	return strings.Join(parts, "/")
}
