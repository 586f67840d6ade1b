// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strings"

	"github.com/fairlead-dev/fairlead/internal/printable"
)

// Bounds of a diff. Texts that differ in more lines than maxDiffCells allows are shown as one
// replacement.
const (
	diffContext  = 3 // equal lines around a change
	maxDiffCells = 2 << 20
)

// diffLine is a line of two texts: of both, or of one.
type diffLine struct {
	Op       string // "+", "-" or " "; "…" = equal lines are left out
	Text     string
	Old, New int // its numbers, from 1; 0 = it is not in that text
}

// splitLines returns the lines of a text without their ends; a text that is empty has none.
func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	return lines
}

// diffLines returns all lines of the two texts, in order, what is removed before what is added.
func diffLines(before, after string) []diffLine {
	a, b := splitLines(before), splitLines(after)
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	d := differ{a: a, b: b}
	d.take(" ", start)
	d.middle(a[start:len(a)-end], b[start:len(b)-end])
	d.take(" ", end)
	return d.lines
}

// differ collects the lines of a diff.
type differ struct {
	a, b   []string
	lines  []diffLine
	at, to int // how many lines of a and of b are collected
}

// take collects the next n lines: of both texts for " ", of the first for "-", of the second for "+".
func (d *differ) take(op string, n int) {
	for range n {
		line := diffLine{Op: op}
		if op != "+" {
			line.Text, line.Old, d.at = d.a[d.at], d.at+1, d.at+1
		}
		if op != "-" {
			line.Text, line.New, d.to = d.b[d.to], d.to+1, d.to+1
		}
		d.lines = append(d.lines, line)
	}
}

// middle collects lines of which the first and last differ, by their longest common subsequence.
// That of go-difflib takes seconds for 700 lines that are much alike.
func (d *differ) middle(a, b []string) {
	if len(a) == 0 || len(b) == 0 || len(a) > maxDiffCells/len(b) {
		d.take("-", len(a))
		d.take("+", len(b))
		return
	}
	width := len(b) + 1
	common := make([]uint32, (len(a)+1)*width) // lengths, of what begins at i and j
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			d.take(" ", 1)
			i, j = i+1, j+1
		case common[(i+1)*width+j] >= common[i*width+j+1]:
			d.take("-", 1)
			i++
		default:
			d.take("+", 1)
			j++
		}
	}
	d.take("-", len(a)-i)
	d.take("+", len(b)-j)
}

// hunks leaves out equal lines that are far from every change.
func hunks(lines []diffLine) []diffLine {
	near := make([]bool, len(lines))
	for i, line := range lines {
		if line.Op == " " {
			continue
		}
		for at := max(i-diffContext, 0); at < min(i+diffContext+1, len(lines)); at++ {
			near[at] = true
		}
	}
	var shown []diffLine
	for i, line := range lines {
		switch {
		case near[i]:
			shown = append(shown, line)
		case i == 0 || near[i-1]:
			shown = append(shown, diffLine{Op: "…"})
		}
	}
	return shown
}

// lineMap returns the numbers of the lines of the text after, by those of before: of a line that is
// not in it, where it would be.
func lineMap(before, after string) func(line int) int {
	var to []int
	last := 0
	for _, line := range diffLines(before, after) {
		at := last + 1
		if line.New > 0 {
			at, last = line.New, line.New
		}
		if line.Old > 0 {
			to = append(to, at)
		}
	}
	most := max(len(splitLines(after)), 1)
	return func(line int) int {
		if line < 1 || line > len(to) {
			return min(max(line, 1), most)
		}
		return min(to[line-1], most)
	}
}

// keepRaw returns the text that a form sent, with the characters that the page shows escaped as
// they are in the text that the form showed, wherever the person has left its line alone.
func keepRaw(sent, shown string) string {
	raw := map[string]string{}
	escaped := false
	for _, line := range splitLines(shown) {
		if text := printable.EscapeInvisible(line); text != line {
			raw[text], escaped = line, true
		}
	}
	lines := strings.Split(sent, "\n")
	if escaped {
		for i, line := range lines {
			if original, known := raw[line]; known {
				lines[i] = original
			}
		}
	}
	text := strings.Join(lines, "\n")
	if text == strings.ReplaceAll(shown, "\r\n", "\n") {
		return shown
	}
	return text
}
