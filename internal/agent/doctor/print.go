// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/printable"
)

// PrintOptions are the options of Print.
type PrintOptions struct {
	Color bool
	// AllGood is the verdict without broken and unknown hops; "" = "every hop is in order".
	AllGood string
	// Verbose shows the evidence under each hop.
	Verbose bool
}

const (
	columns     = 80
	labelColumn = 2
	textColumn  = 20
)

// Print writes the report for people: a line for each hop, the remedy of a broken one, and the
// verdict.
func Print(out io.Writer, r path.Report, o PrintOptions) error {
	p := &printer{color: o.Color}
	for _, h := range r.Hops {
		p.hop(h, o.Verbose)
	}
	p.line("")
	p.verdict(r, cmp.Or(o.AllGood, "every hop is in order"))
	_, err := io.WriteString(out, p.b.String())
	return err
}

type printer struct {
	b     strings.Builder
	color bool
}

// The marks and their colours.
var marks = map[path.Status]struct{ sign, code string }{
	path.OK: {"✓", "32"}, path.Broken: {"✗", "31"}, path.Unknown: {"?", "33"}, path.Skipped: {"-", "2"},
	path.Warning: {"!", "33"},
}

func (p *printer) paint(status path.Status, text string) string {
	if !p.color {
		return text
	}
	return "\x1b[" + marks[status].code + "m" + text + "\x1b[0m"
}

func (p *printer) line(text string) { p.b.WriteString(strings.TrimRight(text, " ") + "\n") }

func (p *printer) hop(h path.Hop, verbose bool) {
	lead := fmt.Sprintf("%s%-*s", p.paint(h.Status, marks[h.Status].sign)+strings.Repeat(" ", labelColumn-1),
		textColumn-labelColumn, path.Label(h.Name))
	indent := strings.Repeat(" ", textColumn)
	for i, text := range wrap(clean(h.Detail), columns-textColumn) {
		if i > 0 {
			lead = indent
		}
		p.line(lead + text)
	}
	if h.Fix != "" {
		p.fix(h, indent)
	}
	if !verbose {
		return
	}
	for _, e := range h.Evidence {
		for i, text := range wrap(clean(e), columns-textColumn-2) {
			p.line(indent + map[bool]string{true: "· ", false: "  "}[i == 0] + text)
		}
	}
}

// fix prints the remedy. Its commands are not wrapped, to be copied.
func (p *printer) fix(h path.Hop, indent string) {
	remedy, commands, _ := strings.Cut(h.Fix, "\n")
	lead := ""
	if h.Status == path.Broken {
		lead = "fix: "
	}
	for i, text := range wrap(lead+clean(remedy), columns-textColumn) {
		if i == 0 && lead != "" {
			text = p.paint(path.Broken, "fix:") + strings.TrimPrefix(text, "fix:")
		}
		p.line(indent + text)
	}
	for c := range strings.Lines(commands) {
		p.line("    " + clean(strings.TrimSuffix(c, "\n")))
	}
}

func (p *printer) verdict(r path.Report, allGood string) {
	var unknown []string
	for _, h := range r.Hops {
		if h.Status == path.Unknown {
			unknown = append(unknown, path.Label(h.Name))
		}
	}
	switch {
	case !r.OK:
		p.line(p.paint(path.Broken, "broken: "+path.Label(r.Broken)))
	case len(unknown) > 0:
		for _, text := range wrap("nothing broken was found; not known: "+strings.Join(unknown, ", "), columns) {
			p.line(p.paint(path.Unknown, text))
		}
	default:
		p.line(p.paint(path.OK, allGood))
	}
}

// wrap breaks one paragraph into lines of at most width columns.
func wrap(text string, width int) []string {
	return strings.Split(printable.Wrap(strings.TrimSpace(text), width), "\n")
}

const maxText = 600 // characters of a text from the cluster

// clean makes a text that came from the cluster fit for a terminal.
func clean(s string) string { return printable.Escape(s, maxText) }
