// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
	"slices"
	"testing"
)

// TestOpenAPI_OperationsMatchRoutes requires that the methods of the routes, and no others, are
// described.
func TestOpenAPI_OperationsMatchRoutes(t *testing.T) {
	t.Parallel()
	var offered []string
	for pattern, methods := range (&server{opt: Options{Store: struct{ Store }{}}}).routes() {
		for name := range methods {
			offered = append(offered, name+" "+pattern)
		}
	}
	slices.Sort(offered)
	if described := slices.Sorted(maps.Keys(operations)); !slices.Equal(described, offered) {
		t.Errorf("described:\n%q\noffered:\n%q", described, offered)
	}
}
