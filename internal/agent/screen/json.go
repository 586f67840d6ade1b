// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// record is one line of JSON output. Fields without a meaning for an event are left out.
type record struct {
	Time          time.Time `json:"time"`
	Level         string    `json:"level"`
	Event         string    `json:"event"`
	Version       string    `json:"version,omitempty"`
	Server        string    `json:"server,omitempty"`
	ServerVersion string    `json:"server_version,omitempty"`
	Account       string    `json:"account_id,omitempty"`
	Region        string    `json:"region,omitempty"`
	URL           string    `json:"url,omitempty"`
	Listener      string    `json:"listener_url,omitempty"`
	SealKey       string    `json:"seal_key,omitempty"`
	Name          string    `json:"name,omitempty"`
	Labels        string    `json:"labels,omitempty"`
	Upstream      string    `json:"upstream,omitempty"`
	EndpointID    string    `json:"endpoint_id,omitempty"`
	SessionID     string    `json:"session_id,omitempty"`
	Again         *bool     `json:"again,omitempty"`
	Cause         string    `json:"cause,omitempty"`
	Command       string    `json:"command,omitempty"`
	RetryIn       *float64  `json:"retry_in_seconds,omitempty"`
	Method        string    `json:"method,omitempty"`
	Path          string    `json:"path,omitempty"`
	Status        int       `json:"status,omitempty"`
	Duration      *float64  `json:"duration_seconds,omitempty"`
	Client        string    `json:"client,omitempty"`
	Pod           string    `json:"pod,omitempty"`
	Caller        *string   `json:"caller,omitempty"` // Caller is "" for one that is not proven.
	BytesIn       *int64    `json:"bytes_in,omitempty"`
	BytesOut      *int64    `json:"bytes_out,omitempty"`
	Connections   int       `json:"connections,omitempty"`
	Replicas      *int      `json:"replicas,omitempty"`
	Wanted        int       `json:"replicas_wanted,omitempty"`
	Found         []string  `json:"replicas_found,omitempty"`
	Stopping      []string  `json:"replicas_draining,omitempty"`
	Lost          []string  `json:"replicas_lost,omitempty"`
	Told          *bool     `json:"server_told,omitempty"`
	Inspector     string    `json:"inspector,omitempty"`
	Carrier       string    `json:"carrier,omitempty"`
	Address       string    `json:"address,omitempty"`
	Dropped       int       `json:"dropped,omitempty"`
	Endpoints     []target  `json:"endpoints,omitempty"`
}

// target is one of several endpoints in the event "starting".
type target struct {
	URL      string `json:"url,omitempty"`
	Name     string `json:"name,omitempty"`
	Labels   string `json:"labels,omitempty"`
	Upstream string `json:"upstream,omitempty"`
}

// jsonLines are lines of JSON.
type jsonLines struct{}

func (jsonLines) line(s timedEvent) []byte {
	r := record{Event: "dropped", Dropped: s.dropped, Level: level(slog.LevelWarn)}
	if s.dropped == 0 {
		r = recordOf(s.event)
		r.Level = level(levelOf(s.event))
	}
	r.Time = s.time.UTC()
	out, err := json.Marshal(r)
	if err != nil { // not reachable: every field has a JSON form
		return fmt.Appendf(nil, "{\"event\":\"error\",\"cause\":%q}\n", err)
	}
	return append(escapeJSON(out), '\n')
}

// escapeJSON escapes valid JSON characters that affect a terminal (DEL, C1 controls, directional
// marks).
func escapeJSON(line []byte) []byte {
	if !bytes.ContainsFunc(line, needsEscape) {
		return line
	}
	var out []byte
	for _, r := range string(line) {
		switch {
		case !needsEscape(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

func needsEscape(r rune) bool { return !unicode.IsPrint(r) }

func recordOf(event agent.Event) record {
	switch e := event.(type) {
	case agent.Starting:
		return starting(e)
	case agent.Inspecting:
		return record{Event: "inspecting", Inspector: e.URL}
	case agent.Listening:
		return record{Event: "listening", URL: e.URL, Address: e.Address}
	case agent.CallFailed:
		return record{Event: "call_failed", URL: e.URL, Cause: e.Cause}
	case agent.Connected:
		r := record{Event: "connected", SessionID: e.SessionID, Server: e.Server, ServerVersion: e.ServerVersion,
			Account: e.AccountID, Region: e.Region}
		if e.Carrier.Name == tunnel.CarrierWebSocket {
			r.Carrier, r.Cause = e.Carrier.Name, e.Carrier.Reason
		}
		return r
	case agent.Replicas:
		return record{Event: "replicas", Replicas: &e.Connected, Wanted: e.Wanted, Found: e.Found,
			Stopping: e.Draining, Lost: e.Lost}
	case agent.BindRefused:
		return record{Event: "refused", URL: e.URL, Labels: e.Labels, Upstream: e.Upstream, Cause: e.Cause}
	case agent.Online:
		return record{Event: "online", Again: &e.Reconnected, EndpointID: e.EndpointID, URL: e.URL, Name: e.Name,
			Labels: e.Labels, Upstream: e.Upstream, Listener: e.ListenerURL, SealKey: e.SealKey,
			SessionID: e.SessionID, Server: e.Server, ServerVersion: e.ServerVersion}
	case agent.Unreachable:
		return record{Event: "unreachable", URL: e.URL, Cause: e.Cause, Command: e.Command}
	case agent.Retrying:
		r := record{Event: "connecting", Server: e.Server, Cause: e.Cause, RetryIn: secondsOf(e.RetryIn)}
		if e.WasOnline {
			r.Event = "reconnecting"
		}
		return r
	case agent.Draining:
		return record{Event: "draining", Server: e.Server}
	case agent.UpstreamDown:
		return record{Event: "upstream_down", URL: e.URL, Labels: e.Labels, Upstream: e.Upstream, Cause: e.Cause}
	case agent.UpstreamUp:
		return record{Event: "upstream_up", URL: e.URL, Labels: e.Labels, Upstream: e.Upstream}
	case agent.HostRefused:
		return record{Event: "host_refused", URL: e.URL, Upstream: e.Upstream, Command: hostHeaderRewrite}
	case agent.SealProblem:
		event := "seal_problem"
		if e.Cause == "" {
			event = "seal_ok"
		}
		return record{Event: event, URL: e.URL, SealKey: e.SealKey, Cause: e.Cause}
	case agent.Request:
		return record{Event: "request", URL: e.URL, Labels: e.Labels, Method: e.Method, Path: e.Path, Status: e.Status,
			Duration: secondsOf(e.Duration)}
	case agent.Connection:
		return connection(e)
	case agent.Stopping:
		return record{Event: "stopping", Connections: e.Connections}
	case agent.Stopped:
		return record{Event: "stopped", Told: &e.ServerTold}
	}
	return record{Event: fmt.Sprintf("%T", event)}
}

func starting(e agent.Starting) record {
	r := record{Event: "starting", Version: e.Version, Server: e.Server}
	if len(e.Endpoints) == 1 {
		r.URL, r.Labels, r.Upstream = e.Endpoints[0].URL, e.Endpoints[0].Labels, e.Endpoints[0].Upstream
		return r
	}
	for _, t := range e.Endpoints {
		r.Endpoints = append(r.Endpoints, target{URL: t.URL, Name: t.Name, Labels: t.Labels, Upstream: t.Upstream})
	}
	return r
}

func connection(e agent.Connection) record {
	r := record{Event: "connection_open", URL: e.URL, Labels: e.Labels, Client: e.Client, Pod: e.Pod}
	if e.SealKey != "" {
		r.Caller = &e.Caller
	}
	if e.Ended {
		r.Event, r.BytesIn, r.BytesOut, r.Duration, r.Cause = "connection_closed", &e.BytesIn, &e.BytesOut,
			secondsOf(e.Duration), e.Cause
	}
	return r
}

func level(l slog.Level) string { return strings.ToLower(l.String()) }

func secondsOf(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}
