// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// Flow is a picture of three columns of nodes, and of links between neighbours.
type Flow struct {
	Columns [3][]FlowNode
	Links   [2][]FlowLink // from the first column to the second, from the second to the third
}

// FlowNode is a node of a flow.
type FlowNode struct{ Name, Note string }

// FlowLink is a link between nodes of neighbouring columns, which it names by their index.
type FlowLink struct {
	From, To int
	Class    string // which the style sheet has
	Weight   float64
}

// Sizes of a flow in CSS pixels, and the longest text in characters.
const (
	flowRow     = 26
	flowText    = 30
	flowStretch = 100 // width of the links in their own unit
	maxStroke   = 7
)

// SVG returns the picture. It is hidden from screen readers: the page has its content as text.
func (f Flow) SVG() template.HTML {
	rows := 0
	for _, column := range f.Columns {
		rows = max(rows, len(column))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="flow" width="100%%" height="%d" aria-hidden="true" focusable="false">`, rows*flowRow)
	for i, links := range f.Links {
		fmt.Fprintf(&b, `<svg x="%d%%" width="12%%" height="%d" viewBox="0 0 %d %d" preserveAspectRatio="none" `+
			`aria-hidden="true" focusable="false">`, 26+36*i, rows*flowRow, flowStretch, rows*flowRow)
		f.writeLinks(&b, links, len(f.Columns[i]), len(f.Columns[i+1]), rows)
		b.WriteString("</svg>")
	}
	for i, column := range f.Columns {
		x, anchor := []int{25, 50, 75}[i], []string{"end", "middle", "start"}[i]
		for k, node := range column {
			fmt.Fprintf(&b, `<text x="%d%%" y="%.1f" text-anchor="%s">%s`, x, nodeY(k, len(column), rows)+4, anchor,
				html.EscapeString(shorten(node.Name)))
			if node.Note != "" {
				fmt.Fprintf(&b, ` <tspan class="note">%s</tspan>`, html.EscapeString(node.Note))
			}
			b.WriteString("</text>")
		}
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // every text in it is escaped
}

// writeLinks writes the links between columns of from and to nodes. A link that names a node that
// does not exist is left out.
func (f Flow) writeLinks(b *strings.Builder, links []FlowLink, from, to, rows int) {
	highest := 0.0
	for _, link := range links {
		highest = max(highest, link.weight())
	}
	for _, link := range links {
		if link.From < 0 || link.From >= from || link.To < 0 || link.To >= to {
			continue
		}
		width := 1.5
		if highest > 0 {
			width += (maxStroke - 1.5) * math.Sqrt(link.weight()/highest)
		}
		y1, y2 := nodeY(link.From, from, rows), nodeY(link.To, to, rows)
		fmt.Fprintf(b, `<path class="link %s" stroke-width="%.1f" d="M0 %.1fC50 %.1f 50 %.1f %d %.1f"/>`,
			html.EscapeString(link.Class), width, y1, y1, y2, flowStretch, y2)
	}
}

// weight returns the weight as it is drawn: finite, not negative.
func (l FlowLink) weight() float64 {
	if math.IsNaN(l.Weight) {
		return 0
	}
	return min(max(l.Weight, 0), maxValue)
}

// nodeY returns the middle of node k of a column with n nodes: columns are centred.
func nodeY(k, n, rows int) float64 { return flowRow * (float64(rows-n)/2 + float64(k) + 0.5) }

// shorten cuts a text to flowText characters.
func shorten(text string) string {
	if runes := []rune(text); len(runes) > flowText {
		return string(runes[:flowText-1]) + "…"
	}
	return text
}
