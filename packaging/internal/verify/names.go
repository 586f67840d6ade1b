// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"maps"
	"slices"
)

func sortedNames(files map[string]string) []string { return slices.Sorted(maps.Keys(files)) }

// firstMissing returns the first name of files that is not in known, or "".
func firstMissing(files, known map[string]string) string {
	for _, name := range sortedNames(files) {
		if _, ok := known[name]; !ok {
			return name
		}
	}
	return ""
}
