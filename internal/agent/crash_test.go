// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import "testing"

func TestRun_CallsOnPanicBeforeCrash(t *testing.T) {
	t.Parallel()
	gaveBack := 0
	a := &Agent{opt: Options{OnPanic: func() { gaveBack++ }}}
	crash := func(why any) (recovered any) {
		defer func() { recovered = recover() }()
		defer a.reportPanic()
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
