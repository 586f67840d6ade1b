// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import "slices"

// Learner gets the certificate authorities that the server announces over connections whose
// certificate was verified. *trust.Authorities implements it.
type Learner interface {
	// Learns reports whether the client trusts authorities that it was given, and learns further ones.
	Learns() bool
	// Learn trusts these, DER, in place of what was learnt before.
	Learn(authorities [][]byte) error
}

// authorities are what the Server announces; the Server's mutex guards them.
type authorities struct {
	der     [][]byte // der is not changed in place.
	version uint64   // version counts the changes.
}

// SetAuthorities sets the certificate authorities, DER, that clients with FeatureAuthorities trust,
// and sends them. It does not block.
func (s *Server) SetAuthorities(der [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authorities = authorities{der, s.authorities.version + 1}
	for _, h := range s.sessions {
		if h.learns() {
			go h.sendAuthorities() // ends with the session, or within controlTimeout
		}
	}
}

// Untold returns the sessions whose clients do not know the authorities that were set last.
func (s *Server) Untold() (untold []*Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.sessions {
		if h.toldAuthorities.Load() != s.authorities.version {
			untold = append(untold, h.Session)
		}
	}
	return untold
}

func (h *serverSession) learns() bool { return slices.Contains(h.hello.Features, FeatureAuthorities) }

// authoritiesFor returns what the session's client is told, and the version to record afterwards.
func (s *Server) authoritiesFor(h *serverSession) ([][]byte, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !h.learns() {
		return nil, 0
	}
	return s.authorities.der, s.authorities.version
}

// sendAuthorities sends the client the authorities, unless it was told of them.
func (h *serverSession) sendAuthorities() {
	h.announcing.Lock()
	defer h.announcing.Unlock()
	der, version := h.server.authoritiesFor(h)
	if version == h.toldAuthorities.Load() || !h.welcomed {
		return
	}
	if h.sendMessage(anyLink, &message{Type: typeAuthorities, Authorities: der}) == nil {
		h.toldAuthorities.Store(version)
	}
}
