// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestLogin_CtrlCEndsPrompt interrupts the prompt for a key: the terminal shows again what is
// typed.
func TestLogin_CtrlCEndsPrompt(t *testing.T) {
	t.Parallel()
	o := startOnTerminal(t, newService(t, nil, nil), nil, "login")
	echoes := func() bool {
		state, err := unix.IoctlGetTermios(int(o.master.Fd()), unix.TCGETS)
		must.Succeed(t, err)
		return state.Lflag&unix.ECHO != 0
	}
	o.until("API key: ")
	for echoes() {
		runtime.Gosched()
	}
	_, err := o.master.WriteString("\x03")
	must.Succeed(t, err)
	o.until("interrupted")
	if !echoes() {
		t.Error("the terminal has no echo")
	}
}
