// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// Only the replica with an agent's connections detects that the agent does not respond. While calls
// wait on relayed streams (tunnel.Stream.OnUnresponsive), the relaying replica therefore asks this
// peer which of the streams' agents do not respond. The peer pings the agents meanwhile, and
// answers as soon as one does not respond, or after silentWait.

const (
	pathSilent = "/silent"
	// watchDelay is how long a call waits before its stream is asked about: most have ended by then.
	watchDelay = 250 * time.Millisecond
	// silentWait is how long a peer waits for an agent that becomes unresponsive.
	silentWait = time.Second
	// maxWatched bounds the streams of one question.
	maxWatched = 1000
)

// silentMessage has the RelayIDs of streams: those to watch, or those whose agents do not respond.
type silentMessage struct {
	Streams []uint64 `json:"streams"`
}

// agentWatch has the calls that wait for streams of a link.
type agentWatch struct {
	mu      sync.Mutex
	waiting map[*agentWait]struct{}
	polling bool
}

// agentWait is a call that waits for a stream to the member's agent.
type agentWait struct {
	relayID uint64
	member  *Member
	since   time.Time
	call    func()
}

// watchAgent calls f when the agent of the stream with the RelayID does not respond, unless stop is
// called before.
func (m *Member) watchAgent(relayID uint64, f func()) (stop func()) {
	w, a := &m.link.watch, &agentWait{relayID, m, time.Now(), f}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = make(map[*agentWait]struct{})
	}
	w.waiting[a] = struct{}{}
	if !w.polling {
		w.polling = m.link.peer.peers.tasks.Start(m.link.pollSilent)
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting, a)
	}
}

// due returns the calls that have waited for watchDelay, the oldest first and maxWatched at most.
// more reports whether any call waits; if none does, polling has ended.
func (w *agentWatch) due(now time.Time) (due []*agentWait, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for a := range w.waiting {
		if now.Sub(a.since) >= watchDelay {
			due = append(due, a)
		}
	}
	slices.SortFunc(due, func(a, b *agentWait) int { return a.since.Compare(b.since) })
	w.polling = len(w.waiting) > 0
	return due[:min(len(due), maxWatched)], w.polling
}

// remove removes a call, and reports whether it was still waiting.
func (w *agentWatch) remove(a *agentWait) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, waiting := w.waiting[a]
	delete(w.waiting, a)
	return waiting
}

// pollSilent asks the peer about streams until no call waits or the link is lost.
func (l *link) pollSilent() {
	for pause := watchDelay; timer.Sleep(l.ctx, pause); {
		pause = watchDelay
		due, more := l.watch.due(time.Now())
		switch {
		case !more:
			return
		case len(due) == 0:
			continue
		}
		silent, err := l.peer.askSilent(l.ctx, due)
		if err != nil {
			l.peer.peers.log.Debug("a replica does not tell whether agents respond", "replica", l.peer.id, "err", err)
			pause = silentWait
			continue
		}
		for _, a := range due {
			if slices.Contains(silent, a.relayID) && l.watch.remove(a) {
				a.member.setUnresponsive()
				a.call()
			}
		}
	}
}

func (pr *peer) askSilent(ctx context.Context, waiting []*agentWait) ([]uint64, error) {
	var m silentMessage
	for _, a := range waiting {
		m.Streams = append(m.Streams, a.relayID)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding the question for agents that do not respond: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, silentWait+questionTimeout)
	defer cancel()
	var answer []byte
	if err := pr.call(ctx, http.MethodPost, pathSilent, b, &answer); err != nil {
		return nil, err
	}
	m, err = decodeSilent(answer)
	return m.Streams, err
}

// relayedKey names a stream that this replica relays to an agent.
type relayedKey struct {
	caller string // the peer's id
	id     uint64
}

// relayedStreams are the streams that peers have opened to agents here. The zero value has none.
type relayedStreams struct {
	mu     sync.Mutex
	byID   map[relayedKey]*tunnel.Stream // byID has those whose peer may ask for their agents.
	number int
	ended  chan struct{} // ended is closed when number becomes 0; nil where nothing waits for it.
}

// add adds a stream. Until remove is called, the peer may ask whether its agent responds.
func (rs *relayedStreams) add(caller string, id uint64, agent *tunnel.Stream) (remove func()) {
	key := relayedKey{caller, id}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.number++
	if id != 0 { // 0: of a peer that does not ask
		if rs.byID == nil {
			rs.byID = make(map[relayedKey]*tunnel.Stream)
		}
		rs.byID[key] = agent
	}
	return func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		delete(rs.byID, key)
		if rs.number--; rs.number == 0 && rs.ended != nil {
			close(rs.ended)
			rs.ended = nil
		}
	}
}

// wait waits until there are none, or returns the error of ctx.
func (rs *relayedStreams) wait(ctx context.Context) error {
	rs.mu.Lock()
	if rs.number == 0 {
		rs.mu.Unlock()
		return nil
	}
	if rs.ended == nil {
		rs.ended = make(chan struct{})
	}
	ended := rs.ended
	rs.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// live returns those of the caller's streams that are live, by their RelayIDs.
func (rs *relayedStreams) live(caller string, ids []uint64) map[uint64]*tunnel.Stream {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	live := make(map[uint64]*tunnel.Stream, len(ids))
	for _, id := range ids {
		if st := rs.byID[relayedKey{caller, id}]; st != nil {
			live[id] = st
		}
	}
	return live
}

// serveSilent answers a peer which agents do not respond.
func (rs *relayedStreams) serveSilent(w http.ResponseWriter, r *http.Request) {
	answer(w, r, decodeSilent, func(asked silentMessage) ([]byte, error) {
		if len(asked.Streams) > maxWatched {
			return nil, fmt.Errorf("%d streams, at most %d are allowed", len(asked.Streams), maxWatched)
		}
		caller, err := replicaID(*r.TLS)
		if err != nil {
			return nil, err
		}
		live := rs.live(caller, asked.Streams)
		waitUnresponsive(r.Context(), live)
		silent := silentMessage{Streams: []uint64{}}
		for id, st := range live {
			if _, yes := st.Unresponsive(); yes {
				silent.Streams = append(silent.Streams, id)
			}
		}
		return json.Marshal(silent)
	})
}

// waitUnresponsive waits up to silentWait for one of the agents to be unresponsive.
func waitUnresponsive(ctx context.Context, streams map[uint64]*tunnel.Stream) {
	ctx, cancel := context.WithTimeout(ctx, silentWait)
	defer cancel()
	for _, st := range streams {
		defer st.OnUnresponsive(cancel)()
	}
	<-ctx.Done()
}

func decodeSilent(b []byte) (silentMessage, error) {
	return decode[silentMessage](b, "the streams whose agents do not respond")
}
