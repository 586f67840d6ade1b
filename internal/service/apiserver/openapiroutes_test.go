// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"maps"
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account/resource"
)

// TestRoutes_HandleEveryOperation requires that the operations of the table, and no others, have a
// handler.
func TestRoutes_HandleEveryOperation(t *testing.T) {
	t.Parallel()
	var described []string
	for _, r := range resource.All() {
		for _, op := range r.Operations {
			described = append(described, op.ID)
		}
	}
	slices.Sort(described)
	s := &server{opt: Options{Store: struct{ Store }{}}}
	if handled := slices.Sorted(maps.Keys(s.handlers())); !slices.Equal(described, handled) {
		t.Errorf("operations of the table:\n%q\nwith a handler:\n%q", described, handled)
	}
}
