// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Unit is what the values of a plot are.
type Unit int

// The units that there are.
const (
	PerSecond      Unit = iota // events per second
	BytesPerSecond             // bytes per second
	Seconds                    // durations
	Count                      // a number of things at one time
)

// maxValue is the highest value that is drawn: sums and scales of it stay finite.
const maxValue = 1e300

// lowestTop returns the highest tick of a plot whose values are all smaller.
func (u Unit) lowestTop() float64 {
	return [...]float64{PerSecond: 0.1, BytesPerSecond: 10, Seconds: 0.001, Count: 1}[u]
}

// timeSteps are the round steps of durations and of the time axis.
var timeSteps = []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
	5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour,
	3 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour}

// valueTicks returns the values of the axis, from 0 to the first one that is not below highest: at
// most yTicks and that of 0.
func valueTicks(highest float64, u Unit) []float64 {
	highest = min(max(highest, u.lowestTop()), maxValue)
	step := roundStep(highest/yTicks, u)
	ticks := []float64{0}
	for i := 1; ticks[len(ticks)-1] < highest*(1-1e-9); i++ {
		ticks = append(ticks, float64(i)*step)
	}
	return ticks
}

// roundStep returns the first round step that is not below least.
func roundStep(least float64, u Unit) float64 {
	if u == Count {
		least = max(least, 1)
	}
	scale := 1.0
	if u == Seconds && least > 5 {
		for _, step := range timeSteps {
			if step.Seconds() >= least {
				return step.Seconds()
			}
		}
		scale = 3600 // more than a day: 1, 2 or 5 times a power of ten of hours
	}
	power := math.Pow10(int(math.Floor(math.Log10(least / scale))))
	for _, times := range []float64{1, 2, 5} {
		if step := times * power * scale; step >= least*(1-1e-9) {
			return step
		}
	}
	return 10 * power * scale
}

// Format returns the value with three digits and its unit, "–" for NaN.
func Format(v float64, u Unit) string {
	if math.IsNaN(v) {
		return "–"
	}
	v = min(max(v, 0), maxValue)
	switch u {
	case PerSecond:
		return prefixed(v, "") + "/s"
	case BytesPerSecond:
		return prefixed(v, " ") + "B/s"
	case Seconds:
		return duration(v)
	}
	return prefixed(v, "")
}

// duration returns a number of seconds in the unit that fits it.
func duration(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.9995:
		return digits(v*1000) + " ms"
	case v < 59.97:
		return digits(v) + " s"
	case v < 3598.2:
		return digits(v/60) + " min"
	}
	return prefixed(v/3600, "") + " h"
}

// prefixed returns the value with three digits and the prefix of its power of 1,000.
func prefixed(v float64, space string) string {
	prefixes := []string{"", "k", "M", "G", "T", "P", "E"}
	i := 0
	for ; v >= 999.5 && i < len(prefixes)-1; i++ {
		v /= 1000
	}
	if v >= 999.5 {
		return strconv.FormatFloat(v, 'e', 1, 64) + space + prefixes[i]
	}
	return digits(v) + space + prefixes[i]
}

// digits returns a value below 999.5 with three digits, and none after the third place: "0.001" is
// the smallest but 0.
func digits(v float64) string {
	places := 3
	for _, limit := range []float64{0.9995, 9.995, 99.95} {
		if v >= limit {
			places--
		}
	}
	text := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "0" && v > 0 {
		return "<0.001"
	}
	return text
}

// stepFor returns a round step by which a span has at most so many ticks.
func stepFor(span time.Duration, most int) time.Duration {
	for _, step := range timeSteps {
		if int64(span/step)+1 <= int64(most) {
			return step
		}
	}
	step := timeSteps[len(timeSteps)-1]
	for int64(span/step)+1 > int64(most) {
		step *= 2
	}
	return step
}

// timeTicks returns at most so many round times in UTC from start to end, and their step.
func timeTicks(start, end time.Time, most int) (ticks []time.Time, step time.Duration) {
	step = stepFor(end.Sub(start), most)
	at := start.UTC().Truncate(step)
	if at.Before(start) {
		at = at.Add(step)
	}
	for ; !at.After(end) && len(ticks) < most; at = at.Add(step) {
		ticks = append(ticks, at)
	}
	return ticks, step
}

// clock returns the time of day in UTC, the date at midnight; with seconds for steps that have
// some.
func clock(at time.Time, step time.Duration) string {
	at = at.UTC()
	switch {
	case step%time.Minute != 0:
		return at.Format(time.TimeOnly)
	case at.Truncate(24 * time.Hour).Equal(at):
		return at.Format("2 Jan")
	}
	return at.Format("15:04")
}
