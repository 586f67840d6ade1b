// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"cmp"
	"context"
	"time"
)

// dialsAtOnce is how many further connections a session dials at a time. After one has failed it is
// one, until one is made.
const dialsAtOnce = 4

// keeper has a live session have the connections that it should have. It is for one goroutine.
type keeper struct {
	client  *Client
	session *Session
	fixed   int // their number; 0 follows the traffic

	dialling int
	results  chan error // of those that are being dialled
	failures int        // in a row
	pause    <-chan time.Time
}

// keepConnections dials what a live session lacks of the connections that it should have.
func (c *Client) keepConnections(ctx context.Context, s *Session) {
	k := &keeper{client: c, session: s, fixed: min(cmp.Or(s.welcome.Connections, c.cfg.Connections), maxConnections),
		results: make(chan error, dialsAtOnce)}
	for k.wantsMore(ctx) {
		k.dialling++
		c.running.Go(func() { k.results <- c.dialMore(ctx, s) })
	}
}

// wantsMore waits until the session has fewer connections than it should have, those that are being
// dialled counted in, but one at least: a session without any is at its end, and a connection that
// is dialled for it is cut in its handshake, which costs a TLS ticket. Meanwhile it gives up
// connections that are too many. It returns false when the session will need no more.
func (k *keeper) wantsMore(ctx context.Context) bool {
	s := k.session
	for {
		select {
		case <-s.peerDraining:
			return false
		case <-ctx.Done():
			return false
		default:
		}
		n, want := s.connections(k.fixed, time.Now())
		if n > 0 && n+k.dialling < want && k.mayDial() {
			return true
		}
		var later <-chan time.Time
		if n > defaultConnections && k.fixed == 0 {
			if l := s.surplus(want, time.Now()); l != nil {
				k.client.running.Go(l.retire)
				continue
			}
			later = time.After(shrinkInterval)
		}
		select {
		case err := <-k.results:
			k.dialled(err)
		case <-k.pause:
			k.pause = nil
		case <-s.look:
		case <-later:
		case <-s.peerDraining:
		case <-ctx.Done():
		}
	}
}

func (k *keeper) mayDial() bool {
	return k.pause == nil && (k.dialling == 0 || k.failures == 0 && k.dialling < dialsAtOnce)
}

// dialled takes the result of a dial. Those that were dialled together and fail together are one
// failure.
func (k *keeper) dialled(err error) {
	k.dialling--
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

func (c *Client) dialMore(ctx context.Context, s *Session) error {
	l, _, err := c.dial(ctx, Hello{Role: s.Role(), SessionID: s.ID(), JoinSecret: s.welcome.JoinSecret})
	if err != nil {
		return err
	}
	return c.start(s, l)
}
