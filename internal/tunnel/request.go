// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bind asks the server for an endpoint or a labelled tunnel and waits for the answer, at most 10 s.
// It returns an *Error when the server refused, or is too old for what the bind asks: such a server
// would pass it over, a traffic policy for instance.
func (s *Session) Bind(ctx context.Context, b Bind) (Bound, error) {
	for feature, name := range b.needs() {
		if !slices.Contains(s.welcome.Features, feature) {
			return Bound{}, &Error{Code: CodeInvalid,
				Msg: fmt.Sprintf("the server (version %s) does not know %s: update it", s.welcome.ServerVersion, name)}
		}
	}
	answer, err := s.request(ctx, &message{Type: typeBind, Bind: &b})
	if err != nil {
		return Bound{}, fmt.Errorf("binding %s: %w", b.what(), err)
	}
	if answer.Bound == nil {
		return Bound{}, fmt.Errorf("binding %s: the server answered with %q", b.what(), answer.Type)
	}
	return *answer.Bound, nil
}

// what names the bind for messages.
func (b *Bind) what() string {
	if b.URL == "" {
		return "a labelled tunnel"
	}
	return b.URL
}

// Unbind gives an endpoint or a labelled tunnel back and waits for the answer, at most 10 s.
func (s *Session) Unbind(ctx context.Context, endpointID string) error {
	if _, err := s.request(ctx, &message{Type: typeUnbind, Unbind: &unbind{EndpointID: endpointID}}); err != nil {
		return fmt.Errorf("unbinding %s: %w", endpointID, err)
	}
	return nil
}

// request sends m over the first live connection and waits for the answer with its id.
func (s *Session) request(ctx context.Context, m *message) (*message, error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	answer := make(chan *message, 1)
	s.mu.Lock()
	if len(s.links) == 0 || s.closing {
		defer s.mu.Unlock()
		return nil, s.endedError()
	}
	l := s.links[0]
	s.requestID++
	m.ID = s.requestID
	s.pending[m.ID] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.pending, m.ID)
		s.mu.Unlock()
	}()

	if err := l.send(m); err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		if a.Error != nil {
			return nil, a.Error
		}
		return a, nil
	case <-l.ctx.Done():
		return nil, fmt.Errorf("waiting for the server's answer: %w", context.Cause(l.ctx))
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the server's answer: %w", ctx.Err())
	}
}

// answered hands an answer to the request that waits for it. A late one is dropped.
func (s *Session) answered(m *message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch := s.pending[m.ID]; ch != nil {
		delete(s.pending, m.ID)
		ch <- m
	}
}

// send sends a control message; a connection that cannot take it is closed.
func (l *link) send(m *message) error { return l.sent(l.ctrl.send(m)) }

// sent closes a connection that could not take a message.
func (l *link) sent(err error) error {
	if err == nil {
		return nil
	}
	var tooLong *Error
	if !errors.Is(err, errRetired) && !errors.As(err, &tooLong) {
		l.close(err)
	}
	return err
}

// Drain tells the peer that this side stops within d. From then on the peer opens nothing new; nor
// does a server that drains. A client that drains may go on opening streams.
func (s *Session) Drain(d time.Duration) error {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	return s.tell(&message{Type: typeDrain, Drain: &drain{DeadlineMS: d.Milliseconds()}})
}

// tell sends a message over the first connection that takes it.
func (s *Session) tell(m *message) error {
	return s.overOne(func(l *link) error { return l.send(m) })
}

// overOne sends over the first connection that takes it.
func (s *Session) overOne(send func(*link) error) error {
	for {
		s.mu.Lock()
		if len(s.links) == 0 || s.closing {
			defer s.mu.Unlock()
			return s.endedError()
		}
		l := s.links[0]
		s.mu.Unlock()
		err := send(l)
		if err == nil || l.ctx.Err() == nil && !errors.Is(err, errRetired) {
			return err
		}
		s.forget(l)
	}
}

// take acts on a control message. An error ends the connection.
func (s *Session) take(l *link, m *message) error {
	switch m.Type {
	case typeDrain:
	case typeBye:
		return errHungUp
	case typeRetire:
		l.handlers.Go(l.release) // it may wait for long
		return nil
	default:
		return s.side.message(l, m)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.peerSaid {
		s.peerSaid = true
		close(s.peerDraining)
	}
	return nil
}

// SendRequestLine sends a line to an agent or a forwarder. It never blocks, and drops lines when
// the peer or its connection is slow.
func (s *Session) SendRequestLine(l RequestLine) {
	s.startLines.Do(func() { go s.sendLines() })
	select {
	case s.lines <- l:
	default:
	}
}

// linesPause is how long lines wait for others after some were sent: to wake who sends them, and
// who takes them, costs more than a line.
const linesPause = 2 * time.Millisecond

// sendLines sends the lines that wait. Those that come while it is busy, or pauses, go into one
// message.
func (s *Session) sendLines() {
	var b []byte
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		if len(s.lines) == 0 { // not while many wait
			select {
			case <-pause.C:
			case <-s.done:
				return
			}
		}
		select {
		case l := <-s.lines:
			b = appendLines(b[:0], &l, s.lines)
			// a line that is lost is lost; done ends the loop
			_ = s.overOne(func(l *link) error { return l.sent(l.ctrl.sendLater(b)) })
			pause.Reset(linesPause)
		case <-s.done:
			return
		}
	}
}
