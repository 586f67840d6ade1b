// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// breaker injects the faults of a history.
type breaker struct {
	*history
	ctx    context.Context
	random *rand.Rand
	people *people
}

// breakAll injects the faults in the order of the seed, after a quiet time.
func (b *breaker) breakAll(rounds int) {
	defer b.breaking.Store(false)
	b.awaitQuietTakeovers()
	b.lossy.Store(true)
	defer b.lossy.Store(false)
	for round := range rounds {
		faults := []func(){b.cutDatabase, b.crash, b.isolate, b.silence, b.cutPeers}
		if round == 0 {
			faults = append(faults, b.promote)
		}
		b.random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		for _, fault := range faults {
			if b.ctx.Err() != nil {
				return
			}
			b.pause(b.random, 500*time.Millisecond)
			b.faults.begin()
			fault()
			b.faults.over()
		}
	}
	b.pause(b.random, time.Second)
}

// isQuiet reports whether nothing was broken yet.
func (h *history) isQuiet() bool { return !h.lossy.Load() && h.breaking.Load() }

// awaitQuietTakeovers waits until agents have taken endpoints over while nothing was broken, in
// which case all services must have heard of it when it was answered.
func (b *breaker) awaitQuietTakeovers() {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline) && b.counts.strict.Load() < 4; {
		b.pause(b.random, time.Second)
	}
}

func (b *breaker) pick() *historyReplica { return b.replicas[b.random.IntN(historyReplicas)] }

// pickOther returns a replica that is not r.
func (b *breaker) pickOther(r *historyReplica) *historyReplica {
	for {
		if other := b.pick(); other != r {
			return other
		}
	}
}

// pickMode returns a way to cut connections.
func (b *breaker) pickMode() relayMode {
	return []relayMode{relayRefuses, relayHolds}[b.random.IntN(2)]
}

// count logs and counts a fault.
func (b *breaker) count(format string, args ...any) {
	b.injected++
	b.t.Logf("%s: "+format, append([]any{time.Now().Format("05.000")}, args...)...)
}

// cutDatabase cuts a service from the database for less than the others take to fence it.
func (b *breaker) cutDatabase() {
	r, mode := b.pick(), b.pickMode()
	b.count("%s has no database (%d)", r.host, mode)
	r.database.begin()
	defer r.database.over()
	r.setPostgres(mode, false)
	b.pause(b.random, 2*time.Second)
	r.setPostgres(relayPasses, b.random.IntN(2) == 0)
}

// cutPeers cuts a service from the others, and revokes a person whose streams it has.
func (b *breaker) cutPeers() {
	r, mode := b.pick(), b.pickMode()
	b.count("%s does not reach the others (%d)", r.host, mode)
	witness, streams := b.openAt(r)
	r.setPeers(mode, false)
	if witness != nil {
		witness.revoke(b.ctx, b.random, r, streams...)
	}
	r.setPeers(relayPasses, mode == relayHolds)
}

// disturbAll marks that no service reaches the database, until the function that it returns is
// called.
func (b *breaker) disturbAll() (over func()) {
	for _, r := range b.replicas {
		r.database.begin()
	}
	return func() {
		for _, r := range b.replicas {
			r.database.over()
		}
	}
}

// crash kills the database and starts it again.
func (b *breaker) crash() {
	b.count("the database crashes")
	defer b.disturbAll()()
	b.must(b.primary.Crash())
	b.must(b.primary.Up())
}

// promote kills the database and promotes its standby, which has all that was acknowledged.
func (b *breaker) promote() {
	b.count("the standby is promoted")
	defer b.disturbAll()()
	b.must(b.primary.Crash())
	b.must(b.standby.Promote(b.ctx))
	b.primary = b.standby // the old one stays down
}

// openAt opens streams of a new person at a service, which must be ready.
func (b *breaker) openAt(r *historyReplica) (*person, []*personStream) {
	o := b.people.newPerson(b.ctx, b.random)
	var streams []*personStream
	for deadline := time.Now().Add(10 * time.Second); o != nil && len(streams) < 2 && time.Now().Before(deadline); {
		path := []string{"/websocket", "/download"}[len(streams)]
		if s := o.stream(b.ctx, r.now.Load(), path); s != nil {
			streams = append(streams, s)
		} else {
			b.pause(b.random, 100*time.Millisecond)
		}
	}
	return o, streams
}

// isolate cuts a service from the database and the others until they have fenced it, with streams
// of a person open who is revoked meanwhile, and ends another service and starts it again. The
// isolated one then finds itself fenced and begins anew.
func (b *breaker) isolate() {
	r, mode := b.pick(), b.pickMode()
	was, row := r.waitReady(), r.rowID()
	revoked, streams := b.openAt(r)
	kept, leased := b.openAt(r)
	b.count("%s is isolated (%d)", r.host, mode)
	r.database.begin()
	defer r.database.over()
	r.setPostgres(mode, false)
	r.setPeers(mode, false)
	cut := time.Now()
	joining := make(chan struct{})
	go func() {
		defer close(joining)
		other := b.pickAfter(r)
		b.t.Logf("%s ends without a word, and joins again", other.host)
		other.kill()
		other.restart()
	}()
	if revoked != nil {
		revoked.revoke(b.ctx, b.random, r, streams...)
	}
	if kept != nil {
		for _, s := range leased {
			s.requireOver(b.history, "the lease's end", cut.Add(historyLease+300*time.Millisecond))
		}
	}
	<-joining
	b.awaitFence(r, row)
	r.setPeers(relayPasses, mode == relayHolds)
	r.setPostgres(relayPasses, mode == relayHolds && b.random.IntN(2) == 0)
	b.awaitNew(r, was)
}

// pickAfter returns a replica that is not r, without the random numbers.
func (b *breaker) pickAfter(r *historyReplica) *historyReplica {
	for i, one := range b.replicas {
		if one == r {
			return b.replicas[(i+1)%historyReplicas]
		}
	}
	return nil
}

// awaitFence waits until the others have fenced the service.
func (b *breaker) awaitFence(r *historyReplica, row string) {
	wait.Until(b.t, "a fence", func() bool { now := r.rowID(); return now != row && now != "unknown" })
}

// awaitNew waits until the service has begun anew.
func (b *breaker) awaitNew(r *historyReplica, was *incarnation) {
	wait.Until(b.t, "a fenced service to begin anew", func() bool {
		now := r.now.Load()
		return now != nil && now != was
	})
	b.fenced++
}

// silence holds the beats of a service, which reaches everything else, until the others have fenced
// it. It is written through then, before it knows. Meanwhile the clock of another one is set.
func (b *breaker) silence() {
	r := b.pick()
	was, row := r.waitReady(), r.rowID()
	b.count("%s beats no more", r.host)
	r.database.begin() // traffic without a login may be served as it was by one that is fenced
	defer r.database.over()
	for _, p := range r.postgres {
		p.mute(true)
	}
	b.stepClock(b.pickOther(r))
	b.awaitFence(r, row)
	if r.now.Load() == was {
		at := time.Now()
		was.fencedAt.Store(&at)
		for i := range 5 {
			b.call(b.ctx, was, b.apiKey, http.MethodPost, "/backends/http_response",
				map[string]any{"status_code": 204, "description": fmt.Sprint("late ", i)})
		}
	}
	for _, p := range r.postgres {
		p.mute(false)
	}
	b.awaitNew(r, was)
}

// stepClock sets the wall clock of a service by more than its lease: what it serves to people ends,
// and they are served again when it has asked the database.
func (b *breaker) stepClock(r *historyReplica) {
	step := (historyLease + 10*time.Second) * time.Duration(1-2*b.random.IntN(2))
	o, streams := b.openAt(r)
	b.count("the clock of %s is set by %s", r.host, step)
	r.step.Add(int64(step))
	at := time.Now()
	for _, s := range streams {
		s.requireOver(b.history, "the step of the clock", at.Add(time.Second))
	}
	if o == nil {
		return
	}
	wait.Until(b.t, "a person to be served again", func() bool {
		status, _, _, err := o.get(b.ctx, r.now.Load(), peopleURL+"/me")
		return err == nil && status == http.StatusOK
	})
}
