// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"crypto/fips140"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/version"
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
		root.SetArgs([]string{"version", "-o", "json"})
		must.Succeed(t, root.Execute())
		return
	}
	for mode, want := range map[string]bool{"off": false, "on": true} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestVersion_NamesFIPSMode$")
		cmd.Env = append(os.Environ(), child+"=1", "GODEBUG=fips140="+mode)
		out, err := cmd.CombinedOutput()
		var got build // what follows it is of the test's own
		err = errors.Join(err, json.NewDecoder(bytes.NewReader(out)).Decode(&got))
		if err != nil || got.Program != "prog" {
			t.Fatalf("fips140=%s: %v: %s", mode, err, out)
		}
		if got.FIPS140 != want || strings.Contains(got.String(), ", FIPS 140-3)") != want {
			t.Errorf("fips140=%s: %s, %v", mode, out, got)
		}
	}
}

// TestVersion_PrintsJSON compares the fields, which scripts read, with the line for people.
func TestVersion_PrintsJSON(t *testing.T) {
	t.Parallel()
	answer := func(args ...string) string {
		var out bytes.Buffer
		root := program(0, &out)
		root.SetArgs(args)
		if err := root.Execute(); err != nil {
			return err.Error()
		}
		return out.String()
	}
	var got map[string]any
	must.Succeed(t, json.Unmarshal([]byte(answer("version", "-o", "json")), &got))
	want := map[string]any{"program": "prog", "version": version.String(), "revision": version.Revision(),
		"go_version": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH, "fips140": fips140.Enabled()}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if line := answer("version"); line != answer("--version") || !strings.HasPrefix(line, fmt.Sprintf(
		"prog %s (revision %s, %s, %s", want["version"], want["revision"], want["go_version"], want["platform"])) {
		t.Errorf("the line is %q", line)
	}
	if refused := answer("version", "-o", "yaml"); refused != `--output "yaml": must be text or json` {
		t.Errorf("another format: %s", refused)
	}
}
