// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"math"
	"slices"
	"strconv"
)

// point is a point of the stretched part of a drawing.
type point struct{ x, y int }

// pointAt returns where the value of step i of n is drawn: in the middle of the step.
func pointAt(i, n int, v, highest float64) point {
	y := plotHeight - int(math.Round(v/highest*plotHeight))
	return point{(2*i + 1) * plotWidth / (2 * n), min(max(y, 0), plotHeight)}
}

// runs calls f with the bounds of each run of steps that have a value.
func runs(values []float64, f func(from, to int)) {
	for from := 0; from < len(values); from++ {
		if math.IsNaN(values[from]) {
			continue
		}
		to := from
		for to < len(values) && !math.IsNaN(values[to]) {
			to++
		}
		f(from, to)
		from = to
	}
}

// linePath returns the path through the values, with gaps where there are none. A value between two
// gaps is a line of length 0, which a round cap makes a dot.
func linePath(values []float64, highest float64) string {
	var path []byte
	runs(values, func(from, to int) {
		path = appendPolyline(path, points(values, from, to, highest))
		if to-from == 1 {
			path = append(path, "h0"...)
		}
	})
	return string(path)
}

// areaPath returns the outline of the area from the values down to those below, or to 0 without
// any.
func areaPath(values, below []float64, highest float64) string {
	var path []byte
	runs(values, func(from, to int) {
		outline := points(values, from, to, highest)
		if below == nil {
			outline = append(outline, point{outline[len(outline)-1].x, plotHeight}, point{outline[0].x, plotHeight})
		} else {
			back := points(below, from, to, highest)
			slices.Reverse(back)
			outline = append(outline, back...)
		}
		path = append(appendPolyline(path, outline), 'z')
	})
	return string(path)
}

func points(values []float64, from, to int, highest float64) []point {
	list := make([]point, 0, to-from)
	for i := from; i < to; i++ {
		list = append(list, pointAt(i, len(values), values[i], highest))
	}
	return list
}

// appendPolyline appends a path through the points, with relative commands. Points on one level
// are one command.
func appendPolyline(path []byte, list []point) []byte {
	path = appendPair(append(path, 'M'), list[0].x, list[0].y)
	last, level := list[0], 0
	flush := func() {
		if level != 0 {
			path = strconv.AppendInt(append(path, 'h'), int64(level), 10)
			level = 0
		}
	}
	for _, p := range list[1:] {
		dx, dy := p.x-last.x, p.y-last.y
		last = p
		if dy == 0 {
			if level*dx < 0 { // back again
				flush()
			}
			level += dx
			continue
		}
		flush()
		path = appendPair(append(path, 'l'), dx, dy)
	}
	flush()
	return path
}

// appendPair appends two numbers; a minus sign separates them as well as a space does.
func appendPair(path []byte, x, y int) []byte {
	path = strconv.AppendInt(path, int64(x), 10)
	if y >= 0 {
		path = append(path, ' ')
	}
	return strconv.AppendInt(path, int64(y), 10)
}
