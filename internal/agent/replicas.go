// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/legs"
)

// onLegs is called when the replicas that a session is connected to may have changed.
func (a *agent) onLegs(s *tunnel.Session) {
	a.mu.Lock()
	h := a.bindsBySession[s]
	a.mu.Unlock()
	if h == nil { // reportReplicas begins with what there is
		return
	}
	select {
	case h.legsChanged <- struct{}{}:
	default:
	}
}

// reportReplicas reports the replicas that the session is connected to until ctx is done or the
// service drains the session. It collects the changes of LegsDelay, because a session finds its
// replicas one after the other.
func (a *agent) reportReplicas(ctx context.Context, h *sessionBinds) {
	var known legs.Tracker
	for timer.Sleep(ctx, a.LegsDelay) {
		c, changed := known.Update(h.session.Legs(), h.session.WantedLegs(), time.Now())
		if changed && !a.isShuttingDown() {
			a.Observe(Replicas{Connected: c.Serving, Wanted: c.Wanted, Found: c.Found, Draining: c.Draining,
				Lost: c.Lost})
		}
		select {
		case <-h.legsChanged:
		case <-h.session.PeerDraining():
			return
		case <-ctx.Done():
			return
		}
	}
}
