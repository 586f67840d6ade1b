// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

var update = flag.Bool("update", false, "write the golden files")

var start = time.Date(2026, 11, 20, 8, 41, 0, 0, time.UTC)

// nothing is a step without data.
var nothing = math.NaN()

// repeated returns n values that f makes of their index.
func repeated(n int, f func(i int) float64) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = f(i)
	}
	return values
}

// plots are the drawings that golden files hold.
func plots() map[string]Plot {
	wave := func(i int) float64 { return 20 + 10*math.Sin(float64(i)/20) }
	return map[string]Plot{
		"empty":    {Start: start, Step: 10 * time.Second, Lines: []Line{{"Requests", Accent, nil}}},
		"no-lines": {Start: start, Step: 10 * time.Second},
		"one-point": {Start: start, Step: 10 * time.Second, Unit: Count,
			Lines: []Line{{"Open", Accent, []float64{3}}}},
		"zeros": {Start: start, Step: 10 * time.Second,
			Lines: []Line{{"Requests", Accent, repeated(360, func(int) float64 { return 0 })}}},
		"gaps": {Start: start, Step: time.Minute, Unit: Seconds, Peak: true, Lines: []Line{
			{"p50", Accent, []float64{nothing, 0.010, 0.012, nothing, 0.011, nothing, nothing, 0.009, 0.009, 0.009}},
			{"p99", Bad, []float64{nothing, 0.080, 0.430, nothing, 0.090, nothing, nothing, 0.070, 0.070, 0.110}}}},
		"huge": {Start: start, Step: 24 * time.Hour, Unit: BytesPerSecond, Lines: []Line{
			{"In", Accent, []float64{math.MaxUint64, math.MaxFloat64, math.Inf(1), -5, 0}},
			{"Out", Good, []float64{1, 1e300, math.Inf(-1), 7, math.MaxInt64}}}},
		"hour": {Start: start, Step: 10 * time.Second, Lines: []Line{{"Requests", Accent, repeated(360, wave)}}},
		"stacked": {Start: start, Step: time.Minute, Stacked: true, Lines: []Line{
			{"2xx", Accent, []float64{1, 2, nothing, 4, 5}}, {"4xx", Warn, []float64{1, 0, nothing, nothing, 1}},
			{`5xx "<&>`, Bad, []float64{0, 0, nothing, 2, 0.5}}}},
	}
}

func TestPlot_SVGIsGolden(t *testing.T) {
	t.Parallel()
	for name, plot := range plots() {
		file, got := filepath.Join("testdata", name+".svg"), string(plot.SVG())+"\n"
		if *update {
			must.Succeed(t, os.WriteFile(file, []byte(got), 0o644))
			continue
		}
		want, err := os.ReadFile(file)
		must.Succeed(t, err)
		if got != string(want) {
			t.Errorf("%s: got\n%s\nwant (-update writes it)\n%s", name, got, want)
		}
	}
}

// TestPlot_LinesOfZerosAreNotDrawn requires that a line of zeros is not drawn upon the line below
// it or upon the axis, and that one with a value for a step is drawn around it.
func TestPlot_LinesOfZerosAreNotDrawn(t *testing.T) {
	t.Parallel()
	zeros := repeated(5, func(int) float64 { return 0 })
	p := Plot{Start: start, Step: time.Minute, Stacked: true, Lines: []Line{{"2xx", Accent, []float64{4, 4, 4, 4, 4}},
		{"3xx", Good, zeros}, {"4xx", Warn, []float64{0, 0, 0, 0, 4}}, {"5xx", Bad, zeros}}}
	for _, want := range []string{`"line accent" d="M288 500h2304"`, `"line good" d=""`,
		`"line warn" d="M2016 500l576-500"`, `"line bad" d=""`} {
		if svg := string(p.SVG()); !strings.Contains(svg, want) {
			t.Errorf("the drawing lacks %s", want)
		}
	}
	p.Stacked = false
	if svg := string(p.SVG()); !strings.Contains(svg, `"line bad" d=""`) || !strings.Contains(svg,
		`"line warn" d="M2016 1000l576-1000"`) {
		t.Error("a line of zeros is drawn on the axis, or the one with a value is not drawn")
	}
	for i := range p.Lines {
		p.Lines[i].Values = zeros
	}
	if svg := string(p.SVG()); !strings.Contains(svg, `"line accent" d="M288 1000h2304"`) {
		t.Error("known zeros have no line")
	}
}

func TestPlot_RowsFollowTheClock(t *testing.T) {
	t.Parallel()
	p := Plot{Start: time.Date(2026, 11, 20, 23, 41, 20, 0, time.UTC), Step: 10 * time.Second, Lines: []Line{
		{"a", Accent, repeated(360, func(i int) float64 { return float64(i) })}}}
	rows := p.Rows()
	if first, last := rows[len(rows)-1], rows[0]; len(rows) != 13 || first.Label != "23:41" || last.Label != "00:40" ||
		rows[len(rows)-2].Label != "23:45" || rows[8].Label != "21 Nov" {
		t.Errorf("the rows are %+v", rows)
	}
	if got := rows[len(rows)-1].Values[0]; got != "10.5/s" { // 22 steps: 0 to 21
		t.Errorf("the mean of the first row is %s", got)
	}
	p.Peak = true
	if got := p.Rows()[12].Values[0]; got != "21/s" {
		t.Errorf("the peak of the first row is %s", got)
	}
}

func TestFormat_KeepsThreeDigits(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		v float64
		u Unit
	}{
		"0/s": {0, PerSecond}, "<0.001/s": {1e-9, PerSecond}, "0.017/s": {1.0 / 60, PerSecond},
		"0.1/s": {0.1, PerSecond},
		"999/s": {999.4, PerSecond}, "1k/s": {999.6, PerSecond}, "12.3k/s": {12345, PerSecond},
		"1 kB/s": {1000, BytesPerSecond}, "10 B/s": {10, BytesPerSecond}, "18.4 EB/s": {math.MaxUint64, BytesPerSecond},
		"0.4 ms": {0.0004, Seconds}, "1 s": {0.9996, Seconds}, "12 ms": {0.012, Seconds}, "1 min": {59.98, Seconds},
		"1.5 min": {90, Seconds}, "1 h": {3599, Seconds}, "2.56M h": {math.MaxInt64 / 1e9, Seconds}, "0": {-4, Count},
		"7": {7, Count}, "1.0e+282E": {math.Inf(1), Count}, "–": {math.NaN(), Seconds},
	} {
		if got := Format(c.v, c.u); got != want {
			t.Errorf("Format(%g, %d) = %q, want %q", c.v, c.u, got, want)
		}
	}
}

func TestValueTicks_AreRound(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		highest float64
		u       Unit
	}{
		"[0/s 0.05/s 0.1/s]": {0, PerSecond}, "[0/s 5/s 10/s 15/s]": {14.2, PerSecond}, "[0 1]": {0, Count},
		"[0 1 2 3]": {3, Count}, "[0 0.5 ms 1 ms]": {0, Seconds}, "[0 2 min 4 min 6 min]": {301, Seconds},
		"[0 B/s 500 kB/s 1 MB/s 1.5 MB/s 2 MB/s]": {1.9e6, BytesPerSecond}, "[0 1 h 2 h 3 h]": {3 * 3600, Seconds},
	} {
		var got []string
		for _, v := range valueTicks(c.highest, c.u) {
			got = append(got, Format(v, c.u))
		}
		if fmt.Sprint(got) != want {
			t.Errorf("up to %g: %v, want %s", c.highest, got, want)
		}
	}
}
