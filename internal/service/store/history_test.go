// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// historySeed is the environment variable with the seed of one more history. A seed repeats what is
// written and broken, not how it interleaves.
const historySeed = "FAIRLEAD_HISTORY_SEED"

// Sizes of a history.
const (
	historyStores  = 3
	historyWriters = 4
	historyWrites  = 40 // of each writer at least; all write until the faults are over
	historyWatches = 4
)

// TestHistory_AgreesAcrossStores writes an account's endpoints through several replicas on one
// PostgreSQL at once, while the database is killed, connections are cut, answers to commits are
// lost, replicas fall silent and are fenced and calls of a batch fail, and checks what watchers see
// that change from store to store: version numbers without a gap, each with the same content for
// all; every acknowledged write; and in the end the list. A replica that was fenced acknowledges
// nothing.
func TestHistory_AgreesAcrossStores(t *testing.T) {
	t.Parallel()
	seeds := []uint64{1, 2}
	if text := os.Getenv(historySeed); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		storetest.Must(t, err)
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			newHistory(t, seed).run()
		})
	}
}

// history is one account, the stores on its database, and what is known of its versions.
type history struct {
	*storetest.Fixture
	seed      uint64
	server    *postgrestest.Server
	urls      []string // of the database, for each replica
	replicas  [historyStores]atomic.Pointer[replica]
	writing   atomic.Int32 // writers that have not finished
	breaking  atomic.Bool
	lost      atomic.Int32 // answers to commits
	fenced    int          // replicas
	refused   atomic.Int32 // calls that a fault refused
	changed   atomic.Int32 // times that a watcher changed the store
	mixed     atomic.Int32 // batches with a call that failed
	mu        sync.Mutex
	contents  map[account.ResourceVersion]string // what a version was seen as
	confirmed map[account.ResourceVersion]bool   // of acknowledged writes
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	server, err := postgrestest.Start("fsync=off")
	postgrestest.SkipWithout(t, err)
	t.Cleanup(func() { storetest.Must(t, server.Remove()) })
	h := &history{seed: seed, server: server, contents: map[account.ResourceVersion]string{},
		confirmed: map[account.ResourceVersion]bool{}}
	direct := server.URL(t)
	h.Fixture, _ = postgresFixture(t, direct)
	random := rand.New(rand.NewPCG(seed, 0))
	lossy := server.LoseCommits(t, direct, func() bool {
		if h.writing.Load() == 0 || random.IntN(25) > 0 {
			return false
		}
		h.lost.Add(1)
		return true
	})
	h.urls = []string{direct, lossy, lossy}
	for i := range h.replicas {
		h.join(i)
	}
	return h
}

// join starts a replica, which listens, too. A start that fails is repeated, as by a supervisor.
func (h *history) join(i int) {
	var r *replica
	wait.Until(h.T, "a replica to start", func() (started bool) {
		var err error
		r, err = tryReplica(h.T, h.urls[i], account.NewID("rp", time.Now()), withKey)
		return err == nil
	})
	r.SetPollInterval(50 * time.Millisecond)
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.T.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Listen(ctx)
	}()
	h.T.Cleanup(func() {
		cancel()
		<-done
	})
	h.replicas[i].Store(r)
}

// randomReplica returns one of the replicas.
func (h *history) randomReplica(random *rand.Rand) *replica {
	return h.replicas[random.IntN(historyStores)].Load()
}

func (h *history) run() {
	var writers, others sync.WaitGroup
	h.writing.Store(historyWriters)
	h.breaking.Store(true)
	for i := range historyWriters {
		writers.Go(func() {
			h.write(i, rand.New(rand.NewPCG(h.seed, uint64(100+i))))
			h.writing.Add(-1)
		})
	}
	folded := make([]map[string]string, historyWatches)
	for i := range folded {
		others.Go(func() { folded[i] = h.watch(rand.New(rand.NewPCG(h.seed, uint64(200+i)))) })
	}
	others.Go(func() { h.crowd(rand.New(rand.NewPCG(h.seed, 400))) })
	h.breakAll(rand.New(rand.NewPCG(h.seed, 300)))
	writers.Wait()
	others.Wait()
	for i := range h.replicas {
		list, _, err := h.list(h.replicas[i].Load())
		storetest.Must(h.T, err)
		for w, seen := range folded {
			storetest.Equal(h.T, fmt.Sprintf("watcher %d beside the list of store %d", w, i), fmt.Sprint(seen),
				fmt.Sprint(list))
		}
	}
	for v := range h.confirmed {
		if h.contents[v] == "" {
			h.T.Errorf("version %s was acknowledged, and no watcher saw it", v)
		}
	}
	h.T.Logf("%d versions, %d acknowledged; %d answers lost, %d calls refused, %d replicas fenced, %d changes of "+
		"store, %d batches with a call that failed", len(h.contents), len(h.confirmed), h.lost.Load(),
		h.refused.Load(), h.fenced, h.changed.Load(), h.mixed.Load())
}

// unavailable reports whether a fault refused the call; every other error fails the test.
func (h *history) unavailable(err error) bool {
	if err == nil {
		return false
	}
	if code := account.CodeOf(err); code != account.CodeUnavailable {
		h.T.Errorf("code %s of %v, want %s", code, err, account.CodeUnavailable)
		return false
	}
	h.refused.Add(1)
	return true
}

// write binds, changes and ends endpoints of its own. What a fault refused may have happened or
// not; the writer tries again, on any replica, until it knows.
func (h *history) write(writer int, random *rand.Rand) {
	session := ""
	bound := map[string]string{} // endpoint by URL
	for n := 0; n < historyWrites || h.breaking.Load(); n++ {
		if session == "" {
			session, bound = h.start(random), map[string]string{}
		}
		url := fmt.Sprintf("http://e%d.w%d", random.IntN(3), writer)
		switch id := bound[url]; {
		case random.IntN(15) == 0:
			h.until(random, func(r *replica) error {
				return r.EndSession(h.T.Context(), h.AccountID, session, account.SessionEnd{})
			})
			session = ""
		case id != "" && random.IntN(2) == 0:
			h.until(random, func(r *replica) error { return r.Unbind(h.T.Context(), h.AccountID, id, session) })
			delete(bound, url)
		default:
			if bound[url] = h.bind(random, session, url); bound[url] == "" {
				session = ""
			}
		}
	}
}

// bind returns the id of the endpoint, "" when the session is over: its replica was fenced.
func (h *history) bind(random *rand.Rand, session, url string) (id string) {
	request := h.Request(session, url)
	request.Description = fmt.Sprint(random.Uint32())
	if host := strings.TrimPrefix(url, "http://"); strings.HasPrefix(host, "e2.") {
		request.Owner = storetest.Owner(host)
	}
	h.until(random, func(r *replica) error {
		got, err := r.Bind(h.T.Context(), request)
		if account.CodeOf(err) == account.CodeNotFound {
			return nil
		}
		if err == nil {
			id = got.Endpoint.ID
			h.confirm(got.Endpoint)
		}
		return err
	})
	return id
}

// start returns a new session of one of the replicas.
func (h *history) start(random *rand.Rand) (id string) {
	h.until(random, func(r *replica) error {
		id = account.NewID(account.PrefixTunnelSession, time.Now())
		return r.StartSession(h.T.Context(), account.TunnelSession{ID: id, AccountID: h.AccountID, ServerID: r.id,
			Credential: account.Ref{ID: h.TokenID}, IP: "203.0.113.9", AgentVersion: "1.0.0", OS: "linux"})
	})
	return id
}

// until repeats the call on any replica while faults refuse it.
func (h *history) until(random *rand.Rand, call func(*replica) error) {
	for h.unavailable(call(h.randomReplica(random))) && timer.Sleep(h.T.Context(), 10*time.Millisecond) {
	}
}

func (h *history) confirm(e account.Endpoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.confirmed[e.ResourceVersion] = true
}

// recordContent records what a version was seen as, which is the same for all watchers.
func (h *history) recordContent(v account.ResourceVersion, content string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.contents[v]; before != "" && before != content {
		h.T.Errorf("version %s is\n%s\nand\n%s", v, before, content)
	}
	h.contents[v] = content
}

// list returns the content of each endpoint by its id.
func (h *history) list(s *replica) (map[string]string, account.ResourceVersion, error) {
	page, err := s.ListEndpoints(h.T.Context(), h.AccountID, account.EndpointFilter{},
		account.Page{Limit: account.MaxPageLimit})
	if err != nil {
		return nil, account.ResourceVersion{}, err
	}
	all := map[string]string{}
	for _, e := range page.Endpoints {
		all[e.ID] = encode(h.T, e)
	}
	return all, page.Version, nil
}

func encode(t *testing.T, e account.Endpoint) string {
	t.Helper()
	content, err := json.Marshal(e)
	storetest.Must(t, err)
	return string(content)
}

// watch lists and follows the account until all is written and seen, changing the store now and
// then, and returns what it has seen.
func (h *history) watch(random *rand.Rand) (all map[string]string) {
	var v account.ResourceVersion
	h.until(random, func(r *replica) (err error) {
		all, v, err = h.list(r)
		return err
	})
	for {
		s := h.randomReplica(random)
		h.changed.Add(1)
		wake, cancel := s.Subscribe(h.AccountID)
		for range 1 + random.IntN(10) {
			done := h.writing.Load() == 0 // before the read
			more, err := h.follow(s, &v, all)
			if h.unavailable(err) {
				break
			}
			if done && !more {
				cancel()
				return all
			}
			select {
			case <-wake:
			case <-time.After(time.Second): // the last change may have been before the subscription
			}
		}
		cancel()
	}
}

// follow reads the events after v and checks their numbers.
func (h *history) follow(s *replica, v *account.ResourceVersion, all map[string]string) (more bool, err error) {
	events, upTo, err := s.EndpointEvents(context.WithoutCancel(h.T.Context()), h.AccountID, *v,
		account.EndpointFilter{}, 0)
	for _, e := range events {
		if want := v.Seq + 1; e.ResourceVersion.Seq != want || e.ResourceVersion.Epoch != v.Epoch {
			h.T.Errorf("version %s after %s", e.ResourceVersion, *v)
		}
		*v = e.ResourceVersion
		content := encode(h.T, *e.Endpoint)
		h.recordContent(*v, string(e.Type)+" "+content)
		if all[e.Endpoint.ID] = content; e.Type == account.Deleted {
			delete(all, e.Endpoint.ID)
		}
	}
	if err == nil && upTo != *v {
		h.T.Errorf("read up to %s with events up to %s", upTo, *v)
	}
	return len(events) > 0, err
}

// breakAll kills the database, cuts its connections and silences replicas, and returns when calls have
// met each kind of fault.
func (h *history) breakAll(random *rand.Rand) {
	defer h.breaking.Store(false)
	faults := []func(){h.crash, h.crash, h.cut, h.cut, h.cut, h.silence(random.IntN(historyStores)),
		h.silence(random.IntN(historyStores))}
	random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for _, fault := range faults {
		timer.Sleep(h.T.Context(), time.Duration(random.IntN(200))*time.Millisecond)
		fault()
	}
	wait.Until(h.T, "each kind of fault to have met a call", func() bool {
		return h.refused.Load() > 0 && h.lost.Load() > 0 && h.changed.Load() > 0 && h.mixed.Load() > 0
	})
}

// crash kills the database and starts it again.
func (h *history) crash() {
	storetest.Must(h.T, h.server.Crash())
	storetest.Must(h.T, h.server.Up())
}

// cut ends half of the connections.
func (h *history) cut() {
	storetest.Must(h.T, h.server.Exec(h.T.Context(), h.server.AdminURL(),
		`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND random() < 0.5`))
}

// silence stops a replica's beats until the others have fenced it, while it is written through, and
// starts another in its place.
func (h *history) silence(i int) func() {
	return func() {
		r := h.replicas[i].Load()
		kept := h.bindOnTwo(r, h.replicas[(i+1)%historyStores].Load(), fmt.Sprintf("http://kept%d.demo", h.fenced))
		lost := h.sessionOn(r)
		r.cancel()
		_ = r.beats() // a fault may have ended them
		wait.Until(h.T, "a silent replica to be fenced", func() bool { return !strings.Contains(h.replicaIDs(), r.id) })
		err := r.RecordAudit(h.T.Context(), account.Caller{AccountID: h.AccountID}, account.AuditEndpointCreated,
			"ep-1", map[string]string{})
		if account.CodeOf(err) != account.CodeUnavailable {
			h.T.Errorf("a write of a fenced replica: %v, want %s", err, account.CodeUnavailable)
		}
		wait.Until(h.T, "the end of its sessions", func() bool {
			h.sweep()
			return !isLive(h.Fixture, lost)
		})
		if e := h.Endpoint(kept.ID); e.ResourceVersion != kept.ResourceVersion {
			h.T.Errorf("an endpoint that another replica had, too, changed with the fence: %+v", e)
		}
		h.fenced++
		h.join(i)
	}
}

// sweep does what servers do all the time: what a fault has kept from being done is done later.
func (h *history) sweep() {
	for i := range h.replicas {
		_ = h.replicas[i].Load().Sweep(h.T.Context()) // that of a fenced one fails
	}
}

// replicaIDs returns the ids of the replicas, by the store that no fault concerns.
func (h *history) replicaIDs() string {
	all, err := h.Store.Replicas(h.T.Context())
	storetest.Must(h.T, err)
	return fmt.Sprint(all)
}
