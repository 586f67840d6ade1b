// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import "testing"

// countingTerminal counts how often it is restored.
type countingTerminal struct{ restored *int }

func (c *countingTerminal) Leave() { *c.restored++ }

func TestRun_RestoresTerminalBeforeCrash(t *testing.T) {
	t.Parallel()
	gaveBack := 0
	o := &Options{Terminal: &countingTerminal{&gaveBack}}
	crash := func(why any) (recovered any) {
		defer func() { recovered = recover() }()
		defer o.reportPanic()
		if why != nil {
			panic(why)
		}
		return nil
	}
	if got := crash(nil); got != nil || gaveBack != 0 {
		t.Errorf("without a panic: %v, %d", got, gaveBack)
	}
	if got := crash("why"); got != "why" || gaveBack != 1 {
		t.Errorf("the panic became %v, and the terminal was given back %d times", got, gaveBack)
	}
}
