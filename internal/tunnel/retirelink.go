// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"errors"
	"slices"
)

// A connection is retired without aborting a stream: the client opens no more streams on it and
// sends retire; the server opens no more either, and sends retired, its last message there, once it
// has no stream left; the client sends bye once it has none left itself.

var (
	errRetired           = errors.New("the connection is being given up")
	errUnexpectedRetired = errors.New("the server gives up a connection that it was not asked to give up")
)

// retire is the client's part.
func (l *link) retire() {
	if l.send(&message{Type: typeRetire}) != nil {
		return
	}
	select {
	case <-l.peerRetired:
	case <-l.ctx.Done():
		return
	}
	if l.awaitEmpty() {
		l.closeGracefully(&message{Type: typeBye}, errRetired)
	}
}

// finishRetiring is the server's part.
func (l *link) finishRetiring() {
	s := l.session
	s.mu.Lock()
	s.links.detach(l)
	s.mu.Unlock()
	if l.awaitEmpty() {
		_ = l.ctrl.sendLast(&message{Type: typeRetired})
	}
}

// awaitEmpty waits until the link, which accepts no new streams, has none left. It returns false
// when the link ended.
func (l *link) awaitEmpty() bool {
	// The multiplexer first: it counts every stream that came before the peer's message, also one
	// whose handler was not counted yet.
	for l.mux.NumStreams() > 1 || l.streams.Load() > 0 {
		select {
		case <-l.emptied:
		case <-l.ctx.Done():
			return false
		}
	}
	return true
}

// handleRetired handles the server's message that it has no streams left here.
func (l *link) handleRetired() error {
	s := l.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.links.retiring, l) {
		return errUnexpectedRetired
	}
	select {
	case <-l.peerRetired:
	default:
		close(l.peerRetired)
	}
	return nil
}
