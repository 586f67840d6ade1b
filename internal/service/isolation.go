// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/peers"
)

const (
	// staleAfter is how old the last answered beat of a replica is whose store does not answer: a beat
	// and its time-out.
	staleAfter = 4 * time.Second
	// isolatedAfter is how much later than this replica another one must have been answered by the
	// store, so that this one alone is without it.
	isolatedAfter = 5 * time.Second
	// heardFor is how long it counts what another replica has said: several pings.
	heardFor = 15 * time.Second
)

// isolation decides what a replica may serve from memory while the store does not answer it. When
// the store answers no replica, nothing can change, and all is served as before. When it answers
// others, changes are missed here: those that this replica was told of and could not read are not
// served, and past the lease nothing that a traffic policy guards. It is safe for concurrent use.
type isolation struct {
	lease time.Duration
	clock monotonicClock

	beaten atomic.Int64 // time of clock when the last answered beat began
	alone  atomic.Bool  // the store answers another replica
	closed atomic.Bool  // what a traffic policy guards is not served

	count  atomic.Int64 // number of unread changes
	mu     sync.Mutex
	unread map[string]*unreadChange // by id of the endpoint, or else of the account
}

// monotonicClock is never set. *lease.Lease has one.
type monotonicClock interface{ Now() time.Duration }

// unreadChange is a change whose objects could not be read.
type unreadChange struct {
	accountID string
	confirmed bool // the store has answered the replica that made the change since
}

// newIsolation returns the isolation of a replica that the store has just answered.
func newIsolation(lease time.Duration, clock monotonicClock) *isolation {
	i := &isolation{lease: lease, clock: clock, unread: make(map[string]*unreadChange)}
	i.setBeaten(clock.Now())
	return i
}

// setBeaten records that the store has answered a beat that began at a time of the clock.
func (i *isolation) setBeaten(began time.Duration) { i.beaten.Store(int64(began)) }

// storeAge returns how long ago the last answered beat began.
func (i *isolation) storeAge() time.Duration { return i.clock.Now() - time.Duration(i.beaten.Load()) }

// update compares this replica with what the others have said of the store. Where none has been
// heard for heardFor, the store may answer one of them.
func (i *isolation) update(others []peers.Status) {
	own, alone, heard := i.storeAge(), false, len(others) == 0
	for _, o := range others {
		if o.Heard.IsZero() {
			continue
		}
		since := time.Since(o.Heard)
		heard = heard || since < heardFor
		alone = alone || o.StoreAge >= 0 && own-(o.StoreAge+since) > isolatedAfter
	}
	i.alone.Store(alone)
	i.closed.Store(own > i.lease && (alone || !heard))
}

// ready returns an error while the store answers other replicas and not this one.
func (i *isolation) ready() error {
	if i.alone.Load() {
		return errors.New("the database answers other replicas, and not this one")
	}
	return nil
}

// Check returns CodeUnavailable for an endpoint that may have changed or been deleted.
func (i *isolation) Check(ep *account.Endpoint) error {
	if i.closed.Load() && ep.TrafficPolicy != "" {
		return account.Errorf(account.CodeUnavailable, "the traffic policy of %s may have changed: the store answers "+
			"other servers, and not this one", ep.URL)
	}
	if i.isUnread(ep.ID) || i.isUnread(ep.AccountID) {
		return account.Errorf(account.CodeUnavailable, "%s has changed, and the store does not answer this server",
			ep.URL)
	}
	return nil
}

func (i *isolation) isUnread(id string) bool {
	if i.count.Load() == 0 {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.unread[id]
	return c != nil && (c.confirmed || i.alone.Load())
}

// read calls read, which reads from the store what a change is about, unless the store is known not
// to answer. Where it could not be read, the change is kept as unread; the error is nil if that is
// enough, because the change will not be read from the store soon.
func (i *isolation) read(c peers.Change, read func() error) error {
	err := error(errStale)
	if i.storeAge() < staleAfter {
		if err = read(); err == nil {
			return nil
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range unreadIDs(c) {
		before := i.unread[id]
		i.unread[id] = &unreadChange{c.AccountID, c.StoreAnswers || before != nil && before.confirmed}
	}
	i.count.Store(int64(len(i.unread)))
	if c.StoreAnswers {
		return nil
	}
	return err
}

var errStale = account.Errorf(account.CodeUnavailable, "the store does not answer")

// unreadIDs returns the ids of the change's endpoints; the account's when it is about other objects.
func unreadIDs(c peers.Change) []string {
	other := func(id string) bool { return !strings.HasPrefix(id, account.PrefixEndpoint+"-") }
	if len(c.IDs) == 0 || slices.ContainsFunc(c.IDs, other) {
		return []string{c.AccountID}
	}
	return c.IDs
}

// readAgain reads the unread changes with read, once the store answers.
func (i *isolation) readAgain(ctx context.Context, read func(ctx context.Context, c peers.Change) error) error {
	if i.count.Load() == 0 || i.storeAge() >= staleAfter {
		return nil
	}
	i.mu.Lock()
	again := maps.Clone(i.unread)
	i.mu.Unlock()
	for id, u := range again {
		c := peers.Change{Kind: peers.ChangeAccess, AccountID: u.accountID}
		if id != u.accountID {
			c.IDs = []string{id}
		}
		if err := read(ctx, c); err != nil {
			return err
		}
		i.mu.Lock()
		if i.unread[id] == u { // else there is a later change
			delete(i.unread, id)
		}
		i.count.Store(int64(len(i.unread)))
		i.mu.Unlock()
	}
	return nil
}
