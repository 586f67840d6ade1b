// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

const (
	maxBackoff   = 2 * time.Second // between two dials of a peer
	pingInterval = 3 * time.Second
	pingTimeout  = 2 * time.Second
)

// peer is another replica while it has a row in the registry.
type peer struct {
	peers  *Peers
	id     string
	ctx    context.Context // ends when the row is gone, or with Run
	cancel context.CancelFunc
	http   *http.Client

	relayedOut, relayedIn atomic.Int64 // streams
	pending               atomic.Int64 // changes that it has not answered yet
	overdue               atomic.Int64 // changes that it had not answered within the lease

	// closed when the first dial has succeeded or failed
	attempted chan struct{}

	// guarded by Peers.mu
	row       Replica
	link      *link     // nil: there is none
	since     time.Time // when the link was made, or lost
	lastErr   string    // why there is no link, or why the last ping failed
	silent    bool      // the last ping was not answered
	roundTrip time.Duration
	heard     time.Time     // when the last ping was answered
	storeAge  time.Duration // by that answer; -1 = unknown
	wasTried  bool          // attempted is closed
}

// link is a tunnel session with a peer and the members that were found through it.
type link struct {
	peer    *peer
	session *tunnel.Session
	ctx     context.Context // ends with the session
	watch   agentWatch

	// guarded by Peers.mu
	members map[memberKey]*Member
	answers map[queryKey]listing
}

func newPeer(p *Peers, row Replica) *peer {
	pr := &peer{peers: p, id: row.ID, row: row, attempted: make(chan struct{}), since: time.Now()}
	pr.ctx, pr.cancel = context.WithCancel(p.ctx)
	pr.http = newHTTPClient(p, row.ID)
	return pr
}

// run keeps the link until the peer's row is gone.
func (pr *peer) run() {
	defer pr.http.CloseIdleConnections()
	pinging := make(chan struct{})
	go func() {
		defer close(pinging)
		pr.keepPinging()
	}()
	for {
		client := tunnel.NewClient(pr.clientConfig())
		if err := client.Run(pr.ctx); err != nil { // final, as for a server of another kind
			pr.recordFailure(err)
		}
		if !timer.Sleep(pr.ctx, maxBackoff) {
			break
		}
	}
	<-pinging
}

func (pr *peer) clientConfig() tunnel.ClientConfig {
	p := pr.peers
	return tunnel.ClientConfig{
		Address: pr.address(), TLS: p.identity.clientTLS(pr.id), DialContext: p.opt.Dialer.DialContext,
		Hello:      func() tunnel.Hello { return tunnel.Hello{Role: tunnel.RoleForwarder, InstanceID: p.opt.ID} },
		MaxBackoff: maxBackoff,
		OnUp:       func(ctx context.Context, s *tunnel.Session) error { pr.linkUp(ctx, s); return nil },
		OnDown:     func(err error, _ time.Duration) { pr.recordFailure(err) },
		// no reader of this replica's lines: a peer sends none
		WindowBudget: p.opt.WindowBudget, Logger: p.opt.Logger,
	}
}

func (pr *peer) address() string {
	pr.peers.mu.Lock()
	defer pr.peers.mu.Unlock()
	return pr.row.RelayAddress
}

// linkUp uses a new session; ctx ends with it.
func (pr *peer) linkUp(ctx context.Context, s *tunnel.Session) {
	l := &link{peer: pr, session: s, ctx: ctx, members: make(map[memberKey]*Member),
		answers: make(map[queryKey]listing)}
	p := pr.peers
	p.mu.Lock()
	pr.link, pr.since, pr.lastErr, pr.silent = l, time.Now(), "", false
	clear(p.questions) // those that it was not asked
	pr.setAttemptedLocked()
	p.mu.Unlock()
	p.log.Info("linked with a replica", "replica", pr.id, "address", s.RemoteAddr())
	context.AfterFunc(ctx, func() { pr.linkDown(l) })
}

func (pr *peer) linkDown(l *link) {
	p := pr.peers
	p.mu.Lock()
	defer p.mu.Unlock()
	if pr.link == l {
		pr.link, pr.since, pr.roundTrip = nil, time.Now(), 0
	}
	for _, m := range l.members {
		m.cancel()
	}
	l.members = nil
}

// recordFailure records why there is no link. An error is logged when it is another than before.
func (pr *peer) recordFailure(err error) {
	p := pr.peers
	err = describeDialError(err, pr.address(), pr.id)
	p.mu.Lock()
	again := pr.lastErr == err.Error()
	pr.lastErr = err.Error()
	pr.setAttemptedLocked()
	level := slog.LevelWarn
	if pr.row.Draining {
		level = slog.LevelInfo
	}
	p.mu.Unlock()
	if !again && pr.ctx.Err() == nil {
		p.log.Log(pr.ctx, level, "no link with a replica", "replica", pr.id, "err", err)
	}
}

func (pr *peer) setAttemptedLocked() {
	if !pr.wasTried {
		pr.wasTried = true
		close(pr.attempted)
	}
}

// isSilentLocked reports whether a peer that has a link does not answer. Peers.mu must be held.
func (pr *peer) isSilentLocked() bool {
	_, yes := pr.link.session.Unresponsive()
	return yes || pr.silent
}

// keepPinging measures the round trip at rest. A peer that does not answer is not asked anything
// until it answers again.
func (pr *peer) keepPinging() {
	wait := time.Duration(0)
	for timer.Sleep(pr.ctx, wait) {
		wait = pingInterval
		select {
		case <-pr.attempted:
		case <-pr.ctx.Done():
			return
		}
		ctx, cancel := context.WithTimeout(pr.ctx, pingTimeout)
		began := time.Now()
		var answer []byte
		err := pr.call(ctx, http.MethodGet, pathPing, nil, &answer)
		cancel()
		if pr.ctx.Err() != nil {
			return
		}
		pr.recordPing(time.Since(began), decodePing(answer), err)
		if err != nil {
			wait = time.Second
		}
	}
}

func (pr *peer) recordPing(took, storeAge time.Duration, err error) {
	pr.peers.mu.Lock()
	defer pr.peers.mu.Unlock()
	pr.silent = err != nil
	switch {
	case err == nil:
		pr.roundTrip, pr.heard, pr.storeAge = took, time.Now(), storeAge
		if pr.link != nil {
			pr.lastErr = ""
		}
	case pr.link != nil:
		pr.lastErr = fmt.Sprintf("a ping was not answered: %v", err)
	}
}
