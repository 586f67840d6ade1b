// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"os"

	"golang.org/x/sys/windows"
	"golang.org/x/term"
)

// console is a terminal of Windows. No signal reports a new size, so each frame asks for it.
type console struct {
	*os.File

	mode uint32
}

// openTerminal asks for control sequences, which consoles before Windows 10 do not have.
func openTerminal(f *os.File) (terminal, bool) {
	c := &console{File: f}
	handle := windows.Handle(f.Fd())
	if !term.IsTerminal(int(f.Fd())) || windows.GetConsoleMode(handle, &c.mode) != nil {
		return nil, false
	}
	if windows.SetConsoleMode(handle, c.mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) != nil {
		return nil, false
	}
	return c, true
}

func (c *console) size() (columns, rows int) { return sizeOf(c.File) }
func (c *console) foreground() bool          { return true }
func (c *console) changes() <-chan os.Signal { return nil }
func (c *console) stops() <-chan os.Signal   { return nil }
func (c *console) suspend(os.Signal)         {}

func (c *console) close() { _ = windows.SetConsoleMode(windows.Handle(c.Fd()), c.mode) }
