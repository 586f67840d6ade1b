// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
)

// A connection that names a session joins it. One whose session this server does not know may be of
// another replica's session: the Handler decides, and the session begins here with the same id and
// the same join secret.

func errUnknownSession() error {
	return &Error{Code: CodeUnknownSession, Msg: "the session has ended: begin a new one"}
}

// joinSession adds l to the session that the hello names, within controlTimeout.
func (s *Server) joinSession(ctx context.Context, l *link, hello *Hello) (*serverSession, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	hash := sha256.Sum256([]byte(hello.JoinSecret))
	for {
		s.mu.Lock()
		h, wait := s.sessions[hello.SessionID], s.settling[hello.SessionID]
		if h == nil && wait == nil {
			decided := make(chan struct{})
			s.settling[hello.SessionID] = decided
			s.mu.Unlock()
			defer s.endSettling(hello.SessionID, decided)
			return s.joinUnknown(ctx, l, hello)
		}
		s.mu.Unlock()
		if h != nil {
			if subtle.ConstantTimeCompare(hash[:], h.joinHash[:]) != 1 {
				return nil, errUnknownSession()
			}
			if err := awaitClosed(ctx, l, h.up); err != nil {
				return nil, err
			}
			err := h.addLink(l)
			if err == nil || h.Err() == nil {
				return h, err
			}
			wait = h.down // it has lost its last connection
		}
		if err := awaitClosed(ctx, l, wait); err != nil {
			return nil, err
		}
	}
}

// endSettling closes the channel of an id for which a Join or Down has returned.
func (s *Server) endSettling(id string, settled chan struct{}) {
	s.mu.Lock()
	if s.settling[id] == settled {
		delete(s.settling, id)
	}
	s.mu.Unlock()
	close(settled)
}

// joinUnknown asks the Handler for a session that this server does not know.
func (s *Server) joinUnknown(ctx context.Context, l *link, hello *Hello) (*serverSession, error) {
	welcome, err := s.cfg.Handler.Join(ctx, *hello, l.conn.RemoteAddr())
	if err != nil {
		return nil, err
	}
	if welcome.SessionID != hello.SessionID {
		return nil, fmt.Errorf("the handler gave session id %q to a connection of session %q",
			welcome.SessionID, hello.SessionID)
	}
	return s.addSession(l, *hello, welcome, hello.JoinSecret)
}

// addLink adds a connection, unless the server drains the session.
func (h *serverSession) addLink(l *link) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining {
		return &Error{Code: CodeDraining, Msg: "the server is about to stop; try again in a moment"}
	}
	l.pairs = h.pairs
	h.pairs.avoid(l.conn.RemoteAddr())
	return h.addLinkLocked(l, maxConnections)
}

// awaitClosed waits for c until ctx or the connection ends.
func awaitClosed(ctx context.Context, l *link, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
}

// SetReplicas sets how many replicas accept sessions, 1 or more, and where clients reach those that
// have an address of their own, and sends that to clients with FeatureReplicas. It precedes the
// number in the Handler's Welcome. Agents are not sent private addresses. It does not block.
func (s *Server) SetReplicas(n int, addresses ...ReplicaAddress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replicas = n
	s.addresses = map[Role][]ReplicaAddress{RoleAgent: announcedTo(RoleAgent, addresses),
		RoleForwarder: announcedTo(RoleForwarder, addresses)}
	for _, h := range s.sessions {
		if slices.Contains(h.hello.Features, FeatureReplicas) {
			go h.sendReplicas() // ends with the session, or within controlTimeout
		}
	}
}

// replicasFor returns what the session's client is sent about replicas; their number is n before
// SetReplicas was called.
func (s *Server) replicasFor(h *serverSession, n int) (int, []ReplicaAddress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.replicas > 0 {
		n = s.replicas
	}
	if !slices.Contains(h.hello.Features, FeatureReplicaAddresses) {
		return n, nil
	}
	return n, s.addresses[h.Role()]
}

// sendReplicas sends the client the number and addresses of replicas if they changed.
func (h *serverSession) sendReplicas() {
	h.announcing.Lock()
	defer h.announcing.Unlock()
	n, addresses := h.server.replicasFor(h, h.replicas)
	if n == h.replicas && slices.Equal(addresses, h.addresses) {
		return
	}
	m := &message{Type: typeReplicas, Replicas: n, ReplicaAddresses: addresses}
	if h.sendMessage(anyLink, m) == nil {
		h.replicas, h.addresses = n, addresses
	}
}

// sendWelcome sends the welcome of a connection with the current number and addresses of replicas,
// and the current authorities.
func (h *serverSession) sendWelcome(l *link, welcome *Welcome) error {
	h.announcing.Lock()
	defer h.announcing.Unlock()
	welcome.Replicas, welcome.ReplicaAddresses = h.server.replicasFor(h, welcome.Replicas)
	if !h.welcomed { // a joining connection's welcome may arrive after a message on another one
		h.welcomed, h.replicas, h.addresses = true, welcome.Replicas, welcome.ReplicaAddresses
	}
	var version uint64
	welcome.Authorities, version = h.server.authoritiesFor(h)
	err := l.ctrl.send(&message{Type: typeWelcome, Welcome: welcome})
	if err == nil {
		h.toldAuthorities.Store(version)
	}
	return err
}
