// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"time"
)

// maxPendingDials is how many further connections a session dials at a time. After a failure it is
// one, until a dial succeeds.
const maxPendingDials = 4

// connManager keeps the number of a session's connections at the desired one. It is for one
// goroutine.
type connManager struct {
	client  *Client
	session *Session
	fixed   int // their number; 0 = as the traffic asks

	pendingDials int
	results      chan error // of the pending dials
	failures     int        // consecutive
	pause        <-chan time.Time
}

// manageConnections dials and retires further connections of a live session until it ends.
func (c *Client) manageConnections(ctx context.Context, s *Session) {
	k := &connManager{client: c, session: s,
		fixed:   min(cmp.Or(s.welcome.Connections, c.cfg.Connections), maxConnections),
		results: make(chan error, maxPendingDials)}
	for k.awaitDialNeeded(ctx) {
		k.pendingDials++
		c.goroutines.Go(func() { k.results <- c.dialFurther(ctx, s) })
	}
}

// awaitDialNeeded waits until a connection is to be dialled, and meanwhile retires surplus ones. It
// returns false when the session needs no more. It dials nothing for a session without connections:
// that is at its end, and the dial would be cut in its handshake, which costs a TLS ticket.
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
		n, want := s.connectionCounts(k.fixed, time.Now())
		if n > 0 && n+k.pendingDials < want && k.canDial() {
			return true
		}
		var later <-chan time.Time
		if n > defaultConnections && k.fixed == 0 {
			if l := s.detachSurplusLink(want, time.Now()); l != nil {
				k.client.goroutines.Go(l.retire)
				continue
			}
			later = time.After(shrinkInterval)
		}
		select {
		case err := <-k.results:
			k.handleDialResult(err)
		case <-k.pause:
			k.pause = nil
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

// handleDialResult handles the result of a dial. Dials that were started together and fail together
// count as one failure.
func (k *connManager) handleDialResult(err error) {
	k.pendingDials--
	if err == nil {
		k.failures = 0
		return
	}
	log := k.client.cfg.Logger.With("session", k.session.ID(), "error", err)
	if k.pause != nil {
		log.Debug("dialing a further connection")
		return
	}
	wait := backoff(k.failures, k.client.cfg.MaxBackoff)
	k.failures++
	k.pause = time.After(wait)
	log.Debug("dialing a further connection", "retry_in", wait)
}

func (c *Client) dialFurther(ctx context.Context, s *Session) error {
	l, _, err := c.dial(ctx, Hello{Role: s.Role(), SessionID: s.ID(), JoinSecret: s.welcome.JoinSecret})
	if err != nil {
		return err
	}
	return c.serveLink(s, l)
}
