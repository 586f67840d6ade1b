// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bind binds an endpoint or a labelled tunnel and waits for the answer, at most 10 s. It returns an
// *Error when the server refused, or lacks a feature that the bind needs and would silently ignore
// it.
func (s *Session) Bind(ctx context.Context, b Bind) (Bound, error) {
	b.BindID = rand.Text()
	// A server that does not know BindID starts a second tunnel.
	repeat := b.URL != "" || slices.Contains(s.welcome.Features, FeatureBindID)
	answer, _, err := s.requests.send(ctx, &message{Type: typeBind, Bind: &b}, repeat)
	if err != nil {
		return Bound{}, fmt.Errorf("binding %s: %w", b.describe(), err)
	}
	if answer.Bound == nil {
		return Bound{}, fmt.Errorf("binding %s: the server answered with %q", b.describe(), answer.Type)
	}
	return *answer.Bound, nil
}

// describe names the bind for messages.
func (b *Bind) describe() string {
	if b.URL == "" {
		return "a labelled tunnel"
	}
	return b.URL
}

// Unbind unbinds an endpoint or a labelled tunnel and waits for the answer, at most 10 s.
func (s *Session) Unbind(ctx context.Context, endpointID string) error {
	_, repeated, err := s.requests.send(ctx, &message{Type: typeUnbind, Unbind: &unbind{EndpointID: endpointID}}, true)
	var refused *Error
	switch {
	case err == nil:
		return nil
	case repeated && errors.As(err, &refused) && refused.Code == CodeInvalid:
		return nil // it is not bound any more: the request whose answer was lost has unbound it
	}
	return fmt.Errorf("unbinding %s: %w", endpointID, err)
}

// requests sends the client's requests, and hands each of them its answer. The session's mutex
// guards pending and lastID.
type requests struct {
	session *Session
	pending map[uint64]chan *message // pending takes the answers, by the request's id.
	lastID  uint64
}

// send sends m and waits for the answer with its id, over a connection whose server has the
// features that a bind needs. If the connection ends before that, it sends m over another one when
// repeat is true; repeated reports that it did.
func (r *requests) send(ctx context.Context, m *message, repeat bool) (answer *message, repeated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	for s := r.session; ; repeated = true {
		s.mu.Lock()
		if len(s.links.active) == 0 || s.closing {
			defer s.mu.Unlock()
			return nil, repeated, s.endedError()
		}
		l, err := s.links.forRequest(m.Bind)
		s.mu.Unlock()
		if err != nil {
			return nil, repeated, err
		}
		answer, err := r.sendOver(ctx, l, m)
		if err == nil || l.ctx.Err() == nil || ctx.Err() != nil || !repeat {
			return answer, repeated, err
		}
		if s.removeLinkFromChoice(l); !s.CanOpen() {
			return nil, repeated, err
		}
	}
}

// sendOver sends m over l and waits for the answer. An l whose replica does not answer is found to
// be unresponsive, so that the next request goes to another one.
func (r *requests) sendOver(ctx context.Context, l *link, m *message) (*message, error) {
	answer := make(chan *message, 1)
	r.session.mu.Lock()
	r.lastID++
	m.ID = r.lastID
	r.pending[m.ID] = answer
	r.session.mu.Unlock()
	defer func() {
		r.session.mu.Lock()
		delete(r.pending, m.ID)
		r.session.mu.Unlock()
	}()
	if r.session.welcome.ReplicaID != "" {
		defer l.mux.OnUnresponsive(func() {})()
	}
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

// handleAnswer passes an answer to the request that waits for it. A late one is dropped.
func (r *requests) handleAnswer(m *message) {
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	if ch := r.pending[m.ID]; ch != nil {
		delete(r.pending, m.ID)
		ch <- m
	}
}

// Drain announces to the peer, a client's session to each replica, that this side stops within d.
// From then on the peer opens no streams; nor does a server that drains. A client that drains may
// continue to open streams. Drain does not wait for replicas that do not respond.
func (s *Session) Drain(d time.Duration) error {
	m := &message{Type: typeDrain, Drain: &drain{DeadlineMS: d.Milliseconds()}}
	s.mu.Lock()
	s.draining, s.drainDeadline = true, time.Now().Add(d)
	responds := s.links.responding() // the server's side has one replica, ""
	if len(responds) == 0 {
		defer s.mu.Unlock()
		return s.endedError()
	}
	s.mu.Unlock()
	var errs []error
	for replicaID, yes := range responds {
		isOfReplica := func(l *link) bool { return l.replicaID == replicaID }
		if yes || len(responds) == 1 {
			errs = append(errs, s.sendMessage(isOfReplica, m))
		} else {
			go func() { _ = s.sendMessage(isOfReplica, m) }() // ends within controlTimeout
		}
	}
	return errors.Join(errs...)
}

// anyLink accepts every connection.
func anyLink(*link) bool { return true }

// sendMessage sends a message over the first connection that may be used and takes it.
func (s *Session) sendMessage(mayUse func(*link) bool, m *message) error {
	return s.trySend(mayUse, func(l *link) error { return l.send(m) })
}

// trySend calls send with one connection after the other of those that may be used until one takes
// the message, at last with those that are being retired.
func (s *Session) trySend(mayUse func(*link) bool, send func(*link) error) error {
	var tried []*link
	for {
		s.mu.Lock()
		var l *link
		if i := slices.IndexFunc(s.links.active, mayUse); i >= 0 {
			l = s.links.active[i]
		} else if i := slices.IndexFunc(s.links.retiring, func(l *link) bool {
			return mayUse(l) && !slices.Contains(tried, l)
		}); i >= 0 {
			l = s.links.retiring[i]
			tried = append(tried, l)
		}
		if l == nil || s.closing {
			defer s.mu.Unlock()
			return s.endedError()
		}
		s.mu.Unlock()
		err := send(l)
		if err == nil || l.ctx.Err() == nil && !errors.Is(err, errRetired) {
			return err
		}
		s.removeLinkFromChoice(l)
	}
}

// handleMessage handles a control message. An error ends the connection.
func (s *Session) handleMessage(l *link, m *message) error {
	switch m.Type {
	case typeDrain:
	case typeBye:
		return errHungUp
	case typeRetire:
		l.handlers.Go(l.finishRetiring) // it may wait for a long time
		return nil
	default:
		return s.handler.handleMessage(l, m)
	}
	if l.replicaID != "" {
		s.legs.handleReplicaDrain(l, time.Duration(m.Drain.DeadlineMS)*time.Millisecond)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.markLinksDrainingLocked("")
	s.setPeerDrainingLocked()
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

// linesInterval is the least time between two messages of request lines: fewer, larger messages
// cost fewer wake-ups of sender and receiver.
const linesInterval = 2 * time.Millisecond

// sendLines sends the waiting lines. Those that arrive during a send or the interval after it go
// into one message.
func (s *Session) sendLines() {
	var b []byte
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		if len(s.lines) == 0 { // no pause while more lines wait
			select {
			case <-pause.C:
			case <-s.done:
				return
			}
		}
		select {
		case l := <-s.lines:
			b = appendLines(b[:0], &l, s.lines)
			// errors are ignored: lines may be lost; done ends the loop
			_ = s.trySend(anyLink, func(l *link) error { return l.closeOnSendError(l.ctrl.sendLater(b)) })
			pause.Reset(linesInterval)
		case <-s.done:
			return
		}
	}
}
