// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// personStream is an open websocket or download of a person.
type personStream struct {
	what   string
	cancel func()
	ended  chan struct{} // closed by its end

	mu      sync.Mutex
	written time.Time // when the upstream wrote the last line that came
	after   int       // bytes that came after mark was set
	mark    time.Time
}

// stream opens a stream of a person at a service and waits for its first line; nil when a fault
// prevents it.
func (o *person) stream(ctx context.Context, at *incarnation, path string) *personStream {
	if at == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var from io.ReadCloser
	if path == "/websocket" {
		conn, err := o.upgrade(ctx, at)
		if err != nil {
			cancel()
			return nil
		}
		from = conn
	} else {
		res, err := o.open(ctx, at, peopleURL+path)
		if err != nil {
			cancel()
			return nil
		}
		if from = res.Body; res.StatusCode != http.StatusOK {
			_ = from.Close()
			cancel()
			return nil
		}
	}
	s := &personStream{what: o.name + "'s " + path + " at " + at.r.host, ended: make(chan struct{})}
	s.cancel = func() { _ = from.Close(); cancel(); <-s.ended }
	first := make(chan struct{})
	go s.read(from, first)
	select {
	case <-first:
		return s
	case <-s.ended:
	case <-time.After(5 * time.Second):
	}
	s.cancel()
	return nil
}

// read reads the stream to its end.
func (s *personStream) read(from io.ReadCloser, first chan struct{}) {
	defer close(s.ended)
	defer func() { _ = from.Close() }()
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		nanos, _, _ := strings.Cut(line, " ")
		n, err := strconv.ParseInt(nanos, 10, 64)
		if err != nil {
			continue // the frame of a chunk
		}
		s.mu.Lock()
		if s.written.IsZero() {
			close(first)
		}
		s.written = time.Unix(0, n)
		if !s.mark.IsZero() {
			s.after += len(line)
		}
		s.mu.Unlock()
	}
}

// markAnswered counts what comes from now on.
func (s *personStream) markAnswered(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = at
}

// kernelHeld is how much of a stream may come after it was ended: a send buffer, and one write.
const kernelHeld = 256<<10 + 64<<10

// requireOver waits for the end of the stream, of which nothing may come that was written after the
// time.
func (s *personStream) requireOver(h *history, why string, at time.Time) {
	select {
	case <-s.ended:
	case <-time.After(historyLease):
		h.t.Errorf("%s is open %s after %s", s.what, historyLease, why)
	}
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	h.counts.checks.Add(1)
	if s.written.After(at) {
		h.t.Errorf("%s: a line came that was written %s after %s", s.what, s.written.Sub(at), why)
	}
	if s.after > kernelHeld {
		h.t.Errorf("%s: %d bytes came after %s", s.what, s.after, why)
	}
}

// run logs people in, opens streams of theirs and revokes them, at any services.
func (p *people) run(ctx context.Context, random *rand.Rand) {
	for p.h.breaking.Load() && ctx.Err() == nil {
		o := p.newPerson(ctx, random)
		if o == nil {
			return
		}
		var streams []*personStream
		for i, path := range []string{"/websocket", "/events", "/download"} {
			at := p.h.replicas[(i+random.IntN(2))%historyReplicas].now.Load()
			if s := o.stream(ctx, at, path); s != nil {
				streams = append(streams, s)
			}
		}
		p.h.pause(random, 500*time.Millisecond)
		o.revoke(ctx, random, nil, streams...)
		if p.h.counts.again.Load() == 0 || random.IntN(2) == 0 {
			o.logInAgain(ctx, random)
		}
	}
}

// revoke revokes the person through any service but one, which may be nil, and checks that nothing
// is served to the person from then on.
func (o *person) revoke(ctx context.Context, random *rand.Rand, except *historyReplica, streams ...*personStream) {
	h := o.p.h
	for ctx.Err() == nil {
		to := h.any(random)
		if to == nil || to.r == except {
			h.pause(random, 20*time.Millisecond)
			continue
		}
		a := h.call(ctx, to, h.apiKey, http.MethodDelete, "/app/users/"+o.userID, nil)
		if a.status == http.StatusNotFound { // a call without an answer had been carried out
			for _, s := range streams {
				s.cancel()
			}
			return
		}
		if a.outcome == acknowledged {
			break
		}
		h.pause(random, 100*time.Millisecond)
	}
	answered := time.Now()
	h.counts.revoked.Add(1)
	for _, s := range streams {
		s.markAnswered(answered)
	}
	for _, r := range h.replicas {
		now := r.now.Load()
		if now == nil {
			continue
		}
		h.counts.checks.Add(1)
		had := o.cookies // an answer may delete them
		if status, _, _, err := o.get(ctx, now, peopleURL+"/me"); err == nil && status == http.StatusOK {
			h.t.Errorf("%s is served by %s after the revocation", o.name, r.host)
		}
		o.cookies = had
	}
	for _, s := range streams {
		s.requireOver(h, "the revocation", answered)
	}
}

// logInAgain logs a revoked person in. The provider must have been asked to ask the person again.
func (o *person) logInAgain(ctx context.Context, random *rand.Rand) {
	before := len(o.p.idp.AuthRequests())
	for ctx.Err() == nil {
		_, err := o.p.logIn(ctx, o.name, random)
		if err != nil {
			o.p.h.pause(random, 200*time.Millisecond)
			continue
		}
		asked := false
		for _, q := range o.p.idp.AuthRequests()[before:] {
			asked = asked || q.Get("prompt") == "login"
		}
		o.p.h.counts.again.Add(1)
		if !asked {
			o.p.h.t.Errorf("%s logged in after the revocation, and the provider was not asked to ask again", o.name)
		}
		return
	}
}
