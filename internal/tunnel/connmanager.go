// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"time"
)

// maxPendingDials is how many further connections a session dials at a time. After a failure it is
// one, until a dial succeeds.
const maxPendingDials = 4

// A replica is found by dialing: the balancer before the replicas decides which one answers. After
// legDials dials for each replica that brought no new one, the session pauses for legSearchPause. The
// first dial for each replica is made at once, and the others after growing pauses of up to
// maxLegPause: the balancer may take seconds to notice a replica that has just started.
const (
	legDials       = 4
	minLegPause    = 100 * time.Millisecond
	maxLegPause    = 5 * time.Second
	legSearchPause = time.Minute
	maxLegBackoff  = time.Second // between failed dials of a session that no replica serves
)

// connManager keeps the number of a session's connections, and of the replicas that they are with,
// at the desired one. It is for one goroutine.
type connManager struct {
	client  *Client
	session *Session

	pendingDials int
	results      chan dialResult // of the pending dials
	failures     int             // consecutive
	pause        <-chan time.Time

	legs, replicas int // when last compared with what the session needs
	fruitless      int // consecutive dials that brought no new replica
	legPause       <-chan time.Time
}

// dialResult is the result of dialing a further connection.
type dialResult struct {
	isNewLeg bool
	err      error
}

// manageConnections dials and retires further connections of a live session until it ends.
func (c *Client) manageConnections(ctx context.Context, s *Session) {
	k := &connManager{client: c, session: s, results: make(chan dialResult, maxPendingDials)}
	for k.awaitDialNeeded(ctx) {
		k.pendingDials++
		c.goroutines.Go(func() {
			isNewLeg, err := c.dialFurther(ctx, s)
			k.results <- dialResult{isNewLeg, err}
		})
	}
}

// awaitDialNeeded waits until a connection is to be dialled, and meanwhile retires surplus ones. It
// returns false when the session needs no more. It dials nothing for a session without connections,
// unless another replica may have it: the session is at its end, and the dial would be cut in its
// handshake, which costs a TLS ticket.
func (k *connManager) awaitDialNeeded(ctx context.Context) bool {
	s := k.session
	for {
		select {
		case <-s.peerDraining:
			return false
		case <-ctx.Done():
			return false
		default:
		}
		n := s.connNeeds(time.Now())
		k.updateRound(n)
		if n.links > 0 && n.links+k.pendingDials < n.want && k.canDial() || n.leg && k.canSearch(n) {
			return true
		}
		var later <-chan time.Time
		if n.links > n.minimum {
			if l := s.detachSurplusLink(n.want, time.Now()); l != nil {
				k.client.goroutines.Go(l.retire)
				continue
			}
			later = time.After(shrinkInterval)
		}
		select {
		case r := <-k.results:
			k.handleDialResult(r)
		case <-k.pause:
			k.pause = nil
		case <-k.legPause:
			k.legPause = nil
		case <-s.connsChanged:
		case <-later:
		case <-s.peerDraining:
		case <-ctx.Done():
		}
	}
}

func (k *connManager) canDial() bool {
	return k.pause == nil && (k.pendingDials == 0 || k.failures == 0 && k.pendingDials < maxPendingDials)
}

// canSearch reports whether a connection with another replica may be dialled now: one at a time.
func (k *connManager) canSearch(n connNeeds) bool {
	return k.pause == nil && k.pendingDials == 0 && (k.legPause == nil || n.legs == 0)
}

// updateRound begins the search for replicas anew, without a pause, when one was lost or their
// number has changed.
func (k *connManager) updateRound(n connNeeds) {
	isNew := n.legs < k.legs || n.replicas != k.replicas
	if isNew && k.session.isReplicated() {
		k.failures, k.pause = 0, nil
	}
	if isNew || !n.leg {
		k.fruitless, k.legPause = 0, nil
	}
	k.legs, k.replicas = n.legs, n.replicas
}

// handleDialResult handles the result of a dial. Dials that were started together and fail together
// count as one failure.
func (k *connManager) handleDialResult(r dialResult) {
	k.pendingDials--
	replicas := max(1, k.replicas)
	switch k.fruitless++; {
	case r.isNewLeg:
		k.fruitless = 0
	case k.fruitless >= legDials*replicas:
		k.fruitless, k.legPause = 0, time.After(legSearchPause)
	case k.fruitless >= replicas:
		k.legPause = time.After(min(maxLegPause, minLegPause<<min(k.fruitless-replicas, 10)))
	}
	if r.err == nil {
		k.failures = 0
		return
	}
	var refused *Error
	if errors.As(r.err, &refused) && refused.Code == CodeUnknownSession {
		k.session.endLegSearch() // other replicas would refuse, too
	}
	log := k.client.cfg.Logger.With("session", k.session.ID(), "error", r.err)
	if k.pause != nil {
		log.Debug("dialing a further connection")
		return
	}
	maxWait := k.client.cfg.MaxBackoff
	if k.legs == 0 && k.session.isReplicated() {
		maxWait = min(maxWait, maxLegBackoff)
	}
	wait := backoff(k.failures, maxWait)
	k.failures++
	k.pause = time.After(wait)
	log.Debug("dialing a further connection", "retry_in", wait)
}

// dialFurther dials a further connection of s and serves it in the background. It reports whether
// the connection is the first one with its replica. Replicas get the whole hello, as one may not
// know the session.
func (c *Client) dialFurther(ctx context.Context, s *Session) (isNewLeg bool, err error) {
	hello := Hello{Role: s.Role()}
	if s.isReplicated() {
		hello = c.hello()
	}
	hello.SessionID, hello.JoinSecret = s.ID(), s.welcome.JoinSecret
	l, welcome, err := c.dial(ctx, hello)
	if err != nil {
		return false, err
	}
	return c.serveLink(s, l, welcome)
}
