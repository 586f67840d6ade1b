// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"math"
	"testing"
)

func TestLossDetector_Update(t *testing.T) {
	t.Parallel()
	type look struct {
		again, all uint32 // since the look before
		lossy      bool
	}
	for name, looks := range map[string][]look{
		"few packets":       {{4, 20, false}, {1, 10, true}, {0, 900, true}},
		"one of a thousand": {{1, 1000, false}, {20, 20_000, false}, {4, 3000, false}},
		"one of a hundred": {{2, 200, false}, {3, 300, true}, {5, 500, true}, {0, 10, true},
			{10, 1000, true}},
		"none for long, then many":    {{0, 100_000_000, false}, {5, 500, true}},
		"many in the beginning":       {{10_000, 100_000, true}, {0, 999, true}, {0, 1, false}, {0, 10, false}},
		"many in the beginning, fast": {{10_000, 100_000, true}, {10, 100_000, false}},
		"beyond 4 billion":            {{0, math.MaxUint32 - 10, false}, {10, 1000, true}, {0, 2000, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l lossDetector
			var again, all uint32
			for i, x := range looks {
				again, all = again+x.again, all+x.all
				if got := l.update(again, all); got != x.lossy {
					t.Errorf("look %d, %d of %d more: lossy %v", i, x.again, x.all, got)
				}
			}
		})
	}
}
