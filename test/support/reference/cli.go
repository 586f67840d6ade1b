// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead/internal/printable"
)

const (
	columns  = 120
	sharedBy = 4 // commands that have a flag which the page lists once
)

var blankLines = regexp.MustCompile(`\n{3,}`)

// cliPage is a page with commands.
type cliPage struct {
	apart    []string // names of the commands that, or whose subcommands, have a page of their own
	commands []*cobra.Command
	leaves   int            // commands without subcommands
	uses     map[string]int // by row of a table of flags: how many commands have the flag
	first    map[string]bool
}

// Commands returns the help of cmd and of the commands below it that help lists as Markdown. Those
// below a command that is named apart are left out, and so are its help, if it has none, and those of
// completion.
func Commands(cmd *cobra.Command, apart ...string) string {
	p := &cliPage{apart: apart, uses: map[string]int{}, first: map[string]bool{}}
	p.add(cmd)
	eachFlag(cmd, func(row, _ string) { p.first[row] = true })
	var b strings.Builder
	shared, listed := "", map[string]bool{}
	for _, c := range p.commands {
		p.describe(&b, c)
		eachFlag(c, func(row, _ string) {
			if p.uses[row] >= sharedBy && !p.first[row] && !listed[row] {
				shared, listed[row] = shared+row, true
			}
		})
	}
	if shared != "" {
		b.WriteString("## Flags of many commands\n\n" + Header("Flag", "Default", "What") + shared)
	}
	return blankLines.ReplaceAllString(b.String(), "\n\n")
}

func (p *cliPage) add(cmd *cobra.Command) {
	p.commands = append(p.commands, cmd)
	eachFlag(cmd, func(row, _ string) { p.uses[row]++ })
	if !cmd.HasAvailableSubCommands() {
		p.leaves++
	}
	if slices.Contains(p.apart, cmd.Name()) || cmd.Name() == "completion" {
		return
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			p.add(sub)
		}
	}
}

// describe writes a command's section.
func (p *cliPage) describe(b *strings.Builder, cmd *cobra.Command) {
	if slices.Contains(p.apart, cmd.Name()) && !cmd.HasAvailableSubCommands() {
		fmt.Fprintf(b, "## %s\n\n%s: [%s.md](%[3]s.md)\n\n", cmd.CommandPath(), cmd.Short, anchor(cmd))
		return
	}
	fmt.Fprintf(b, "## %s\n\n%s\n", cmd.CommandPath(), Prose(cmp.Or(cmd.Long, cmd.Short+"."), columns))
	if !cmd.HasAvailableSubCommands() {
		fmt.Fprintf(b, "```\n%s\n```\n\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "```sh\n%s\n```\n\n", unindent(cmd.Example))
	}
	if page := anchor(cmd) + ".md"; slices.Contains(p.apart, cmd.Name()) {
		fmt.Fprintf(b, "Its commands: [%s](%s)\n\n", page, page)
	}
	if cmd == p.commands[0] || !cmd.HasAvailableSubCommands() {
		p.describeFlags(b, cmd)
	}
}

// describeFlags writes a table of the flags that only this command has, and the names of others. A
// flag that all commands have is not named.
func (p *cliPage) describeFlags(b *strings.Builder, cmd *cobra.Command) {
	own := ""
	var first, shared []string
	eachFlag(cmd, func(row, name string) {
		switch n := p.uses[row]; {
		case p.first[row] && cmd != p.commands[0]:
			first = append(first, Code(name))
		case p.first[row] || n < sharedBy:
			own += row
		case n < p.leaves:
			shared = append(shared, Code(name))
		}
	})
	if own != "" {
		b.WriteString(Header("Flag", "Default", "What") + own + "\n")
	}
	root := p.commands[0]
	writeNames(b, "[Flags of "+root.CommandPath()+"](#"+anchor(root)+")", first)
	writeNames(b, "[Flags of many commands](#flags-of-many-commands)", shared)
}

func writeNames(b *strings.Builder, title string, names []string) {
	if len(names) > 0 {
		b.WriteString(printable.Wrap(title+": "+strings.Join(names, ", "), columns) + "\n\n")
	}
}

// anchor returns the anchor of a command's section, and the name of its page.
func anchor(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// eachFlag calls f for the flags that a command's help lists, but --help and --version, with their
// rows of a table.
func eachFlag(cmd *cobra.Command, f func(row, name string)) {
	for _, set := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
		set.VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden && flag.Name != "help" && flag.Name != "version" {
				f(flagRow(flag), "--"+flag.Name)
			}
		})
	}
}

func flagRow(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	def := f.DefValue
	switch def {
	case "false", "0", "0s", "[]":
		def = ""
	}
	return Row(Code(strings.TrimSpace(name+" "+value)), Code(def), usage)
}

// Prose returns the paragraphs of a help text in lines of at most width. Lines that begin with a
// space or tab are code.
func Prose(text string, width int) string {
	var b strings.Builder
	var code []string
	end := func() {
		if len(code) > 0 {
			b.WriteString("\n```\n" + unindent(strings.Join(code, "\n")) + "\n```\n\n")
		}
		code = nil
	}
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			code = append(code, line)
			continue
		}
		end()
		b.WriteString(printable.Wrap(Escape(line), width) + "\n")
	}
	end()
	return b.String()
}

// unindent takes the spaces that the first line begins with from all lines.
func unindent(text string) string {
	text = strings.Trim(strings.ReplaceAll(text, "\t", "  "), "\n")
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	return strings.TrimPrefix(strings.ReplaceAll(text, "\n"+indent, "\n"), indent)
}
