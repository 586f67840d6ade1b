// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manpagetest compares a program's manual pages with its commands, for the tests of each
// program. Input: the root command. It fails the test for a command or flag without a page.
package manpagetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/cli/manpage"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Compare checks that each command and flag of root that help lists has its page, that no page has
// another subject, and, where mandoc is installed, that mandoc finds nothing to warn of.
func Compare(t *testing.T, root *cobra.Command) {
	t.Helper()
	pages := manpage.Pages(root, time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC))
	commands := 0
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		commands++
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1"
		text := strings.NewReplacer(`\-`, "-", `\(aq`, "'", `\(ga`, "`").Replace(pages[name])
		if !strings.Contains(text, ".B "+cmd.CommandPath()) || !strings.Contains(text, cmd.Short) {
			t.Errorf("the page %s does not describe `%s`:\n%s", name, cmd.CommandPath(), text)
		}
		flags := pflag.NewFlagSet("all", pflag.ContinueOnError)
		flags.AddFlagSet(cmd.LocalFlags())
		flags.AddFlagSet(cmd.InheritedFlags())
		flags.VisitAll(func(f *pflag.Flag) {
			if listed := strings.Contains(text, "--"+f.Name+"\\fR"); listed == f.Hidden {
				t.Errorf("%s: has --%s: %t; hidden in help: %t", name, f.Name, listed, f.Hidden)
			}
		})
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && sub.Deprecated == "" && sub.Name() != "help" {
				visit(sub)
			}
		}
	}
	visit(root)
	if commands != len(pages) {
		t.Errorf("%d commands, and %d pages", commands, len(pages))
	}
	lint(t, pages)
}

func lint(t *testing.T, pages map[string]string) {
	t.Helper()
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		return
	}
	dir := t.TempDir()
	for name, text := range pages {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		out, err := exec.CommandContext(t.Context(), mandoc, "-Tlint", "-Wwarning", path).CombinedOutput()
		if err != nil || len(bytes.TrimSpace(out)) > 0 {
			t.Errorf("%s: mandoc: %v %s", name, err, out)
		}
	}
}
