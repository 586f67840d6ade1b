// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// watcher keeps a copy of the list of endpoints: it lists at one server, watches at the next, and
// changes the server at each break and after some events.
type watcher struct {
	r     *rig
	every int // events of a watch; 0 = all

	mu        sync.Mutex
	endpoints map[string]string    // URL by id
	seen      map[string]time.Time // when a URL was first there
	offline   map[string]struct{}  // URLs that were offline, or deleted
	lists     int
	epochs    map[int64]struct{}
	failure   error // of a rule, not of a connection
}

func (r *rig) startWatcher(server, every int) *watcher {
	w := &watcher{r: r, every: every, seen: map[string]time.Time{}, offline: map[string]struct{}{},
		epochs: map[int64]struct{}{}}
	r.background("a watcher", nil, func(ctx context.Context) {
		for ; ctx.Err() == nil; server++ {
			w.followFrom(ctx, server)
		}
	})
	wait.Until(r.t, "first list of a watcher", func() bool { n, _ := w.state(); return n > 0 })
	return w
}

// state returns how many lists were read, and the endpoints' URLs by id.
func (w *watcher) state() (lists int, endpoints map[string]string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lists, maps.Clone(w.endpoints)
}

// seenAt returns when a URL was first there.
func (w *watcher) seenAt(url string) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.seen[url]
	return at, ok
}

func (w *watcher) pause(ctx context.Context) {
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
}

// followFrom lists at a server and watches, at others, too, until a version is gone.
func (w *watcher) followFrom(ctx context.Context, server int) {
	at := func() int { return server % len(w.r.replicas) }
	list, err := w.r.replicas[at()].api.ListEndpoints(ctx, account.EndpointFilter{})
	if err != nil {
		w.pause(ctx)
		return
	}
	w.replace(list.Endpoints, list.Version)
	for v := list.Version; ctx.Err() == nil; {
		server++
		if v, err = w.watch(ctx, at(), v); account.CodeOf(err) == account.CodeGone {
			return
		}
		if err != nil {
			w.pause(ctx)
		}
	}
}

func (w *watcher) replace(endpoints []account.Endpoint, v account.ResourceVersion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lists++
	w.epochs[v.Epoch] = struct{}{}
	w.endpoints = map[string]string{}
	for _, e := range endpoints {
		w.add(&e)
	}
}

func (w *watcher) add(e *account.Endpoint) {
	w.endpoints[e.ID] = e.URL
	if _, ok := w.seen[e.URL]; !ok {
		w.seen[e.URL] = time.Now()
	}
	if e.Status != account.StatusOnline {
		w.offline[e.URL] = struct{}{}
	}
}

// wasOffline returns whether an endpoint with a URL was offline or deleted once.
func (w *watcher) wasOffline(url string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, was := w.offline[url]
	return was
}

// watch applies the events of one watch and returns the version of the last.
func (w *watcher) watch(ctx context.Context, server int, v account.ResourceVersion) (account.ResourceVersion, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch, err := w.r.replicas[server].api.WatchEndpoints(ctx, account.EndpointFilter{}, v)
	if err != nil {
		return v, err
	}
	defer watch.Close()
	for n := 0; w.every == 0 || n < w.every; n++ {
		e, err := watch.Next()
		if err != nil {
			return v, err
		}
		w.apply(e, v)
		v = e.ResourceVersion
	}
	return v, nil
}

func (w *watcher) apply(e account.EndpointEvent, after account.ResourceVersion) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.ResourceVersion.Epoch != after.Epoch || e.ResourceVersion.Seq < after.Seq {
		w.failure = fmt.Errorf("an event has version %v after %v", e.ResourceVersion, after)
	}
	switch {
	case e.Endpoint == nil: // a bookmark
	case e.Type == account.Deleted:
		delete(w.endpoints, e.Endpoint.ID)
		w.offline[e.Endpoint.URL] = struct{}{}
	default:
		w.add(e.Endpoint)
	}
}

// requireList waits until the copy is the list of a server, which must be so soon.
func (w *watcher) requireList(server int) {
	w.r.t.Helper()
	list, err := w.r.replicas[server].api.ListEndpoints(w.r.t.Context(), account.EndpointFilter{})
	must.Succeed(w.r.t, err)
	want := map[string]string{}
	for _, e := range list.Endpoints {
		want[e.ID] = e.URL
	}
	wait.Until(w.r.t, "a watcher's copy to equal the list", func() bool {
		_, got := w.state()
		return maps.Equal(got, want)
	})
	if w.failure != nil {
		w.r.t.Error(w.failure)
	}
}

// TestReplicas_EventsReachOtherServers measures how long after the answer to a write its event
// comes from another server.
func TestReplicas_EventsReachOtherServers(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3)
	watchers := []*watcher{r.startWatcher(1, 0), r.startWatcher(2, 7)}
	latencies := newQuantiles(r.eventLatencies(watchers, number(t, eventsVariable, 60)))
	t.Logf("event at another server after the answer: %s", latencies)
	if most := limit(50*time.Millisecond, time.Second); latencies.at(99) > most {
		t.Errorf("events are seen after %s (p99), want %s", latencies.at(99), most)
	}
	for _, w := range watchers {
		w.requireList(0)
	}
}

// eventLatencies creates endpoints through the first server, and returns when the watchers have
// seen each.
func (r *rig) eventLatencies(watchers []*watcher, n int) (latencies []time.Duration) {
	r.t.Helper()
	for i := range n {
		url := fmt.Sprintf("http://event-%d.demo", i)
		must.Succeed(r.t, r.createEndpoint(0, url))
		answered := time.Now()
		for _, w := range watchers {
			wait.Until(r.t, "event", func() bool { _, ok := w.seenAt(url); return ok })
			at, _ := w.seenAt(url)
			latencies = append(latencies, max(0, at.Sub(answered)))
		}
	}
	return latencies
}
