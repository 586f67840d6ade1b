// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrUnresponsive means that the peer sends nothing, not even the answer to a ping: its process is
// stopped, its machine asleep or its network cut. Its session continues and may recover.
var ErrUnresponsive = errors.New("the peer does not respond")

// Unresponsive reports whether the peer, or each of its replicas, answers on none of the session's
// connections, and since when. It is detected within 1.5 s while a stream is being opened, or one
// waits for which OnUnresponsive was called.
func (s *Session) Unresponsive() (since time.Time, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links.active {
		at, is := l.mux.Unresponsive()
		if !is {
			return time.Time{}, false
		}
		if at.After(since) {
			since = at
		}
	}
	return since, len(s.links.active) > 0
}

// OnUnresponsive calls f once, unless stop is called before, when the peer does not answer on the
// stream's connection; at once if that is already so. f must not block. Such a wait costs a ping
// every two seconds while nothing else arrives.
func (s *Stream) OnUnresponsive(f func()) (stop func()) {
	if s.watchAgent == nil {
		return s.link.mux.OnUnresponsive(f)
	}
	f = sync.OnceFunc(f)
	stopHere, stopBeyond := s.link.mux.OnUnresponsive(f), s.watchAgent(f)
	return func() {
		stopHere()
		stopBeyond()
	}
}

// SetAgentWatch makes OnUnresponsive watch the agent, too, to which the peer relays the stream: watch
// calls f when that one does not respond, unless stop is called before. It must be called before the
// stream is used.
func (s *Stream) SetAgentWatch(watch func(f func()) (stop func())) { s.watchAgent = watch }

// Unresponsive reports whether the peer does not answer on the stream's connection, and since when.
func (s *Stream) Unresponsive() (since time.Time, yes bool) { return s.link.mux.Unresponsive() }

// openMuxStream opens a stream of the multiplexer. It fails with ErrUnresponsive when the peer
// turns out to be unresponsive.
func (l *link) openMuxStream(ctx context.Context, h OpenHeader, header []byte) (*Stream, error) {
	open := l.mux.Open
	if h.BytesFollow {
		open = l.mux.OpenLater
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := l.mux.OnUnresponsive(func() { cancel(ErrUnresponsive) })
	defer stop()
	st, err := open(ctx, header)
	if err != nil {
		if errors.Is(context.Cause(ctx), ErrUnresponsive) {
			err = ErrUnresponsive
		}
		return nil, fmt.Errorf("opening a stream: %w", err)
	}
	return &Stream{st: st, link: l, header: h, isOpener: true}, nil
}

// probeOtherLinks pings the peer on the session's other connections, because Session.Unresponsive
// judges all of them together.
func (l *link) probeOtherLinks() {
	s := l.conn.session.Load()
	if s == nil {
		return
	}
	s.mu.Lock()
	links := slices.Clone(s.links.active)
	s.mu.Unlock()
	for _, other := range links {
		if other != l {
			other.mux.Probe()
		}
	}
}

// closeUnresponsive pings the peer, and closes the connection if it does not answer.
func (l *link) closeUnresponsive() {
	stop := l.mux.OnUnresponsive(func() { go l.close(errPathChanged) })
	time.AfterFunc(pathProbeLimit, stop)
}

// responsivenessChanged tells the session's owner that the peer has become unresponsive on the
// connection, or answers again.
func (l *link) responsivenessChanged() {
	if s := l.conn.session.Load(); s != nil {
		s.handler.responsivenessChanged(s)
	}
}

func (h *serverSession) responsivenessChanged(s *Session) {
	h.server.cfg.Handler.OnResponsiveness(s)
}

func (d *clientHandler) responsivenessChanged(s *Session) {
	wake(s.legs.connsChanged) // a replica that does not respond may be replaced
	s.legs.notify()
	if f := d.client.cfg.OnResponsiveness; f != nil {
		f(s)
	}
}
