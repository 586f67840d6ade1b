// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package manpage_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/internal/cli"
	"github.com/fairlead-dev/fairlead/internal/cli/manpage"
	"github.com/fairlead-dev/fairlead/test/support/manpagetest"
)

func program() *cobra.Command {
	root := &cobra.Command{Use: "prog", Short: "Do it",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	sub := &cobra.Command{Use: "sub NAME", Short: "Do part of it",
		Long:    "It's long.\n\nExit codes:\n  0  done\n  1  not\nC:\\new is a path, and\n.profile a file.",
		Example: "prog sub x --count 3\n  prog sub 'y'", Run: func(*cobra.Command, []string) {}}
	sub.Flags().IntP("count", "c", 2, "`NUMBER` of\nparts")
	sub.Flags().Bool("secret", false, "")
	_ = sub.Flags().MarkHidden("secret")
	root.PersistentFlags().String("dir", "", "`DIR` of all")
	root.AddCommand(sub, &cobra.Command{Use: "hidden", Hidden: true, Run: func(*cobra.Command, []string) {}})
	cli.Setup(root, 80)
	return root
}

func TestPages_CoverCommands(t *testing.T) {
	t.Parallel()
	manpagetest.Compare(t, program())
}

func TestPages_AreStable(t *testing.T) {
	t.Parallel()
	date := time.Date(2026, 1, 2, 23, 0, 0, 0, time.FixedZone("", -7200))
	first, second := manpage.Pages(program(), date), manpage.Pages(program(), date.UTC())
	if !maps.Equal(first, second) || !strings.Contains(first["prog.1"], `"2026-01-03"`) {
		t.Errorf("two times differ, or the date is not UTC:\n%s\n%s", first["prog.1"], second["prog.1"])
	}
	if _, ok := first["prog-hidden.1"]; ok {
		t.Error("a hidden command has a page")
	}
}

func TestPages_KeepTextsAsTheyAre(t *testing.T) {
	t.Parallel()
	page := manpage.Pages(program(), time.Unix(0, 0))["prog-sub.1"]
	for _, want := range []string{
		".SH NAME\nprog\\-sub \\- Do part of it\n",
		"It\\(aqs long.\n.PP\nExit codes:\n.RS 2\n.nf\n0  done\n1  not\n.fi\n.RE\n" +
			"C:\\enew is a path, and\n\\&.profile a file.\n",
		".TP\n\\fB\\-c, \\-\\-count\\fR \\fINUMBER\\fR\nNUMBER of parts (default 2)\n",
		".SH OPTIONS OF ALL COMMANDS\n.TP\n\\fB\\-\\-dir\\fR \\fIDIR\\fR\n",
		".nf\nprog sub x \\-\\-count 3\nprog sub \\(aqy\\(aq\n.fi\n",
		".SH SEE ALSO\n.BR prog (1)\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in:\n%s", want, page)
		}
	}
}
