// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/peers"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
)

// publisher notifies the other servers with one store of sessions that have changed.
type publisher struct {
	replicas   Replicas        // nil for a server that is alone
	tasks      *sync.WaitGroup // goroutines that continue after a call
	unanswered atomic.Int64    // binds that the other servers have not answered within wait
	wait       time.Duration   // limit of a wait for the others: bindPublishTimeout, longer in tests

	mu          sync.Mutex
	unpublished map[string]string // accounts of sessions whose binds are not published yet, by session id
	publishing  bool              // publishing is set while publishPending runs.
	// nextPublications wait for another of their kind, publications are the latest that began.
	nextPublications, publications map[publicationKind]*publication
}

func newPublisher(replicas Replicas, tasks *sync.WaitGroup) *publisher {
	return &publisher{replicas: replicas, tasks: tasks, wait: bindPublishTimeout, unpublished: make(map[string]string),
		nextPublications: make(map[publicationKind]*publication), publications: make(map[publicationKind]*publication)}
}

// publish makes the other servers compare sessions of an account with the store, and waits until
// they have, or ctx is done.
func (pub *publisher) publish(ctx context.Context, accountID string, code tunnel.Code, msg string, ids ...string) {
	if pub.replicas != nil {
		pub.replicas.PublishSessions(ctx, peers.Change{Kind: peers.ChangeSessions, AccountIDs: []string{accountID},
			IDs: ids, Code: code, Message: msg})
	}
}

const (
	// bindPublishTimeout bounds how long a bind waits for the other servers.
	bindPublishTimeout = 500 * time.Millisecond
	// nextPublishTimeout is bindPublishTimeout while a server has not answered an earlier call: the
	// others answer within it.
	nextPublishTimeout = 50 * time.Millisecond
	// maxCollectTime is how long changes wait at most for the answers to an earlier publication, to
	// be told together. While a server has not answered an earlier call, they do not wait.
	maxCollectTime = bindPublishTimeout / 2
)

// publishBriefly notifies the other servers, also of a replaced traffic policy if policy is set,
// and waits for bindPublishTimeout at most, and for nextPublishTimeout while other calls have
// waited in vain: an agent that comes from a server that has died must not wait until that server
// is known to be dead. One that lives and did not answer compares with the store.
func (pub *publisher) publishBriefly(accountID, msg string, policy bool, sessionIDs ...string) {
	answered := pub.publishTogether(publicationKind{accountID, msg, policy}, sessionIDs...)
	wait := pub.wait
	if pub.unanswered.Load() > 0 {
		wait = nextPublishTimeout
	}
	if !waitFor(answered, wait) {
		pub.unanswered.Add(1)
		pub.tasks.Go(func() { <-answered; pub.unanswered.Add(-1) })
	}
}

// publicationKind is what calls have in common that share a publication.
type publicationKind struct {
	accountID, msg string
	policy         bool
}

// publication notifies the other servers of several changes at once: each of them reads everything
// that a session holds, and an agent may bind thousands of endpoints again.
type publication struct {
	sessionIDs []string      // sessions to publish; appended to until the publication begins
	answered   chan struct{} // answered is closed when the other servers have answered.
}

// publishTogether notifies the other servers of the sessions. While an earlier publication of the
// kind is unanswered, they are collected. The channel is closed when the others have answered.
func (pub *publisher) publishTogether(kind publicationKind, sessionIDs ...string) (answered <-chan struct{}) {
	pub.mu.Lock()
	defer pub.mu.Unlock()
	p := pub.nextPublications[kind]
	if p == nil {
		p = &publication{answered: make(chan struct{})}
		pub.nextPublications[kind] = p
		earlier := pub.publications[kind]
		pub.tasks.Go(func() {
			defer close(p.answered)
			if earlier != nil && pub.unanswered.Load() == 0 {
				waitFor(earlier.answered, maxCollectTime)
			}
			pub.send(kind, p)
		})
	}
	p.sessionIDs = append(p.sessionIDs, sessionIDs...)
	return p.answered
}

// waitFor waits until the channel is closed, and returns false when d has passed before.
func waitFor(done <-chan struct{}, d time.Duration) bool {
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case <-done:
		return true
	case <-timeout.C:
		return false
	}
}

// send sends a publication, which no further change joins.
func (pub *publisher) send(kind publicationKind, p *publication) {
	pub.mu.Lock()
	delete(pub.nextPublications, kind)
	pub.publications[kind] = p
	pub.mu.Unlock()
	slices.Sort(p.sessionIDs)
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	var both sync.WaitGroup
	if kind.policy {
		both.Go(func() { pub.replicas.PublishPolicy(ctx, kind.accountID) })
	}
	pub.publish(ctx, kind.accountID, "", kind.msg, slices.Compact(p.sessionIDs)...)
	both.Wait()
	pub.mu.Lock()
	defer pub.mu.Unlock()
	if pub.publications[kind] == p {
		delete(pub.publications, kind)
	}
}

// publishLater notifies the other servers of a session's bind, with those of other sessions.
func (pub *publisher) publishLater(t *session) {
	pub.mu.Lock()
	defer pub.mu.Unlock()
	pub.unpublished[t.id] = t.accountID
	if !pub.publishing {
		pub.publishing = true
		pub.tasks.Go(pub.publishPending)
	}
}

func (pub *publisher) publishPending() {
	for {
		pub.mu.Lock()
		ids := slices.Sorted(maps.Keys(pub.unpublished))
		accountIDs := slices.Compact(slices.Sorted(maps.Values(pub.unpublished)))
		clear(pub.unpublished)
		pub.publishing = len(ids) > 0
		pub.mu.Unlock()
		if len(ids) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		pub.replicas.PublishSessions(ctx, peers.Change{Kind: peers.ChangeSessions, AccountIDs: accountIDs, IDs: ids})
		cancel()
	}
}
