// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestTerminalColumns_PrefersEnvironment(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{"132": 132, "": 0, "0": 0, "-1": 0, "wide": 0} {
		if got := TerminalColumns(&bytes.Buffer{}, func(string) string { return value }); got != want {
			t.Errorf("COLUMNS=%s: %d, want %d", value, got, want)
		}
	}
}

// program returns a root command with a flag of each kind of length, prepared for columns.
func program(columns int, out *bytes.Buffer) *cobra.Command {
	root := &cobra.Command{Use: "prog", Short: "Short", Long: strings.Repeat("word ", 60), SilenceErrors: true,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	sub := &cobra.Command{Use: "sub", Short: "A command", Run: func(*cobra.Command, []string) {}}
	sub.Flags().String("flag", "", strings.Repeat("usage ", 60))
	root.AddCommand(sub)
	root.SetOut(out)
	Setup(root, columns)
	return root
}

func TestSetup_HelpFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for columns, most := range map[int]int{0: DefaultColumns, 60: 60, 80: 80, 10: minColumns, 500: maxColumns} {
		for _, args := range [][]string{{"--help"}, {"help", "sub"}, {"sub", "--help"}} {
			var out bytes.Buffer
			root := program(columns, &out)
			root.SetArgs(args)
			if err := root.Execute(); err != nil || !strings.Contains(out.String(), "Usage:\n  prog") {
				t.Fatalf("%v: %v\n%s", args, err, &out)
			}
			for line := range strings.Lines(out.String()) {
				if strings.HasPrefix(line, "word") || strings.Contains(line, "usage usage") {
					if n := len(strings.TrimRight(line, "\n")); n > most {
						t.Errorf("%v with %d columns: %d in %q", args, columns, n, line)
					}
				}
			}
		}
	}
}

// TestVersion_NamesFIPSMode runs itself with Go's FIPS mode off and on, which a process cannot
// change.
func TestVersion_NamesFIPSMode(t *testing.T) {
	const child = "FAIRLEAD_TEST_PRINTS_VERSION"
	if os.Getenv(child) != "" {
		root := program(0, &bytes.Buffer{})
		root.SetOut(os.Stdout)
		root.SetArgs([]string{"--version"})
		must.Succeed(t, root.Execute())
		return
	}
	for mode, want := range map[string]bool{"off": false, "on": true} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVersion_NamesFIPSMode$")
		cmd.Env = append(os.Environ(), child+"=1", "GODEBUG=fips140="+mode)
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("prog ")) {
			t.Fatalf("fips140=%s: %v: %s", mode, err, out)
		}
		if got := bytes.Contains(out, []byte(", FIPS 140-3)")); got != want {
			t.Errorf("fips140=%s: --version says FIPS: %v: %s", mode, got, out)
		}
	}
}
