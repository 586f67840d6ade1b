// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	minOneLineColumns = 100 // columns from which on an endpoint has one line, not two
	minColumns        = 20
	minRecent         = 3 // lines that endpoints leave for recent events
)

// frame draws the model for a terminal of this size: at most rows lines of at most columns.
func (m *model) frame(columns, rows int, color bool, now time.Time) []string {
	columns = max(columns, minColumns)
	var lines []string
	add := func(spans ...span) { lines = append(lines, fit(spans, columns, color)) }
	m.header(add, columns, now)
	add()
	room := max(rows-len(lines)-minRecent-2, 1)
	m.endpoints(add, columns, room)
	if len(m.recent) > 0 && rows-len(lines) > 2 {
		add()
		add(span{"", "Recent"})
		for i := len(m.recent) - 1; i >= 0 && len(lines) < rows; i-- {
			add(m.recentLine(m.recent[i], columns)...)
		}
	}
	return lines[:min(len(lines), max(rows, 1))]
}

func (m *model) header(add func(...span), columns int, now time.Time) {
	const leave = "Ctrl-C to stop"
	title := "fairlead " + Escape(m.version)
	if columns >= printable.Width(title)+len(leave)+2 {
		title = printable.Pad(title, columns-len(leave)) + leave
	}
	add(span{"", title})
	add()
	session := []span{{"", "Session   "}, {m.color, m.state}}
	switch {
	case !m.retryAt.IsZero():
		if in := m.retryAt.Sub(now); in > 0 {
			session = append(session, span{"", " in " + seconds(in)})
		}
		session = append(session, span{"", ": " + Escape(m.cause)})
	case m.cause != "":
		session = append(session, span{"", ": " + Escape(m.cause)})
	default:
		session = append(session, span{"", " for " + age(now.Sub(m.since))})
		if m.replicas.Wanted > 0 {
			session = append(session, span{"", ", "},
				span{replicasColor(m.replicas), "connected to " + replicaCount(m.replicas)})
		}
		if m.id != "" {
			session = append(session, span{"", "  " + Escape(m.id)})
		}
	}
	add(session...)
	server := "Server    " + Escape(m.server)
	if m.serverVersion != "" {
		server += "  version " + Escape(m.serverVersion)
	}
	if m.carrier.Name == tunnel.CarrierWebSocket {
		server += "  by WebSockets (" + m.carrier.Reason + ")"
	}
	if m.latency > 0 {
		server += "  latency " + roundDuration(m.latency)
	}
	add(span{"", server})
	if m.account != "" {
		account := "Account   " + Escape(m.account)
		if m.region != "" {
			account += "  region " + Escape(m.region)
		}
		add(span{"", account})
	}
	if m.inspector != "" {
		add(span{"", "Inspector " + Escape(m.inspector)})
	}
}

// endpoints draws the endpoints that fit into room lines.
func (m *model) endpoints(add func(...span), columns, room int) {
	each := 2
	if columns >= minOneLineColumns {
		each = 1
	}
	shown := len(m.rows)
	if shown*each > room {
		shown = max((room-1)/each, 1)
	}
	nameWidth, upstreamWidth := 0, 0
	for _, r := range m.rows {
		nameWidth, upstreamWidth = max(nameWidth, printable.Width(r.title())),
			max(upstreamWidth, printable.Width(Escape(r.Upstream)))
	}
	nameWidth, upstreamWidth = min(nameWidth, columns*3/10), min(upstreamWidth, columns/4)
	for i := range m.rows[:shown] {
		r := &m.rows[i]
		if each == 1 {
			add(
				append(
					[]span{{"", printable.Pad(r.title(), nameWidth) + " -> " + printable.Pad(Escape(r.Upstream),
						upstreamWidth) +
						"  "}}, r.statistics()...)...)
			continue
		}
		add(span{"", r.title() + " -> " + Escape(r.Upstream)})
		add(append([]span{{"", "  "}}, r.statistics()...)...)
	}
	if len(m.rows) == 1 && m.rows[0].command != "" && room > each { // in a line that can be copied
		add(span{"", "  try: " + Escape(m.rows[0].command)})
	}
	if more := len(m.rows) - shown; more > 0 {
		text, waiting := fmt.Sprintf("… and %d more", more), 0
		for _, r := range m.rows[shown:] {
			if r.state != "online" {
				waiting++
			}
		}
		if waiting > 0 {
			text += fmt.Sprintf(", %d of them not online", waiting)
		}
		add(span{"", text})
	}
}

// title names the endpoint, with its --name where it has one.
func (r *row) title() string {
	if r.Name == "" {
		return Escape(r.DisplayName())
	}
	return Escape(r.DisplayName()) + " (" + Escape(r.Name) + ")"
}

func (r *row) statistics() []span {
	spans := []span{{r.color, printable.Pad(r.state, 8)}}
	if r.state == "refused" {
		return append(spans, span{"", Escape(r.cause)})
	}
	text := fmt.Sprintf("open %d  total %d", r.open, r.total)
	if p50, p90, ok := r.percentiles(); ok {
		text += "  p50 " + roundDuration(p50) + "  p90 " + roundDuration(p90)
	}
	spans = append(spans, span{"", text + optional("  also at ", r.alsoAt, "")})
	if r.sealProblem != "" {
		spans = append(spans, span{yellow, "  seal: " + Escape(r.sealProblem)})
	}
	spans = append(spans, span{"", optional("  sealed by ", r.SealKey, "")})
	if r.upstreamDown {
		spans = append(spans, span{red, "  upstream unreachable: " + Escape(r.cause)})
	}
	return spans
}

// recentLine draws one recent event.
func (m *model) recentLine(s timedEvent, columns int) []span {
	stamp := span{"", s.time.Format(time.TimeOnly) + "  "}
	plain := &text{multiple: len(m.rows) > 1}
	switch e := s.event.(type) {
	case agent.Request:
		which := plain.suffix(e.EndpointInfo)
		if columns < minOneLineColumns {
			which = ""
		}
		took := roundDuration(e.Duration)
		if which != "" {
			took = printable.Pad(took, 8) + which
		}
		path := max(columns-len(stamp.text)-8-5-10-printable.Width(which), 10)
		color := map[int]string{2: green, 3: cyan, 4: yellow, 5: red}[e.Status/100]
		return []span{
			stamp, {"", printable.Pad(Escape(e.Method), 7) + " " + printable.Pad(Escape(readablePath(e.Path)), path) +
				" "},
			{color, printable.Pad(strconv.Itoa(e.Status), 3)}, {"", "  " + took},
		}
	case agent.Connection:
		return []span{stamp, {"", plain.connection(e) + plain.suffix(e.EndpointInfo)}}
	case agent.UpstreamUp:
		return []span{stamp, {green, plain.sentence(e)}}
	case agent.Replicas:
		return []span{stamp, {replicasColor(e), plain.sentence(e)}}
	}
	return []span{stamp, {yellow, plain.sentence(s.event)}}
}

// age formats a duration in its two largest units.
func age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// span is a piece of a line in one colour; "" is the terminal's own.
type span struct{ color, text string }

// fit joins spans to one line of at most most columns.
func fit(spans []span, most int, color bool) string {
	var b strings.Builder
	for _, s := range spans {
		piece := printable.Truncate(s.text, most)
		most -= printable.Width(piece)
		b.WriteString((&text{color: color}).paint(s.color, piece))
		if piece != s.text {
			break
		}
	}
	return b.String()
}
