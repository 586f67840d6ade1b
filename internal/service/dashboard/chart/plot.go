// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
	"time"
)

// Tone is the class of a line: its colour and its dashes, which the style sheet has.
type Tone string

// The tones that there are.
const (
	Accent Tone = "accent"
	Good   Tone = "good"
	Warn   Tone = "warn"
	Bad    Tone = "bad"
	Faint  Tone = "faint"
)

// Line is one series of a plot.
type Line struct {
	Name   string
	Tone   Tone
	Values []float64 // one for each step; NaN = there is no data
}

// Plot is a chart of lines over time.
type Plot struct {
	Start time.Time // start of the first step
	Step  time.Duration
	Unit  Unit
	Lines []Line
	// Stacked draws each line on top of those before it, as areas.
	Stacked bool
	// Peak shows the highest value of a row of the table, not the mean.
	Peak bool
}

// Sizes of a drawing: in CSS pixels, but for those of the stretched part.
const (
	top        = 10 // space above the plot
	height     = 150
	bottom     = 28 // space below it, with the labels of the time
	plotWidth  = 2880
	plotHeight = 1000
	xLabels    = 7 // at most
	yTicks     = 4 // at most, without that of 0
)

// steps returns the number of steps: that of the longest line.
func (p Plot) steps() int {
	n := 0
	for _, line := range p.Lines {
		n = max(n, len(line.Values))
	}
	return n
}

// end returns when the last step ends.
func (p Plot) end() time.Time { return p.Start.Add(time.Duration(p.steps()) * p.Step) }

// value returns the value of the line at step i as it is drawn: NaN without one, not negative, and
// at most maxValue.
func (l Line) value(i int) float64 {
	if i < 0 || i >= len(l.Values) || math.IsNaN(l.Values[i]) {
		return math.NaN()
	}
	return min(max(l.Values[i], 0), maxValue)
}

// layers returns the upper edges of the lines: their values, or when stacked the sums so far. A
// step without a value in any line is NaN in all.
func (p Plot) layers() [][]float64 {
	n := p.steps()
	all, sum := make([][]float64, len(p.Lines)), make([]float64, n)
	for i := range n {
		if p.Stacked && !p.known(i) {
			sum[i] = math.NaN()
		}
	}
	for k, line := range p.Lines {
		all[k] = make([]float64, n)
		for i := range n {
			v := line.value(i)
			if p.Stacked {
				if !math.IsNaN(v) {
					sum[i] += v
				}
				v = sum[i]
			}
			all[k][i] = v
		}
	}
	return all
}

// known reports whether a line has a value at step i.
func (p Plot) known(i int) bool {
	for _, line := range p.Lines {
		if !math.IsNaN(line.value(i)) {
			return true
		}
	}
	return false
}

// SVG returns the drawing. It is hidden from screen readers, which have the table.
func (p Plot) SVG() template.HTML {
	layers := p.layers()
	highest := 0.0
	for _, layer := range layers {
		for _, v := range layer {
			if v > highest { // false for NaN
				highest = v
			}
		}
	}
	ticks := valueTicks(highest, p.Unit)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" width="100%%" height="%d" aria-hidden="true" focusable="false">`,
		top+height+bottom)
	p.writeValueAxis(&b, ticks)
	p.writeTimeAxis(&b)
	fmt.Fprintf(&b,
		`<svg class="plot" y="%d" width="100%%" height="%d" viewBox="0 0 %d %d" preserveAspectRatio="none" `+
			`aria-hidden="true" focusable="false">`, top, height, plotWidth, plotHeight)
	p.writeLines(&b, layers, ticks[len(ticks)-1])
	p.writeBands(&b)
	b.WriteString("</svg></svg>")
	return template.HTML(b.String()) // every text in it is escaped
}

func (p Plot) writeValueAxis(b *strings.Builder, ticks []float64) {
	b.WriteString(`<g class="axis">`)
	for i, v := range ticks {
		y := top + height - float64(i)*height/float64(len(ticks)-1)
		class := "grid"
		if i == 0 {
			class = "base"
		}
		fmt.Fprintf(b, `<line class="%s" x1="0" x2="100%%" y1="%.1f" y2="%.1f"/>`, class, y, y)
		fmt.Fprintf(b, `<text x="-8" y="%.1f" text-anchor="end">%s</text>`, y+4, html.EscapeString(Format(v, p.Unit)))
	}
	b.WriteString("</g>")
}

func (p Plot) writeTimeAxis(b *strings.Builder) {
	span := p.end().Sub(p.Start)
	if span <= 0 {
		return
	}
	b.WriteString(`<g class="axis">`)
	times, step := timeTicks(p.Start, p.end(), xLabels)
	for _, at := range times {
		x := 100 * float64(at.Sub(p.Start)) / float64(span)
		fmt.Fprintf(b, `<line class="base" x1="%.2f%%" x2="%.2f%%" y1="%d" y2="%d"/>`, x, x, top+height, top+height+4)
		anchor := `"middle"`
		if x > 97 {
			anchor = `"end" dx="1rem"` // as wide as the margin, which is narrower than half a date
		}
		fmt.Fprintf(b, `<text x="%.2f%%" y="%d" text-anchor=%s>%s</text>`, x, top+height+20, anchor, clock(at, step))
	}
	b.WriteString("</g>")
}

func (p Plot) writeLines(b *strings.Builder, layers [][]float64, highest float64) {
	for k, layer := range layers {
		var below []float64
		if p.Stacked && k > 0 {
			below = layers[k-1]
		}
		if p.Stacked || len(layers) == 1 {
			fmt.Fprintf(b, `<path class="area %s" d="%s"/>`, p.Lines[k].Tone, areaPath(layer, below, highest))
		}
	}
	for k, layer := range layers {
		if k > 0 {
			layer = p.Lines[k].visible(layer)
		}
		fmt.Fprintf(b, `<path class="line %s" d="%s"/>`, p.Lines[k].Tone, linePath(layer, highest))
	}
}

// visible returns the edge of a line, but NaN where the line's own value and those beside it are 0
// or missing: there it would lie on the line below it, or on the axis, as if that had its colour.
func (l Line) visible(edge []float64) []float64 {
	seen := make([]float64, len(edge))
	for i := range edge {
		seen[i] = math.NaN()
		if l.value(i-1) > 0 || l.value(i) > 0 || l.value(i+1) > 0 { // false for NaN
			seen[i] = edge[i]
		}
	}
	return seen
}

// writeBands writes a band over each row of the table, with its values as title.
func (p Plot) writeBands(b *strings.Builder) {
	n := p.steps()
	for _, row := range p.rows() {
		from, to := row.first*plotWidth/n, (row.last+1)*plotWidth/n
		texts := make([]string, len(row.Values))
		for k, value := range row.Values {
			texts[k] = p.Lines[k].Name + " " + value
		}
		fmt.Fprintf(b, `<rect class="band" x="%d" width="%d" height="%d"><title>%s</title></rect>`, from, to-from,
			plotHeight, html.EscapeString(row.Label+" UTC: "+strings.Join(texts, ", ")))
	}
}
