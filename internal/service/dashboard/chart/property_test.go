// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// randomValue returns a value of every magnitude, and those that are none.
func randomValue(r *rand.Rand) float64 {
	switch r.IntN(12) {
	case 0, 1:
		return math.NaN()
	case 2:
		return 0
	case 3:
		return []float64{math.Inf(1), math.Inf(-1), math.MaxFloat64, -1, math.SmallestNonzeroFloat64}[r.IntN(5)]
	}
	return math.Pow(10, float64(r.IntN(24)-6)) * r.Float64()
}

func randomPlot(r *rand.Rand) Plot {
	steps := []time.Duration{time.Nanosecond, time.Second, 10 * time.Second, time.Minute, 24 * time.Hour}
	p := Plot{Start: start.Add(time.Duration(r.Int64N(int64(48 * time.Hour)))), Step: steps[r.IntN(len(steps))],
		Unit: Unit(r.IntN(4)), Stacked: r.IntN(2) == 0, Peak: r.IntN(2) == 0}
	n := []int{0, 1, 2, 17, 360, 1440, 5000}[r.IntN(7)]
	for range r.IntN(6) {
		n := max(0, n-r.IntN(2)) // lines of different lengths, too
		p.Lines = append(p.Lines, Line{"<line> & \"co\"", Warn, repeated(n, func(int) float64 {
			return randomValue(r)
		})})
	}
	return p
}

func TestPlot_AnyValuesAreDrawnInside(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := randomPlot(r)
		svg := string(p.SVG())
		if svg != string(p.SVG()) {
			t.Fatalf("seed %d: two drawings of the same values differ", seed)
		}
		checkXML(t, seed, svg)
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") || strings.Contains(svg, "<line>") {
			t.Errorf("seed %d: %s", seed, svg)
		}
		for _, d := range regexp.MustCompile(` d="([^"]*)"`).FindAllStringSubmatch(svg, -1) {
			checkPath(t, seed, d[1])
		}
	}
}

func checkXML(t *testing.T, seed uint64, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

var (
	command = regexp.MustCompile(`[Mlhz][^Mlhz]*`)
	number  = regexp.MustCompile(`-?\d+`)
)

// checkPath follows a path and requires that it stays inside the plot, and that a line moves
// forward.
func checkPath(t *testing.T, seed uint64, d string) {
	t.Helper()
	x, y, area := 0, 0, strings.Contains(d, "z")
	if strings.Join(command.FindAllString(d, -1), "") != d {
		t.Fatalf("seed %d: the path has an unknown command: %.80s", seed, d)
	}
	for _, c := range command.FindAllString(d, -1) {
		var n []int
		for _, text := range number.FindAllString(c, -1) {
			v, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			n = append(n, v)
		}
		before := x
		switch {
		case c[0] == 'M' && len(n) == 2:
			x, y = n[0], n[1]
		case c[0] == 'l' && len(n) == 2:
			x, y = x+n[0], y+n[1]
		case c[0] == 'h' && len(n) == 1:
			x += n[0]
		case c != "z":
			t.Fatalf("seed %d: %q", seed, c)
		}
		if x < 0 || x > plotWidth || y < 0 || y > plotHeight || !area && x < before {
			t.Fatalf("seed %d: %s leads to %d, %d", seed, c, x, y)
		}
	}
}

func TestPlot_TableHasEveryStepOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		p := randomPlot(rand.New(rand.NewPCG(seed, 2)))
		next, keys := 0, map[string]bool{}
		for _, row := range p.rows() {
			if row.first != next || row.last < row.first || len(row.Values) != len(p.Lines) {
				t.Fatalf("seed %d: a row has steps %d to %d and %d values, after step %d", seed, row.first, row.last,
					len(row.Values), next)
			}
			next, keys[row.Key] = row.last+1, true
		}
		if n := len(p.rows()); next != p.steps() || n > maxRows+1 && p.Step < 24*time.Hour {
			t.Errorf("seed %d: %d rows end at step %d of %d", seed, n, next, p.steps())
		}
	}
}

func TestValueTicks_HoldTheHighest(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 3))
		highest, u := math.Abs(randomValue(r)), Unit(r.IntN(4))
		if math.IsNaN(highest) {
			continue
		}
		ticks := valueTicks(highest, u)
		texts := map[string]bool{}
		for i, v := range ticks {
			if i > 0 && v <= ticks[i-1] {
				t.Errorf("%g: the ticks %v do not rise", highest, ticks)
			}
			text := Format(v, u)
			if texts[text] || len(text) > 14 {
				t.Errorf("%g: the tick %q is long, or there twice", highest, text)
			}
			texts[text] = true
		}
		if n := len(ticks); n < 2 || n > yTicks+1 || ticks[n-1] < min(highest, maxValue)*(1-1e-6) {
			t.Errorf("%g: %v", highest, ticks)
		}
	}
}

func TestTimeTicks_AreFewAndInside(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 4))
		from := start.Add(time.Duration(r.Int64N(int64(400 * time.Hour))))
		span := time.Duration(r.Int64N(int64(math.Pow(10, float64(9+r.IntN(9))))))
		ticks, step := timeTicks(from, from.Add(span), xLabels)
		if len(ticks) > xLabels {
			t.Errorf("%s from %s: %d ticks", span, from, len(ticks))
		}
		if span > 2*time.Minute && len(ticks) < 2 {
			t.Errorf("%s from %s: only %d ticks", span, from, len(ticks))
		}
		for _, at := range ticks {
			if at.Before(from) || at.After(from.Add(span)) || !at.Truncate(step).Equal(at) {
				t.Errorf("%s from %s: a tick is at %s", span, from, at)
			}
		}
	}
}
