// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/path"
)

// legsGrace is how long a forwarder may lack replicas without a warning: it takes that long to find
// a new one behind the balancer.
const legsGrace = 2 * time.Minute

// legs are the replicas of the service that a forwarder is connected to. All is zero with a service
// without replicas.
type legs struct {
	Legs             []leg     `json:"legs"`
	WantedLegs       int       `json:"wanted_legs"`
	LegsMissingSince time.Time `json:"legs_missing_since"`
}

type leg struct {
	Replica      string `json:"replica"`
	Draining     bool   `json:"draining"`
	Unresponsive bool   `json:"unresponsive"`
}

// serving returns how many of those that are wanted take connections.
func (l legs) serving() int {
	n := 0
	for _, leg := range l.Legs {
		if !leg.Draining && !leg.Unresponsive {
			n++
		}
	}
	return min(n, l.WantedLegs)
}

func (l legs) String() string {
	text := fmt.Sprintf("connected to %d of %d replicas", l.serving(), l.WantedLegs)
	for i, leg := range l.Legs {
		text += map[bool]string{true: ": ", false: ", "}[i == 0] + leg.Replica
		switch {
		case leg.Draining:
			text += " (about to stop)"
		case leg.Unresponsive:
			text += " (does not respond)"
		}
	}
	return text
}

// withLegs adds the replicas that the forwarders are connected to, and a warning about a forwarder
// that has lacked some for long.
func (fw *forwarders) withLegs(h path.Hop, forwarders []forwarder) path.Hop {
	var worst *forwarder
	for i := range forwarders {
		f := &forwarders[i]
		s := f.status.Session
		if s.WantedLegs == 0 {
			continue
		}
		h = h.With(f.pod.Metadata.Name + ": " + s.String())
		if worst == nil || s.missing() > worst.status.Session.missing() {
			worst = f
		}
	}
	if worst == nil {
		return h
	}
	s := worst.status.Session
	h.Detail += fmt.Sprintf(", connected to %d of %d replicas", s.serving(), s.WantedLegs)
	if s.missing() <= 0 || s.LegsMissingSince.IsZero() || fw.now.Sub(s.LegsMissingSince) < legsGrace {
		return h
	}
	why, fix := s.whyMissing()
	h.Detail += fmt.Sprintf("; %s lacks replicas since %s: %s", worst.pod.Metadata.Name,
		s.LegsMissingSince.UTC().Format(time.RFC3339), why)
	h.Fix = fix
	return h
}

func (l legs) missing() int { return l.WantedLegs - l.serving() }

// whyMissing returns the probable cause of missing replicas, and its remedy.
func (l legs) whyMissing() (why, fix string) {
	const balance = "let the balancer choose a replica for each connection: no client-IP affinity " +
		"(sessionAffinity: None), and every replica among its servers; or give each fairlead-server a " +
		"--replica-address that pods reach"
	switch {
	case slices.ContainsFunc(l.Legs, func(l leg) bool { return l.Unresponsive }):
		return "a replica does not respond", "see that every fairlead-server runs and that pods reach it"
	case len(l.Legs) == 1:
		return "the balancer always leads to the same replica (client-IP affinity?), and no other is reached at an " +
			"address of its own; traffic is relayed", balance
	}
	return "the balancer does not lead to every replica; some traffic is relayed", balance
}
