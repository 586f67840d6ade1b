// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"net/url"
	"slices"
	"strings"
)

// failsClosed reports whether the rule has an action that keeps requests out.
func (r *rule) failsClosed() bool {
	return slices.ContainsFunc(r.actions, func(s ruleAction) bool { return s.actionType.failClosed })
}

// matchesAlternatePath reports whether the rule, which does not match the request, matches it with
// another reading of its path: upstreams may read a path in another way than expressions do. The
// actions of the rule that fail closed then apply. A path that is not ambiguous has one reading
// only.
func (r *rule) matchesAlternatePath(x *exchange) bool {
	if x.r == nil || x.status != 0 || len(r.expressions) == 0 || !r.failsClosed() {
		return false
	}
	given := x.r.URL.Path
	switch {
	case !x.cached("ambiguous", len(given), x.isAmbiguousPath).(bool):
		return false
	case len(given) > maxAlternatePathBytes:
		return true
	}
	all := x.cached("readings", maxAlternatePaths*len(given), func() any { return alternatePaths(given) }).([]string)
	seen := x.cleanPath()
	defer x.setCleanPath(seen)
	for _, path := range all {
		if x.setCleanPath(path); r.match(x) != notMatched {
			return true
		}
	}
	return false
}

// cleanPath returns the path of the request as expressions see it.
func (x *exchange) cleanPath() string {
	return x.cached("path", len(x.r.URL.Path), func() any { return cleanPath(x.r.URL.Path) }).(string)
}

// setCleanPath replaces the path that expressions see.
func (x *exchange) setCleanPath(path string) {
	x.cache["path"] = path
	delete(x.cache, "url")
}

// Bounds of the paths that are read in several ways. A longer one that could be, may be anything.
const (
	maxAlternatePathBytes = 4 << 10 // bytes
	maxAlternatePaths     = 16
)

// isAmbiguousPath reports, as a bool, whether the path may have more than one reading.
func (x *exchange) isAmbiguousPath() any {
	return strings.ContainsAny(x.r.URL.Path, `;\%`) || x.cleanPath() != x.r.URL.Path
}

// alternatePaths returns the paths that servers may read from a decoded path, but for the one that
// expressions see: as it is, with "\" for "/", decoded once more, and without what follows a ";" in
// each part. A servlet container reads "/open/..;/admin" as "/admin".
func alternatePaths(given string) []string {
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
