// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import "time"

// SessionStatus is the session with the edge as /status shows it.
type SessionStatus struct {
	Up         bool      `json:"up"`
	Since      time.Time `json:"since"`   // when it was established or lost
	Address    string    `json:"address"` // of the edge
	ID         string    `json:"id,omitempty"`
	OperatorID string    `json:"operator_id,omitempty"`
	AccountID  string    `json:"account_id,omitempty"`
	Error      string    `json:"error,omitempty"` // why it is not up

	// Legs are the replicas of the service that the session is connected to, WantedLegs how many it
	// should be connected to. Both are absent with a service without replicas.
	Legs       []LegStatus `json:"legs,omitempty"`
	WantedLegs int         `json:"wanted_legs,omitempty"`
	// LegsMissingSince is since when fewer legs than WantedLegs take connections.
	LegsMissingSince *time.Time `json:"legs_missing_since,omitempty"`
}

// LegStatus is one replica of the service that the session is connected to.
type LegStatus struct {
	Replica      string `json:"replica"`                // its id
	Draining     bool   `json:"draining,omitempty"`     // Draining reports that it is about to stop.
	Unresponsive bool   `json:"unresponsive,omitempty"` // it does not respond
}

func (e *edgeClient) status() SessionStatus {
	session := e.liveSession()
	e.mu.Lock()
	defer e.mu.Unlock()
	st := SessionStatus{Up: session != nil, Since: e.since.UTC().Truncate(time.Millisecond), Address: e.config.Address,
		OperatorID: e.operatorID, Error: e.lastErr}
	if session != nil {
		st.ID, st.AccountID, st.Error = session.ID(), session.Welcome().AccountID, ""
		if _, unresponsive := session.Unresponsive(); unresponsive {
			st.Up, st.Error = false, "the edge does not respond"
		}
		e.legs.fill(&st, session)
	}
	return st
}
