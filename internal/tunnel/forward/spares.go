// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	maxSpares         = 64 // for all endpoints together
	maxEndpointSpares = 4
	spareLifetime     = 45 * time.Second
	spareTimeout      = time.Second           // for the handshake
	sparesEnd         = 5 * time.Minute       // without a connection to the endpoint
	spareCheck        = 5 * time.Second       // between two looks at them
	spareDelay        = 20 * time.Millisecond // after a call, which goes first
	maxSparePause     = 10 * time.Minute
)

// spares are sealed connections whose handshake is over and that have no client yet: a few for each
// endpoint that was called lately. The zero value has none until KeepSpares runs. They are safe for
// concurrent use.
type spares struct {
	ending sync.WaitGroup // ending has the goroutines that end spares.

	mu      sync.Mutex
	changed chan struct{} // changed gets a token when one was asked for; nil = none are kept.
	sets    map[spareTarget]*spareSet
}

// spareTarget is whom spares are for.
type spareTarget struct {
	url        account.EndpointURL
	endpointID string
	by         *sealed.Trust
}

// spareSet has the spares of an endpoint.
type spareSet struct {
	spareTarget

	ready    []*spare
	wanted   int
	lastCall time.Time
	pause    time.Duration // pause follows a failure, doubled by each further one until a spare serves.
	retryAt  time.Time
}

// spare is a stream with a handshake.
type spare struct {
	*tunnel.Stream

	seal    *sealed.Spare
	set     *spareSet
	expires time.Time
}

// record records whether a spare could be made, kept or used.
func (s *spares) record(set *spareSet, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		set.pause = 0
		return
	}
	set.pause = min(max(2*set.pause, time.Second), maxSparePause)
	set.retryAt = time.Now().Add(set.pause)
}

// KeepSpares keeps spares for the endpoints that are called, until ctx is done.
func (r *Relay) KeepSpares(ctx context.Context) {
	s, changed := &r.spares, make(chan struct{}, 1)
	s.mu.Lock()
	s.changed, s.sets = changed, map[spareTarget]*spareSet{}
	s.mu.Unlock()
	look := time.NewTicker(spareCheck)
	defer look.Stop()
	for ctx.Err() == nil {
		if set := s.nextDue(); set != nil {
			if err := r.makeSpare(ctx, set); err != nil {
				s.record(set, err)
			}
			continue
		}
		select {
		case <-changed:
			timer.Sleep(ctx, spareDelay)
		case <-look.C:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	s.changed = nil
	s.mu.Unlock()
	r.DropSpares()
	s.ending.Wait()
}

// DropSpares ends all spares.
func (r *Relay) DropSpares() {
	s := &r.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	for to := range s.sets {
		s.drop(to)
	}
}

// drop ends the spares of an endpoint. mu must be held.
func (s *spares) drop(to spareTarget) {
	s.end(s.sets[to])
	delete(s.sets, to)
}

// end ends the spares of a set. mu must be held.
func (s *spares) end(set *spareSet) {
	for _, p := range set.ready {
		s.ending.Go(func() { _ = p.Abort() })
	}
	set.ready = nil
}

// nextDue ends the spares that are of no use any more, and returns a set that needs one, or nil.
func (s *spares) nextDue() (due *spareSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, total := time.Now(), 0
	for to, set := range s.sets {
		ready := set.ready
		set.ready = nil
		for _, p := range ready {
			if p.isUsable(now) {
				set.ready = append(set.ready, p)
				continue
			}
			set.wanted = max(1, set.wanted-1)
			s.ending.Go(func() {
				if p.HasEnded() {
					s.record(set, net.ErrClosed)
				}
				_ = p.Abort()
			})
		}
		total += len(set.ready)
		switch {
		case now.Sub(set.lastCall) >= sparesEnd:
			s.drop(to)
		case len(set.ready) < set.wanted && !now.Before(set.retryAt):
			due = set
		}
	}
	if total >= maxSpares {
		return nil
	}
	return due
}

// take returns a spare for the connection, or nil; then one will be made for the next one.
func (s *spares) take(c *Conn, by *sealed.Trust) *spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := spareTarget{c.URL, c.Header.EndpointID, by}
	set := s.sets[to]
	switch {
	case s.changed == nil, set == nil && len(s.sets) >= maxSpares:
		return nil
	case set == nil:
		set = &spareSet{spareTarget: to, wanted: 1}
		s.sets[to] = set
	case len(set.ready) == 0:
		set.wanted = min(2*set.wanted, maxEndpointSpares)
	}
	set.lastCall = time.Now()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	for i, p := range set.ready {
		if p.isUsable(set.lastCall) {
			set.ready = slices.Delete(set.ready, i, i+1)
			return p
		}
	}
	return nil
}

// isUsable reports whether a spare is young, and may serve the next connection as far as is known.
func (p *spare) isUsable(now time.Time) bool {
	return now.Before(p.expires) && !p.HasEnded() && p.PeerDraining().Err() == nil && p.seal.Proves(p.set.url)
}

// makeSpare adds a spare to the set.
func (r *Relay) makeSpare(ctx context.Context, set *spareSet) error {
	ctx, cancel := context.WithTimeout(ctx, spareTimeout)
	defer cancel()
	session := r.Sessions.Live()
	if session == nil {
		return net.ErrClosed
	}
	st, err := session.Open(ctx, tunnel.OpenHeader{EndpointID: set.endpointID, Scheme: set.url.Scheme,
		Host: set.url.Host, Port: set.url.Port, Deadline: spareTimeout, Sealed: true, SpareID: rand.Uint64() | 1})
	if err != nil {
		return err
	}
	p := &spare{Stream: st, set: set, expires: time.Now().Add(spareLifetime - rand.N(spareLifetime/4))}
	defer context.AfterFunc(ctx, func() { _ = st.Abort() })()
	if _, err = sealed.ReadHint(st); err == nil {
		p.seal, err = set.by.Handshake(ctx, st, set.url)
	}
	r.spares.mu.Lock()
	defer r.spares.mu.Unlock()
	if err != nil || r.spares.sets[set.spareTarget] != set { // the set was dropped
		r.spares.ending.Go(func() { _ = st.Abort() })
		return err
	}
	set.ready = append(set.ready, p)
	return nil
}

// openSpare opens a connection over a spare, if there is one that is of use; else it returns nil.
func (r *Relay) openSpare(ctx context.Context, c *Conn, by *sealed.Trust, h sealed.Header) *sealed.Conn {
	p := r.spares.take(c, by)
	if p == nil {
		return nil
	}
	until, _ := ctx.Deadline()
	h.Deadline = time.Until(until) / 2
	conn, err := p.use(ctx, c.Header, h)
	if r.spares.record(p.set, err); err != nil { // the next call must not wait for what may fail in the same way
		r.spares.mu.Lock()
		defer r.spares.mu.Unlock()
		r.spares.end(p.set)
	}
	return conn
}

// use makes a spare the connection of a client: it tells the edge whose it is, and the agent.
func (p *spare) use(ctx context.Context, client tunnel.OpenHeader, h sealed.Header) (*sealed.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Deadline)
	defer cancel()
	defer p.OnUnresponsive(cancel)()
	client.Sealed, client.SpareID = false, p.Header().SpareID
	told, err := p.OpenBeside(ctx, client)
	if err != nil {
		_ = p.Abort()
		return nil, err
	}
	defer func() { _ = told.Close() }()
	conn, err := p.seal.Open(ctx, h)
	if err != nil {
		return nil, err
	}
	if err := told.WaitOpened(ctx); err != nil {
		_ = conn.Abort()
		return nil, err
	}
	return conn, nil
}
