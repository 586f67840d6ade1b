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

// otherwise says whether the rule may hold for a request for which it does not, because the
// upstream may read its path in another way than we do: then what protects applies. Where nobody
// tries such a thing, there is one reading only.
func (r *rule) otherwise(x *exchange) bool {
	if x.r == nil || x.status != 0 || len(r.expressions) == 0 || !r.protects() {
		return false
	}
	given := x.r.URL.Path
	switch {
	case !x.once("ambiguous", len(given), x.ambiguous).(bool):
		return false
	case len(given) > maxRead:
		return true
	}
	all := x.once("readings", maxReadings*len(given), func() any { return readings(given) }).([]string)
	seen := x.path()
	defer x.readAs(seen)
	for _, path := range all {
		if x.readAs(path); r.match(x) != skipped {
			return true
		}
	}
	return false
}

// path returns the path of the request as rules see it.
func (x *exchange) path() string {
	return x.once("path", len(x.r.URL.Path), func() any { return cleanPath(x.r.URL.Path) }).(string)
}

// readAs makes rules see another path.
func (x *exchange) readAs(path string) {
	x.cache["path"] = path
	delete(x.cache, "url")
}

// Bounds of the paths that are read in several ways. A longer one that could be, may be anything.
const (
	maxRead     = 4 << 10 // bytes
	maxReadings = 16
)

// ambiguous reports, as a bool, whether the path may have more than one reading.
func (x *exchange) ambiguous() any {
	return strings.ContainsAny(x.r.URL.Path, `;\%`) || x.path() != x.r.URL.Path
}

// readings are what servers make of a decoded path, but for the one that rules see: as it is, with
// "\" for "/", decoded once more, and without what follows a ";" in each part. Of
// "/open/..;/admin", a servlet container makes "/admin".
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
