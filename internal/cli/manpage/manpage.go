// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manpage writes the manual pages of a program: one for each command, from its help. Input:
// the program's root command. Output: texts in roff, for man(1). Only a build with the tag manpages
// links it, which the packages of a release are made with; see internal/cli. It is not cobra's
// generator, which reads help as Markdown: tables and examples would run into paragraphs.
package manpage

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/version"
)

// Pages returns the pages of root and of all commands below it that help lists, by file name, such
// as fairlead-api.1. The same commands, date and version give the same bytes.
func Pages(root *cobra.Command, date time.Time) map[string]string {
	pages := map[string]string{}
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		pages[pageName(cmd)+".1"] = page(cmd, date)
		for _, sub := range available(cmd) {
			add(sub)
		}
	}
	add(root)
	return pages
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// available returns the subcommands that help lists.
func available(cmd *cobra.Command) (subs []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			subs = append(subs, sub)
		}
	}
	return subs
}

func page(cmd *cobra.Command, date time.Time) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	program := cmd.Root().Name()
	fmt.Fprintf(&b, ".TH %q 1 %q %q %q\n", strings.ToUpper(pageName(cmd)), date.UTC().Format(time.DateOnly),
		program+" "+version.String(), "Fairlead")
	fmt.Fprintf(&b, ".nh\n.ad l\n.SH NAME\n%s \\- %s\n", escape(pageName(cmd)), escape(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n")
	if cmd.Runnable() {
		fmt.Fprintf(&b, ".B %s\n", escape(cmd.UseLine()))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, ".br\n.B %s\n", escape(cmd.CommandPath()+" [command]"))
	}
	b.WriteString(".SH DESCRIPTION\n" + text(cmp.Or(cmd.Long, cmd.Short+".")))
	if subs := available(cmd); len(subs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range subs {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", escape(pageName(sub)), escape(sub.Short))
		}
	}
	flags(&b, "OPTIONS", cmd.NonInheritedFlags())
	flags(&b, "OPTIONS OF ALL COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n" + text(indented(cmd.Example)))
	}
	if cmd.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", escape(pageName(cmd.Parent())))
	}
	return b.String()
}

func flags(b *strings.Builder, title string, set *pflag.FlagSet) {
	if !set.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		usage = strings.ReplaceAll(usage, "\n", " ")
		switch f.DefValue {
		case "", "false", "0", "0s", "[]":
		default:
			usage += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR", escape(name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", escape(value))
		}
		fmt.Fprintf(b, "\n%s\n", escapeLine(usage))
	})
}

// text returns paragraphs in roff. Lines that begin with a space or tab stay as they are, as in
// help: they are examples and tables.
func text(s string) string {
	var b strings.Builder
	literal := false
	for line := range strings.Lines(strings.TrimRight(s, "\n") + "\n") {
		line = strings.ReplaceAll(strings.TrimRight(line, " \t\n"), "\t", "  ")
		example := strings.HasPrefix(line, " ")
		switch {
		case line == "" && !literal:
			b.WriteString(".PP\n")
			continue
		case example && !literal:
			b.WriteString(".RS 2\n.nf\n")
		case !example && literal && line != "":
			b.WriteString(".fi\n.RE\n")
		}
		literal = example || (literal && line == "")
		b.WriteString(escapeLine(strings.TrimPrefix(line, "  ")) + "\n")
	}
	if literal {
		b.WriteString(".fi\n.RE\n")
	}
	return b.String()
}

// indented returns the lines of an example, each with the two spaces that make text keep it.
func indented(example string) string {
	lines := strings.Split(strings.Trim(example, "\n"), "\n")
	for i, line := range lines {
		lines[i] = "  " + strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}

// escape returns s for the inside of a line of roff: hyphens and quotes that can be copied into a
// shell.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`,
		`"`, `\(dq`).Replace(s)
}

// escapeLine is escape for a whole line, which is no request of roff whatever it begins with.
func escapeLine(s string) string {
	if strings.HasPrefix(s, ".") {
		return `\&` + escape(s)
	}
	return escape(s)
}
