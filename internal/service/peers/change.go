// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// ChangeKind is what a Change is about.
type ChangeKind string

// The kinds of changes.
const (
	ChangePeople   ChangeKind = "people"   // IDs are sessions of people that are over
	ChangeSessions ChangeKind = "sessions" // IDs are tunnel sessions to compare with the store
	// ChangeAccess: authtokens, operators, domains and API keys of the account are to be compared
	// with the store. IDs are endpoints and backends to read again, if the change is about these alone.
	ChangeAccess ChangeKind = "access"
)

// Change tells the other replicas what a commit has ended.
type Change struct {
	Kind      ChangeKind `json:"kind"`
	AccountID string     `json:"account_id,omitempty"`
	IDs       []string   `json:"ids,omitempty"`
	// AccountIDs are the accounts of the sessions of ChangeSessions, which has no AccountID; empty if it
	// is about all accounts.
	AccountIDs []string `json:"account_ids,omitempty"`
	// Code and Message are for the clients whose sessions are over, in ChangeSessions.
	Code    tunnel.Code `json:"code,omitempty"`
	Message string      `json:"message,omitempty"`
	// StoreAnswers is set when the replica failed to apply the change, and the store has answered the
	// one that tells it since: a replica that cannot read what has changed must not serve it.
	StoreAnswers bool `json:"store_answers,omitempty"`
}

const (
	// publishGrace is how much longer than the lease Publish waits.
	publishGrace = time.Second
	minRetry     = 50 * time.Millisecond // before a change is published again; doubled with each attempt
	maxRetry     = time.Second
)

// Publish tells all peers a change that has been committed. It returns nil when it is true on every
// replica: each one in the registry has answered that it has applied it, or is not in the registry
// any more, or Lease + 1 s have passed, within which each one compares with the store or serves no
// people any more. The error is ctx's, or that Run has ended.
//
// The registry is read once, so that a replica which joined before the commit is told; one that
// joins later compares with the store before it serves. While the registry cannot be read, the
// known replicas are told, and Publish waits for the lease.
func (p *Peers) Publish(ctx context.Context, c Change) error {
	p.forget(c)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pub := &publication{peers: p, ctx: ctx, change: c, told: make(map[string]*peer),
		answers: make(chan string)}
	defer pub.release()
	deadline := time.NewTimer(p.opt.Lease + publishGrace)
	defer deadline.Stop()
	retry := time.NewTimer(maxRetry) // until a read that failed is repeated
	retry.Stop()
	changes := p.registry.changes()
	read := p.registry.start() // begins after the commit
	pub.tellAll()
	current := false // the list is one of after the commit
	for {
		if current && len(pub.told) == 0 {
			return nil
		}
		select {
		case id := <-pub.answers:
			pub.remove(id)
		case <-read.done:
			current = read.err == nil
			pub.tellAll()
			read = &registryRead{} // never done
			if !current {
				retry.Reset(maxRetry)
			}
		case <-retry.C:
			read = p.registry.start()
		case <-changes:
			changes = p.registry.changes()
			pub.removeGone()
		case <-deadline.C:
			pub.recordOverdue()
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ctx.Done():
			return errClosed
		}
	}
}

// publication is a change that peers are being told.
type publication struct {
	peers   *Peers
	ctx     context.Context
	change  Change
	told    map[string]*peer // told are the peers that have not answered, by id.
	done    []string         // done are the ids of peers that have answered or are gone.
	answers chan string
}

// tellAll tells the peers in the registry that have not been told, and removes those that are gone.
func (pub *publication) tellAll() {
	for id, pr := range pub.peers.livePeers() {
		if pub.told[id] != nil || slices.Contains(pub.done, id) {
			continue
		}
		if pub.peers.tasks.Start(func() { pub.tell(pr) }) {
			pub.told[id] = pr
			pr.pending.Add(1)
		}
	}
	pub.removeGone()
}

// tell repeats the change until the peer has answered.
func (pub *publication) tell(pr *peer) {
	ctx, cancel := context.WithCancel(pub.ctx)
	defer cancel()
	defer context.AfterFunc(pr.ctx, cancel)()
	change := pub.change
	for wait := minRetry; ; wait = min(2*wait, maxRetry) {
		err := pr.sendChange(ctx, change)
		if err == nil {
			break
		}
		pub.peers.log.Debug("a replica did not apply a change", "replica", pr.id, "kind", pub.change.Kind, "err", err)
		read := pub.peers.registry.start() // it may have left
		if !timer.Sleep(ctx, wait) {
			return
		}
		change.StoreAnswers = read.succeeded()
	}
	select {
	case pub.answers <- pr.id:
	case <-pub.ctx.Done():
	}
}

func (pub *publication) removeGone() {
	for id, pr := range pub.told {
		if pr.ctx.Err() != nil {
			pub.remove(id)
		}
	}
}

func (pub *publication) remove(id string) {
	if pr := pub.told[id]; pr != nil {
		pr.pending.Add(-1)
		delete(pub.told, id)
		pub.done = append(pub.done, id)
	}
}

// release stops counting the change as pending.
func (pub *publication) release() {
	for _, pr := range pub.told {
		pr.pending.Add(-1)
	}
}

func (pub *publication) recordOverdue() {
	for _, pr := range pub.told {
		pr.overdue.Add(1)
		pr.peers.overdue.Add(1)
	}
	pub.peers.log.Warn("replicas did not answer a change within their lease; they have stopped serving people",
		"kind", pub.change.Kind, "replicas", strings.Join(slices.Sorted(maps.Keys(pub.told)), " "))
}

// sendChange returns nil when the peer has applied the change.
func (pr *peer) sendChange(ctx context.Context, c Change) error {
	parts := slices.Collect(slices.Chunk(c.IDs, maxChangeIDs))
	if len(parts) == 0 {
		parts = [][]string{nil}
	}
	for _, ids := range parts {
		c.IDs = ids
		b, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("encoding a change: %w", err)
		}
		if err := pr.call(ctx, http.MethodPost, pathChanges, b, nil); err != nil {
			return err
		}
	}
	return nil
}

// serveChange applies the change of a peer.
func (a api) serveChange(w http.ResponseWriter, r *http.Request) {
	p := a.peers
	c, err := readBody(w, r, maxChangeSize, decodeChange)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), p.opt.Lease+publishGrace)
	defer cancel()
	err = p.opt.Local.Apply(ctx, c)
	p.forget(c)
	if err != nil {
		p.log.Warn("a replica's change could not be applied", "kind", c.Kind, "account", c.AccountID, "err", err)
		http.Error(w, "the change could not be applied", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func decodeChange(b []byte) (Change, error) {
	c, err := decode[Change](b, "a change")
	if err == nil && c.Kind == "" {
		err = errors.New("decoding a change: its kind is missing")
	}
	return c, err
}
