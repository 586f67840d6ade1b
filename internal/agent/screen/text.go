// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/printable"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// ANSI colours.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

// hostHeaderRewrite helps upstreams that accept their own Host only.
const hostHeaderRewrite = "--host-header rewrite"

// text renders events as lines for people.
type text struct {
	color    bool
	multiple bool // there are several endpoints: lines name theirs
	calls    bool // endpoints are called, and not served: none has a line of its own after Connected
}

func (t *text) line(s timedEvent) []byte {
	stamp := s.time.Format(time.TimeOnly) + "  "
	if s.dropped > 0 {
		return fmt.Appendf(nil, "%s%d lines were left out: this terminal is slower than the traffic\n", stamp,
			s.dropped)
	}
	switch e := s.event.(type) {
	case agent.Starting:
		t.multiple = len(e.Endpoints) > 1
		return fmt.Appendf(nil, "fairlead %s\n", e.Version)
	case agent.Inspecting:
		return []byte("Inspector   " + Escape(e.URL) + "\n")
	case agent.Listening:
		t.calls = true
		return []byte("Listening   " + Escape(e.Address) + " -> " + Escape(e.URL) + "\n")
	case agent.Connected:
		carrier := ""
		if e.Carrier.Name == tunnel.CarrierWebSocket {
			carrier = stamp + "connected by WebSockets, which cost more: " + e.Carrier.Reason + "\n"
		}
		if !t.multiple && !t.calls {
			return []byte(carrier) // the endpoint's own line comes next, and names the session
		}
		return []byte(stamp + t.paint(green, "connected") + " to " + Escape(e.Server) + ", session " +
			Escape(e.SessionID) + "\n" + carrier)
	case agent.Online:
		return t.online(stamp, e)
	case agent.Request:
		return fmt.Appendf(nil, "%s%-7s %-32s %s  %s%s\n", stamp, Escape(e.Method), Escape(readablePath(e.Path)),
			t.status(e.Status), roundDuration(e.Duration), t.suffix(e.EndpointInfo))
	case agent.Connection:
		return []byte(stamp + t.connection(e) + t.suffix(e.EndpointInfo) + "\n")
	}
	return []byte(stamp + t.sentence(s.event) + "\n")
}

func (t *text) online(stamp string, e agent.Online) []byte {
	name := Escape(e.DisplayName()) + " (" + Escape(e.EndpointID) + ")"
	switch {
	case e.Reconnected:
		return []byte(stamp + t.paint(green, "online again") + ": " + name + ", session " + Escape(e.SessionID) +
			optional(", sealed by the key ", e.SealKey, "") + "\n")
	case t.multiple:
		return []byte(stamp + t.paint(green, "online") + ": " + name + ", forwarding to " + Escape(e.Upstream) +
			optional(", also at ", e.AlsoAt(), "") + optional(", sealed by the key ", e.SealKey, "") + "\n")
	}
	return []byte(t.banner(e))
}

// suffix returns the end of a line that names one of several endpoints.
func (t *text) suffix(e agent.EndpointInfo) string {
	if !t.multiple {
		return ""
	}
	return "  " + Escape(e.DisplayName())
}

func (t *text) banner(e agent.Online) string {
	title := "Endpoint    "
	if e.Labels != "" {
		title = "Tunnel      "
	}
	name := ""
	if e.Name != "" {
		name = "Name        " + Escape(e.Name) + "\n"
	}
	return title + Escape(e.DisplayName()) + " (" + Escape(e.EndpointID) + ")\n" + name +
		optional("Also at     ", e.AlsoAt(), ", where the service listens\n") +
		optional("Sealed      by the key ", e.SealKey, "\n") +
		"Forwarding  to " + Escape(e.Upstream) + "\n" +
		"Session     " + Escape(e.SessionID) + " with " + Escape(e.Server) + ": " + t.paint(green, "online") + "\n"
}

// optional returns a property of an endpoint between two texts; "" without one.
func optional(before, value, after string) string {
	if value == "" {
		return ""
	}
	return before + Escape(value) + after
}

func (t *text) sentence(event agent.Event) string {
	switch e := event.(type) {
	case agent.Retrying:
		if !e.WasOnline {
			return t.paint(yellow, "cannot connect") + " to " + Escape(e.Server) + ": " + Escape(e.Cause) +
				"; trying again until it works"
		}
		in := ""
		if e.RetryIn > 0 {
			in = " in " + seconds(e.RetryIn)
		}
		return t.paint(yellow, "reconnecting") + in + ": " + Escape(e.Cause)
	case agent.CallFailed:
		return t.paint(yellow, "call failed") + ": " + Escape(e.Cause)
	case agent.Replicas:
		return t.replicas(e)
	case agent.BindRefused:
		cause := Escape(e.Cause)
		if name := Escape(e.DisplayName()); !strings.Contains(cause, name) {
			cause = name + ": " + cause
		}
		return t.paint(yellow, "refused") + ": " + cause + "; the others go on, and this one is tried again"
	case agent.Unreachable:
		line := t.paint(yellow, "may be out of reach") + ": " + Escape(e.URL) + ": " + Escape(e.Cause)
		if e.Command != "" {
			line += "; try: " + Escape(e.Command)
		}
		return line
	case agent.Draining:
		return t.paint(yellow, "draining") + ": " + Escape(e.Server) + " is about to stop; connecting anew"
	case agent.UpstreamDown:
		fate := "callers' connections are closed"
		if e.HTTP {
			fate = "callers get a 502"
		}
		return t.paint(yellow, "upstream unreachable") + ": " + Escape(e.Upstream) + ": " + Escape(e.Cause) + "; " +
			fate +
			" until it answers"
	case agent.HostRefused:
		return t.paint(yellow, "host refused") + ": " + Escape(e.Upstream) + " does not accept the Host of " +
			Escape(e.DisplayName()) + "; start the agent with " + hostHeaderRewrite
	case agent.SealProblem:
		if e.Cause == "" {
			return t.paint(green, "seal") + ": " + Escape(e.URL) + ": all is well again"
		}
		return t.paint(yellow, "seal") + ": " + Escape(e.URL) + ": " + Escape(e.Cause)
	case agent.UpstreamUp:
		return t.paint(green, "upstream reachable") + ": " + Escape(e.Upstream)
	case agent.Stopping:
		return fmt.Sprintf("stopping: %s may finish within %s; Ctrl-C again ends at once",
			printable.Count(e.Connections, "connection", "connections"), seconds(e.Timeout))
	case agent.Stopped:
		if !e.ServerTold {
			return t.paint(yellow, "stopped") + ", but the server could not be told: it keeps " + t.theEndpoints() +
				", offline, for the grace period"
		}
		return "stopped"
	}
	return fmt.Sprintf("%T", event)
}

// replicas renders how many replicas of the service the session is connected to, and what changed.
func (t *text) replicas(e agent.Replicas) string {
	line := t.paint(replicasColor(e), "connected") + " to " + replicaCount(e)
	if e.Initial() {
		return line
	}
	for _, id := range e.Lost {
		line += "; lost " + Escape(id)
	}
	for _, id := range e.Draining {
		line += "; " + Escape(id) + " is about to stop"
	}
	for _, id := range e.Found {
		line += "; found " + Escape(id)
	}
	return line
}

func replicaCount(e agent.Replicas) string {
	return strconv.Itoa(e.Connected) + " of " + printable.Count(e.Wanted, "replica", "replicas")
}

func replicasColor(e agent.Replicas) string {
	if e.Connected < e.Wanted {
		return yellow
	}
	return green
}

func (t *text) theEndpoints() string {
	if t.multiple {
		return "the endpoints"
	}
	return "the endpoint"
}

func (t *text) connection(c agent.Connection) string {
	client := Escape(c.Client)
	switch {
	case c.Pod != "":
		client = Escape(c.Pod) + " (" + client + ")"
	case client == "":
		client = "unknown client"
	}
	switch {
	case c.Caller != "":
		client += " of " + Escape(c.Caller)
	case c.SealKey != "":
		client += ", caller not proven"
	}
	if !c.Ended {
		return "open    " + client
	}
	line := fmt.Sprintf("closed  %s  %s in, %s out  %s", client, size(c.BytesIn), size(c.BytesOut),
		roundDuration(c.Duration))
	if c.Cause != "" {
		line += "  " + t.paint(yellow, Escape(c.Cause))
	}
	return line
}

func (t *text) status(code int) string {
	color := map[int]string{2: green, 3: cyan, 4: yellow, 5: red}[code/100]
	return t.paint(color, strconv.Itoa(code))
}

func (t *text) paint(color, s string) string {
	if !t.color || color == "" {
		return s
	}
	return "\x1b[" + color + "m" + s + "\x1b[0m"
}

// readablePath decodes percent-encoded letters beyond ASCII. Characters with a meaning in a path
// (%2F, %25) and unprintable ones stay encoded.
func readablePath(path string) string {
	var b strings.Builder
	for i := 0; i < len(path); {
		if r, n := encodedRune(path[i:]); n > 0 {
			b.WriteRune(r)
			i += n
			continue
		}
		b.WriteByte(path[i])
		i++
	}
	return b.String()
}

// encodedRune reads a percent-encoded printable rune beyond ASCII, of n bytes in s; n is 0 where s
// begins with none.
func encodedRune(s string) (r rune, n int) {
	var encoded []byte
	for len(encoded) < utf8.UTFMax && len(s) >= n+3 && s[n] == '%' {
		v, err := strconv.ParseUint(s[n+1:n+3], 16, 8)
		if err != nil || v < utf8.RuneSelf {
			break
		}
		encoded, n = append(encoded, byte(v)), n+3
	}
	r, size := utf8.DecodeRune(encoded)
	if size < 2 || !unicode.IsPrint(r) {
		return 0, 0
	}
	return r, 3 * size
}

const maxText = 300 // characters of a text from the network

// Escape escapes unprintable characters in a text from the network and truncates it, for a
// terminal.
func Escape(s string) string { return printable.Escape(s, maxText) }

func roundDuration(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s" }

func size(n int64) string {
	const unit = 1000
	if n < unit {
		return strconv.FormatInt(n, 10) + " B"
	}
	value, i := float64(n)/unit, 0
	for value >= unit && i < 3 {
		value, i = value/unit, i+1
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + []string{"kB", "MB", "GB", "TB"}[i]
}
