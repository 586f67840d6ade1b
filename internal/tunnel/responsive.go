// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrUnresponsive says that the peer sends nothing any more, not even the answer to a ping: its
// process is stopped, its machine asleep or the way to it cut. Its session goes on, and may
// recover.
var ErrUnresponsive = errors.New("the peer does not respond")

// Unresponsive reports whether the peer answers on none of the session's connections, and since
// when. That is found out within a second and a half while streams that OnUnresponsive was called
// for wait, or one is being opened.
func (s *Session) Unresponsive() (since time.Time, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		at, is := l.mux.Unresponsive()
		if !is {
			return time.Time{}, false
		}
		if at.After(since) {
			since = at
		}
	}
	return since, len(s.links) > 0
}

// OnUnresponsive calls f once, unless stop is called before, when the peer does not answer on the
// stream's connection any more; at once when that is known already. f must not block. It is for who
// waits for the peer: such a wait costs a ping every two seconds where nothing else is heard.
func (s *Stream) OnUnresponsive(f func()) (stop func()) { return s.link.mux.OnUnresponsive(f) }

// Unresponsive reports whether the peer does not respond on the stream's connection, and since
// when.
func (s *Stream) Unresponsive() (since time.Time, yes bool) { return s.link.mux.Unresponsive() }

// openWith opens a stream of the multiplexer, and gives up when the peer turns out to be
// unresponsive.
func (l *link) openWith(ctx context.Context, h OpenHeader, header []byte) (*Stream, error) {
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
	return &Stream{st: st, link: l, header: h, opener: true}, nil
}

// late pings the peer on the session's other connections, too: all of them are judged together.
func (l *link) late() {
	s := l.conn.session.Load()
	if s == nil {
		return
	}
	s.mu.Lock()
	links := append([]*link(nil), s.links...)
	s.mu.Unlock()
	for _, other := range links {
		if other != l {
			other.mux.Probe()
		}
	}
}

// responsiveness tells the session's owner that the peer has become unresponsive on the connection,
// or answers again.
func (l *link) responsiveness() {
	if s := l.conn.session.Load(); s != nil {
		s.side.responsiveness(s)
	}
}

func (h *hosted) responsiveness(s *Session) {
	if f := h.server.cfg.OnResponsiveness; f != nil {
		f(s)
	}
}

func (d *dialled) responsiveness(s *Session) {
	if f := d.client.cfg.OnResponsiveness; f != nil {
		f(s)
	}
}
