// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/legs"
)

// maxLegs is how many replicas of the service a forwarder connects to.
const maxLegs = 8

// sessionLegs follows the legs of the current session. edgeClient.mu guards it.
type sessionLegs struct {
	session *tunnel.Session
	legs.Tracker
}

// trackLegs follows the legs of a new session.
func (e *edgeClient) trackLegs(s *tunnel.Session) {
	e.mu.Lock()
	e.legs = sessionLegs{session: s}
	e.mu.Unlock()
	e.updateLegs(s)
}

// updateLegs records and logs which replicas of the service the session is connected to.
func (e *edgeClient) updateLegs(s *tunnel.Session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s != e.legs.session {
		return
	}
	c, changed := e.legs.Update(s.Legs(), s.WantedLegs(), time.Now())
	e.responsivenessChanged.broadcast()
	if !changed {
		return
	}
	log := e.log.With("session", s.ID(), "replicas", c.Serving, "of", c.Wanted)
	for _, id := range c.Found {
		log.Info("connected to a replica of the edge", "replica", id)
	}
	for _, id := range c.Draining {
		log.Info("a replica of the edge is about to stop", "replica", id)
	}
	for _, id := range c.Lost {
		log.Warn("a replica of the edge was lost", "replica", id)
	}
	e.statusChanged.broadcast()
}

// fill sets the legs of the session's status; there are none without replicas.
func (l *sessionLegs) fill(st *SessionStatus, s *tunnel.Session) {
	for _, leg := range s.Legs() {
		if leg.ReplicaID != "" {
			st.Legs = append(st.Legs, LegStatus{leg.ReplicaID, leg.Draining, leg.Unresponsive})
		}
	}
	if len(st.Legs) == 0 {
		return
	}
	st.WantedLegs = s.WantedLegs()
	if since := l.MissingSince(); s == l.session && !since.IsZero() {
		since = since.UTC().Truncate(time.Millisecond)
		st.LegsMissingSince = &since
	}
}

// legCounts returns how many replicas of the service take connections, and how many should. A
// service without replicas counts as one.
func (e *edgeClient) legCounts() (serving, wanted int) {
	s := e.Live()
	if s == nil {
		return 0, 1
	}
	for _, leg := range s.Legs() {
		if !leg.Draining && !leg.Unresponsive {
			serving++
		}
	}
	return serving, s.WantedLegs()
}
