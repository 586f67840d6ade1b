// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"slices"
	"time"
)

// A connection is given up without cutting a stream: the client opens nothing more on it and says
// retire; the server opens nothing more either, and says retired, its last message there, once it
// has no stream left; the client says bye once it has none left itself.

var (
	errRetired  = errors.New("the connection is being given up")
	errNotAsked = errors.New("the server gives up a connection that it was not asked to give up")
)

// surplus takes a connection out of the choice that the session does not need: it has more than
// want, and this one has had no stream for idleTime. It is never the first one, which requests use.
// nil: there is none.
func (s *Session) surplus(want int, now time.Time) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.peerSaid || len(s.links) <= max(want, 1) {
		return nil
	}
	for i, l := range slices.Backward(s.links) {
		if i > 0 && l.streams.Load() == 0 && now.Sub(time.Unix(0, l.idleSince.Load())) >= idleTime {
			s.links = slices.Delete(s.links, i, i+1)
			s.leaving = append(s.leaving, l)
			return l
		}
	}
	return nil
}

// retire is the client's part.
func (l *link) retire() {
	if l.send(&message{Type: typeRetire}) != nil {
		return
	}
	select {
	case <-l.retired:
	case <-l.ctx.Done():
		return
	}
	if l.awaitEmpty() {
		l.farewell(&message{Type: typeBye}, errRetired)
	}
}

// release is the server's part.
func (l *link) release() {
	s := l.session
	s.mu.Lock()
	if i := slices.Index(s.links, l); i >= 0 {
		s.links = slices.Delete(s.links, i, i+1)
		s.leaving = append(s.leaving, l)
	}
	s.mu.Unlock()
	if l.awaitEmpty() {
		_ = l.ctrl.sendLast(&message{Type: typeRetired})
	}
}

// awaitEmpty waits until the link, which takes no new streams, has none left. It returns false when
// the link ended.
func (l *link) awaitEmpty() bool {
	// The multiplexer first: it has known every stream that came before the peer's message, whose
	// handler may be yet to be counted.
	for l.mux.NumStreams() > 1 || l.streams.Load() > 0 {
		select {
		case <-l.emptied:
		case <-l.ctx.Done():
			return false
		}
	}
	return true
}

// wasRetired takes the server's word that it has no streams left here.
func (l *link) wasRetired() error {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.leaving, l) {
		return errNotAsked
	}
	select {
	case <-l.retired:
	default:
		close(l.retired)
	}
	return nil
}
