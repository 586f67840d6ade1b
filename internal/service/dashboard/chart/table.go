// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"math"
	"slices"
	"time"
)

// maxRows bounds the rows of a table, without the row in which the window begins.
const maxRows = 24

// Row is a span of time in the table of a plot.
type Row struct {
	Key    string   // id of the row, the same at each refresh
	Label  string   // start of the row, in UTC
	Values []string // one for each line, in its unit

	first, last int // steps
}

// Legend is a line's name and its last value.
type Legend struct {
	Name string
	Tone Tone
	Last string
}

// RowStep returns how long a row of the table is.
func (p Plot) RowStep() time.Duration { return max(stepFor(p.end().Sub(p.Start), maxRows+1), p.Step) }

// Rows returns the table, the newest row first. Each value is the mean of its row, or the peak.
func (p Plot) Rows() []Row {
	rows := p.rows()
	slices.Reverse(rows)
	return rows
}

// Legends returns the lines with their last values, NaN shown as "–".
func (p Plot) Legends() []Legend {
	all := make([]Legend, len(p.Lines))
	for k, line := range p.Lines {
		all[k] = Legend{line.Name, line.Tone, Format(line.value(len(line.Values)-1), p.Unit)}
	}
	return all
}

// rows returns the table, the oldest row first.
func (p Plot) rows() []Row {
	var rows []Row
	if p.Step <= 0 {
		return nil
	}
	step, n := p.RowStep(), p.steps()
	for first := 0; first < n; {
		at := p.Start.Add(time.Duration(first) * p.Step).UTC()
		begin := at.Truncate(step)
		last := first
		for last+1 < n && p.Start.Add(time.Duration(last+1)*p.Step).Before(begin.Add(step)) {
			last++
		}
		row := Row{Key: begin.Format(time.RFC3339), Label: clock(at, step), first: first, last: last}
		for _, line := range p.Lines {
			row.Values = append(row.Values, Format(p.aggregate(line, first, last), p.Unit))
		}
		rows = append(rows, row)
		first = last + 1
	}
	return rows
}

// aggregate returns the mean or the peak of steps first to last, NaN when none has a value.
func (p Plot) aggregate(line Line, first, last int) float64 {
	mean, peak, n := 0.0, 0.0, 0.0
	for i := first; i <= last; i++ {
		v := line.value(i)
		if math.IsNaN(v) {
			continue
		}
		n++
		mean += (v - mean) / n
		peak = max(peak, v)
	}
	switch {
	case n == 0:
		return math.NaN()
	case p.Peak:
		return peak
	}
	return mean
}
