// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package screen

import (
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	maxRecent    = 200 // events that are kept for the screen
	maxDurations = 256 // durations kept for each endpoint's percentiles
)

// model is the state of the status screen.
type model struct {
	version, server                    string
	serverVersion, account, region, id string // what the session's welcome said
	state, color                       string // the session's state in a word or two
	since                              time.Time
	cause                              string
	retryAt                            time.Time
	latency                            time.Duration // 0 = not measured
	inspector                          string        // URL
	replicas                           agent.Replicas
	carrier                            tunnel.Carrier
	rows                               []row
	rowsByKey                          map[string]int
	recent                             []timedEvent // newest last
}

// row is the state of one endpoint.
type row struct {
	agent.EndpointInfo

	alsoAt       string // another URL
	command      string // what calls the endpoint although DNS does not lead there
	state, color string
	cause        string // why the endpoint was refused or the upstream is down
	sealProblem  string // what is wrong with the certificate of a sealed endpoint; "" = nothing
	upstreamDown bool
	open, total  int
	durations    []time.Duration // the last requests' durations; a tcp endpoint's last connections'
	next         int             // where the next duration goes
}

// apply updates the model with an event.
func (m *model) apply(e agent.Event, now time.Time) {
	switch e := e.(type) {
	case agent.Starting:
		m.version, m.server, m.state, m.color, m.since = e.Version, e.Server, "connecting", yellow, now
		m.rows, m.rowsByKey = make([]row, len(e.Endpoints)), make(map[string]int, len(e.Endpoints))
		for i, t := range e.Endpoints {
			m.rowsByKey[t.Key] = i
			m.rows[i] = row{EndpointInfo: t, state: "waiting", color: yellow}
		}
	case agent.Inspecting:
		m.inspector = e.URL
	case agent.Connected:
		m.serverVersion, m.account, m.region, m.id = e.ServerVersion, e.AccountID, e.Region, e.SessionID
		m.setSession("online", green, "", now)
		m.replicas, m.carrier = agent.Replicas{}, e.Carrier
	case agent.Replicas:
		m.replicas = e
	case agent.Retrying:
		m.disconnected(e, now)
	case agent.Draining:
		m.setSession("moving", yellow, "the server is about to stop; connecting anew", now)
	case agent.Latency:
		m.latency, m.carrier = e.RoundTrip, e.Carrier
	case agent.Stopping:
		m.setSession("stopping", yellow, "", now)
	default:
		m.applyToRow(e)
	}
	if isRecent(e) {
		m.recent = append(m.recent, timedEvent{time: now, event: e})
		if len(m.recent) > maxRecent {
			m.recent = slices.Delete(m.recent, 0, len(m.recent)-maxRecent)
		}
	}
}

func (m *model) setSession(state, color, cause string, now time.Time) {
	m.state, m.color, m.cause, m.since, m.retryAt = state, color, cause, now, time.Time{}
}

func (m *model) disconnected(e agent.Retrying, now time.Time) {
	state := "connecting"
	if e.WasOnline {
		state = "reconnecting"
	}
	m.setSession(state, yellow, e.Cause, now)
	m.retryAt, m.latency = now.Add(e.RetryIn), 0
	for i := range m.rows {
		if r := &m.rows[i]; r.state == "online" {
			r.state, r.color = "offline", yellow
		}
	}
}

// applyToRow updates the row of the event's endpoint.
func (m *model) applyToRow(e agent.Event) {
	switch e := e.(type) {
	case agent.Online:
		if r := m.row(e.EndpointInfo); r != nil {
			r.alsoAt, r.state, r.color = e.AlsoAt(), "online", green
			r.SealKey = e.SealKey
			if !r.upstreamDown {
				r.cause = ""
			}
		}
	case agent.Unreachable:
		if r := m.row(e.EndpointInfo); r != nil {
			r.command = e.Command
		}
	case agent.BindRefused:
		if r := m.row(e.EndpointInfo); r != nil {
			r.state, r.color, r.cause = "refused", red, e.Cause
		}
	case agent.SealProblem:
		if r := m.row(e.EndpointInfo); r != nil {
			r.sealProblem = e.Cause
		}
	case agent.UpstreamDown:
		if r := m.row(e.EndpointInfo); r != nil {
			r.upstreamDown, r.cause = true, e.Cause
		}
	case agent.UpstreamUp:
		if r := m.row(e.EndpointInfo); r != nil {
			r.upstreamDown, r.cause = false, ""
		}
	case agent.Request:
		if r := m.row(e.EndpointInfo); r != nil {
			r.addDuration(e.Duration)
		}
	case agent.Connection:
		if r := m.row(e.EndpointInfo); r != nil {
			r.connection(e)
		}
	}
}

// row returns the row of the endpoint, nil for an unknown one.
func (m *model) row(t agent.EndpointInfo) *row {
	i, ok := m.rowsByKey[t.Key]
	if !ok {
		return nil
	}
	return &m.rows[i]
}

// connection counts a connection that opens or ends.
func (r *row) connection(e agent.Connection) {
	switch {
	case !e.Ended:
		r.open++
		r.total++
		return
	case e.Refused:
		return
	}
	r.open--
	if !e.HTTP {
		r.addDuration(e.Duration)
	}
}

func (r *row) addDuration(d time.Duration) {
	if len(r.durations) < maxDurations {
		r.durations = append(r.durations, d)
		return
	}
	r.durations[r.next] = d
	r.next = (r.next + 1) % maxDurations
}

// percentiles returns the 50th and the 90th. ok is false without any duration.
func (r *row) percentiles() (p50, p90 time.Duration, ok bool) {
	if len(r.durations) == 0 {
		return 0, 0, false
	}
	sorted := slices.Sorted(slices.Values(r.durations))
	return sorted[(len(sorted)-1)*50/100], sorted[(len(sorted)-1)*90/100], true
}

// isRecent reports whether an event has a line among the recent ones.
func isRecent(e agent.Event) bool {
	switch e := e.(type) {
	case agent.Starting, agent.Inspecting, agent.Connected, agent.Stopping, agent.Stopped:
		return false
	case agent.Replicas:
		return !e.Initial()
	case agent.Online:
		return false // the endpoint's row shows it
	}
	return isShown(e)
}
