// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/legs"
)

// maxLegs is how many replicas of the service a session connects to.
const maxLegs = 3

// legsDelay is how long changes of the replicas that a session is connected to are collected before
// they are reported together.
const legsDelay = 500 * time.Millisecond

// sessionLegs follows the replicas that a session is connected to.
type sessionLegs struct {
	changed chan struct{} // gets a token when they may have changed

	mu    sync.Mutex
	known legs.Tracker
}

// onLegs is called when the replicas that a session is connected to may have changed.
func (a *Agent) onLegs(s *tunnel.Session) {
	h := a.endpoints.bindsOf(s)
	if h == nil { // reportReplicas begins with what there is
		return
	}
	h.legs.mu.Lock()
	h.legs.known.Note(s.Legs())
	h.legs.mu.Unlock()
	select {
	case h.legs.changed <- struct{}{}:
	default:
	}
}

// reportReplicas reports the replicas that the session is connected to until ctx is done or the
// service drains the session. It collects the changes of legsDelay, because a session finds its
// replicas one after the other.
func (a *Agent) reportReplicas(ctx context.Context, h *sessionBinds) {
	for timer.Sleep(ctx, legsDelay) {
		h.legs.mu.Lock()
		c, changed := h.legs.known.Update(h.session.Legs(), h.session.WantedLegs(), time.Now())
		h.legs.mu.Unlock()
		if changed && !a.endpoints.isStopping() {
			a.opt.Observer.Observe(Replicas{Connected: c.Serving, Wanted: c.Wanted, Found: c.Found,
				Draining: c.Draining, Lost: c.Lost})
		}
		select {
		case <-h.legs.changed:
		case <-h.session.PeerDraining():
			return
		case <-ctx.Done():
			return
		}
	}
}
