// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"math"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/dashboard/chart"
	"github.com/fairlead-dev/fairlead/internal/service/traffic"
)

// figure is a chart with its title.
type figure struct {
	ID, Title string
	chart.Plot
}

// Aggregate returns what a value of the table is.
func (f figure) Aggregate() string {
	if f.Peak {
		return "the highest"
	}
	return "the mean"
}

// RowText returns how long a row of the table is, in words.
func (f figure) RowText() string {
	if step := f.RowStep(); step < time.Hour {
		return count(int(step/time.Minute), "minute", "minutes")
	}
	return count(int(f.RowStep()/time.Hour), "hour", "hours")
}

// figures returns the charts of a series. Steps before since have no data.
func figures(series traffic.Series, since time.Time, scheme string) []figure {
	draw := figureMaker{series, since}
	all := []figure{draw.rates(scheme)}
	if scheme != "tcp" {
		all = append(all, draw.answers())
	}
	return append(all, draw.durations(scheme), draw.bytes(), draw.open(scheme))
}

type figureMaker struct {
	series traffic.Series
	since  time.Time
}

func (m figureMaker) figure(id, title string, unit chart.Unit, lines ...chart.Line) figure {
	return figure{id, title, chart.Plot{Start: m.series.Start, Step: m.series.Step, Unit: unit, Lines: lines}}
}

// perSecond returns the line of a count.
func (m figureMaker) perSecond(name string, tone chart.Tone, n func(*traffic.Point) uint64) chart.Line {
	return chart.Line{Name: name, Tone: tone, Values: pointValues(m.series, m.since, func(p *traffic.Point) float64 {
		return float64(n(p)) / m.series.Step.Seconds()
	})}
}

func (m figureMaker) rates(scheme string) figure {
	requests := m.perSecond("Requests", chart.Accent, func(p *traffic.Point) uint64 { return p.Requests })
	connections := m.perSecond("Connections", chart.Good, func(p *traffic.Point) uint64 { return p.Connections })
	failed := m.perSecond("Failed", chart.Bad, func(p *traffic.Point) uint64 { return p.Failed })
	switch scheme {
	case "tcp":
		connections.Tone = chart.Accent
		return m.figure("rate", "Connections a second", chart.PerSecond, connections, failed)
	case "":
		return m.figure("rate", "Requests and connections a second", chart.PerSecond, requests, connections, failed)
	}
	return m.figure("rate", "Requests a second", chart.PerSecond, requests, failed)
}

func (m figureMaker) answers() figure {
	class := func(name string, tone chart.Tone, classes ...int) chart.Line {
		return m.perSecond(name, tone, func(p *traffic.Point) (n uint64) {
			for _, i := range classes {
				n += p.Status[i]
			}
			return n
		})
	}
	f := m.figure("answers", "Answers by status", chart.PerSecond, class("1xx, 2xx", chart.Accent, 1, 2),
		class("3xx", chart.Good, 3), class("4xx", chart.Warn, 4), class("5xx", chart.Bad, 5),
		class("Left before the answer", chart.Faint, 0))
	f.Stacked = true
	return f
}

func (m figureMaker) durations(scheme string) figure {
	quantile := func(name string, tone chart.Tone, of func(*traffic.Point) time.Duration) chart.Line {
		seconds := func(p *traffic.Point) float64 {
			if d := of(p); d > 0 {
				return d.Seconds()
			}
			return math.NaN()
		}
		return chart.Line{Name: name, Tone: tone, Values: pointValues(m.series, m.since, seconds)}
	}
	title := "Latency"
	switch scheme {
	case "tcp":
		title = "Duration of connections"
	case "":
		title = "Latency, and duration of connections"
	}
	f := m.figure("latency", title, chart.Seconds,
		quantile("p50", chart.Accent, func(p *traffic.Point) time.Duration { return p.P50 }),
		quantile("p95", chart.Warn, func(p *traffic.Point) time.Duration { return p.P95 }),
		quantile("p99", chart.Bad, func(p *traffic.Point) time.Duration { return p.P99 }))
	f.Peak = true
	return f
}

func (m figureMaker) bytes() figure {
	return m.figure("bytes", "Bytes a second", chart.BytesPerSecond,
		m.perSecond("From clients", chart.Good, func(p *traffic.Point) uint64 { return p.BytesIn }),
		m.perSecond("To clients", chart.Accent, func(p *traffic.Point) uint64 { return p.BytesOut }))
}

func (m figureMaker) open(scheme string) figure {
	name := "Open requests and connections"
	if scheme == "tcp" {
		name = "Open connections"
	}
	f := m.figure("open", name, chart.Count, chart.Line{Name: "Open", Tone: chart.Accent,
		Values: pointValues(m.series, m.since, func(p *traffic.Point) float64 { return float64(p.Open) })})
	f.Peak = true
	return f
}

// rateText is a rate as pages show it.
type rateText struct{ traffic.Rate }

// Text returns the rate in requests and connections.
func (r rateText) Text() string { return chart.Format(r.PerSecond, chart.PerSecond) }

// FailingText returns the rate of those that failed, "" without any.
func (r rateText) FailingText() string {
	if r.FailingPerSecond == 0 {
		return ""
	}
	return chart.Format(r.FailingPerSecond, chart.PerSecond)
}

// passed returns the text of how much passed in the last minute; failed adds how much of it failed.
func (r rateText) passed() string { return "in the last minute " + r.Text() + " passed" }

func (r rateText) failed() string { return r.passed() + ", and " + r.FailingText() + " failed" }

// durationText returns a duration with three digits.
func durationText(d time.Duration) string { return chart.Format(d.Seconds(), chart.Seconds) }

// bytesText returns a number of bytes with three digits.
func bytesText(n uint64) string {
	return strings.TrimSuffix(chart.Format(float64(n), chart.BytesPerSecond), "/s")
}
