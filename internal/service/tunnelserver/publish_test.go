// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnelserver

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestBind_DoesNotWaitForDeadServer takes endpoints over while another server does not answer: the
// agent waits for bindPublishTimeout once, not for each endpoint, nor until the server is known to
// be dead.
func TestBind_DoesNotWaitForDeadServer(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 2)
	answer, ended := make(chan struct{}), make(chan struct{}, 100)
	defer close(answer)
	r.servers[1].replicas().publish = func(ctx context.Context, _, _ []string, _ tunnel.Code, _ string) {
		select {
		case <-ctx.Done():
			ended <- struct{}{}
		case <-answer:
		}
	}
	before, after := r.agent(0), r.agent(1)
	var binds []tunnel.Bind
	for i := range 10 {
		b := tunnel.Bind{URL: fmt.Sprintf("http://web-%d.demo", i)}
		b.ResumeSecret = before.bind(b).ResumeSecret
		binds = append(binds, b)
	}
	began := time.Now()
	for _, b := range binds {
		r.expect(after.bind(b).EndpointID, after, 1)
	}
	if took := time.Since(began); took < bindPublishTimeout || took > storeTimeout/2 {
		t.Errorf("ten endpoints are taken over after %s, want little more than %s", took, bindPublishTimeout)
	}
	storetest.Equal(t, "attempts to tell the other server that were given up", len(ended), 0)
}

// TestBind_WaitsForLiveServersBesideDeadOne binds again while an earlier change has not been
// answered, as a server has died: those that answer have done so when the bind is answered.
func TestBind_WaitsForLiveServersBesideDeadOne(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 1)
	s := r.servers[0]
	var answered atomic.Int32
	s.replicas().publish = func(context.Context, []string, []string, tunnel.Code, string) {
		<-time.After(nextPublishTimeout / 5)
		answered.Add(1)
	}
	a := r.agent(0)
	resume := a.bind(tunnel.Bind{URL: "http://web.demo"}).ResumeSecret
	wait.Until(t, "the new endpoint to be published", func() bool { return answered.Load() == 1 })
	s.binder.publisher.unanswered.Add(1)
	defer s.binder.publisher.unanswered.Add(-1)
	a.bind(tunnel.Bind{URL: "http://web.demo", ResumeSecret: resume})
	if answered.Load() != 2 {
		t.Error("the bind was answered before the other servers knew it")
	}
}

// TestBind_WaitsForReplacedPolicy binds an endpoint, which is offline and served by its policy, with
// another one: when the bind is answered, the other servers know it.
func TestBind_WaitsForReplacedPolicy(t *testing.T) {
	t.Parallel()
	r := newReplicas(t, 1)
	var told, policies atomic.Int32
	opt := r.servers[0].replicas()
	count := func(n *atomic.Int32) {
		<-time.After(10 * time.Millisecond)
		n.Add(1)
	}
	opt.publish = func(context.Context, []string, []string, tunnel.Code, string) { count(&told) }
	opt.publishPolicy = func(_ context.Context, accountID string) {
		storetest.Equal(t, "account", accountID, r.accountID)
		count(&policies)
	}
	before := r.agent(0)
	bind := tunnel.Bind{URL: "http://web.demo", TrafficPolicy: "first"}
	bind.ResumeSecret = before.bind(bind).ResumeSecret
	wait.Until(t, "the new endpoint to be published", func() bool { return told.Load() == 1 })
	before.stop()
	r.legs[0].awaitLeave(t)
	bind.TrafficPolicy = "second"
	after := r.agent(0)
	after.bind(bind)
	if told.Load() != 2 || policies.Load() != 1 {
		t.Errorf("the bind was answered when %d changes of sessions and %d of policies were published", told.Load(),
			policies.Load())
	}
}

// TestPublish_BatchesChanges holds that what comes while the other servers have not answered an
// earlier change is told by one call, which waits for a silent server only briefly.
func TestPublish_BatchesChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes      time.Duration // the answers of the others
		unanswered int64
		want       string
		within     time.Duration
	}{
		"others answer":  {100 * time.Millisecond, 0, "[ts-1] [ts-1 ts-2]", 200 * time.Millisecond},
		"one is silent":  {3 * time.Second, 0, "[ts-1] [ts-1 ts-2]", 3*time.Second + maxCollectTime},
		"one was silent": {3 * time.Second, 1, "[ts-1] [ts-1 ts-2]", 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var calls []string
				publish := func(_ context.Context, _, ids []string, _ tunnel.Code, msg string) {
					mu.Lock()
					if msg == "" {
						calls = append(calls, fmt.Sprint(ids))
					}
					mu.Unlock()
					time.Sleep(c.takes)
				}
				s := newPublisher(&fakeReplicas{publish: publish}, new(sync.WaitGroup))
				s.unanswered.Store(c.unanswered)
				began, kind := time.Now(), publicationKind{accountID: "ac-1"}
				first := s.publishTogether(kind, "ts-1")
				synctest.Wait()
				all := []<-chan struct{}{first,
					s.publishTogether(publicationKind{accountID: "ac-1", msg: "of another kind"}, "ts-3")}
				if c.unanswered == 0 {
					all = append(all, s.publishTogether(kind, "ts-2"), s.publishTogether(kind, "ts-1"))
				} else { // the next publication begins at once, so that a later call may be too late for it
					all = append(all, s.publishTogether(kind, "ts-2", "ts-1"))
				}
				for _, told := range all {
					<-told
				}
				if took := time.Since(began); took != c.within {
					t.Errorf("took %v, want %v", took, c.within)
				}
				storetest.Equal(t, "calls", strings.Join(calls, " "), c.want)
				s.tasks.Wait()
				if len(s.publications)+len(s.nextPublications) > 0 {
					t.Error("publications are kept")
				}
			})
		})
	}
}
