// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"sync"
	"testing"
)

func TestWindowBudget_DefaultsToShareOfMemory(t *testing.T) {
	t.Parallel()
	if w := NewWindowBudget(0); w.limit <= 0 {
		t.Errorf("the bound of this machine is %d", w.limit)
	}
}

func TestWindowBudget_StaysWithinLimit(t *testing.T) {
	t.Parallel()
	w := NewWindowBudget(10 << 20)
	var growing sync.WaitGroup
	for range 50 {
		growing.Go(func() {
			for range 200 {
				taken := int64(0)
				for n := int64(1 << 20); w.Reserve(n); n *= 2 {
					taken += n
					if used := w.Used(); used > 10<<20 {
						t.Errorf("%d bytes are out", used)
					}
				}
				w.Release(taken)
			}
		})
	}
	growing.Wait()
	if used := w.Used(); used != 0 {
		t.Errorf("%d bytes were never given back", used)
	}
}
