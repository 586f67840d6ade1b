// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/fairlead-dev/fairlead/internal/printable"
)

const (
	// DefaultColumns is the width of help where no terminal says another.
	DefaultColumns = 100
	minColumns     = 40
	maxColumns     = 120 // longer lines are hard to read, however wide the terminal
)

// TerminalColumns returns the width of out: COLUMNS of the environment, else the terminal's, else
// 0.
func TerminalColumns(out io.Writer, env func(string) string) int {
	if n, err := strconv.Atoi(env("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := out.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 0
}

// help returns a command's whole help, in lines of at most columns; 0 = DefaultColumns.
func help(cmd *cobra.Command, columns int) string {
	columns = max(min(cmp.Or(columns, DefaultColumns), maxColumns), minColumns)
	cmd.SetUsageTemplate(usageTemplate(columns))
	for _, flags := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
		flags.VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "\n", " ") })
	}
	text := strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short))
	if text != "" {
		text = printable.Wrap(text, columns) + "\n\n"
	}
	if cmd.Runnable() || cmd.HasSubCommands() {
		text += cmd.UsageString()
	}
	return text
}

// usageTemplate is cobra's own, whose flags are wrapped.
func usageTemplate(columns int) string {
	wrapped := "FlagUsagesWrapped " + strconv.Itoa(columns)
	return strings.ReplaceAll((&cobra.Command{}).UsageTemplate(), "FlagUsages", wrapped)
}
