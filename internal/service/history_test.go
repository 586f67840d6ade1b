// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

const (
	// historySeed is the environment variable with the seed of one more history. A seed repeats
	// what is done and broken, not how it interleaves.
	historySeed = "FAIRLEAD_HISTORY_SEED"
	// historyRounds is the environment variable with the number of times that a history's faults are
	// injected.
	historyRounds = "FAIRLEAD_HISTORY_ROUNDS"
)

// Sizes of a history.
const (
	historyReplicas = 3
	historyWriters  = 3
	historyWatchers = 3
)

// TestHistory_AgreesAcrossServers uses three services on one PostgreSQL by their APIs while they
// are killed, cut from the database and from each other, fenced and promoted, and checks what all
// clients see against the rules of docs/run/replicas.md.
func TestHistory_AgreesAcrossServers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a history takes a minute or more")
	}
	seeds := []uint64{1}
	if text := os.Getenv(historySeed); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		must.Succeed(t, err)
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			newHistory(t, seed).run()
		})
	}
}

// history is one account, the services that have it, and what clients have seen.
type history struct {
	t    *testing.T
	seed uint64
	dir  string

	primary, standby       *postgrestest.Server
	primaryDir, standbyDir string // of their sockets
	databaseURL            string // of both, without a relay
	keyFile                string
	admin                  *store.Store // without a relay
	replicas               [historyReplicas]*historyReplica
	apiKey, authtoken      string
	fingerprint            string // of the services' authority
	roots                  *x509.CertPool

	settled  atomic.Bool // nothing happens any more
	breaking atomic.Bool // faults are being injected
	faults   disturbance
	lossy    atomic.Bool // answers to commits get lost
	random   struct {
		sync.Mutex
		*rand.Rand
	} // of lost answers
	versions *versionLog
	counts   historyCounts
	injected int // faults
	fenced   int // services
}

// historyCounts are how much was done and seen.
type historyCounts struct {
	acknowledged, refused, unknown, lost, fencedRefusals atomic.Int64 // calls
	gone, moves                                          atomic.Int64 // of watchers
	revoked, again, strict, checks                       atomic.Int64
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{t: t, seed: seed, dir: t.TempDir(), versions: newVersionLog(t)}
	h.random.Rand = rand.New(rand.NewPCG(seed, 1))
	h.startPostgres()
	h.keyFile = filepath.Join(h.dir, "key")
	must.Succeed(t, os.WriteFile(h.keyFile, []byte(strings.Repeat("5a", 32)), 0o600))
	h.roots = servicetest.IssueCertificate(t, h.dir, "*.example.com")
	for i := range h.replicas {
		h.replicas[i] = h.newHistoryReplica(i)
	}
	t.Cleanup(h.logServices)
	for i, r := range h.replicas {
		r.start()
		t.Cleanup(func() { r.end() })
		h.fingerprint = r.waitReady().addrs.CAFingerprint
		if i == 0 {
			h.readSecrets()
			h.openAdmin()
		}
	}
	return h
}

// startPostgres starts a server and a synchronous standby.
func (h *history) startPostgres() {
	h.t.Helper()
	var err error
	h.primary, err = postgrestest.Start("fsync=off", "wal_retrieve_retry_interval=100ms")
	postgrestest.SkipWithout(h.t, err)
	h.t.Cleanup(func() { h.must(h.primary.Remove()) })
	h.standby, err = h.primary.Standby()
	h.must(err)
	h.t.Cleanup(func() { h.must(h.standby.Remove()) })
	direct := h.primary.URL(h.t)
	h.databaseURL, err = h.primary.WithStandby(direct, h.standby)
	h.must(err)
	u, err := url.Parse(h.databaseURL)
	h.must(err)
	h.primaryDir, h.standbyDir, _ = strings.Cut(u.Query().Get("host"), ",")
	for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
		h.must(h.primary.Exec(h.t.Context(), h.primary.AdminURL(), statement))
	}
}

// openAdmin opens the store past the relays, and grants the account a domain.
func (h *history) openAdmin() {
	h.t.Helper()
	key, err := seal.Read(h.keyFile)
	h.must(err)
	h.admin, err = store.Open(h.t.Context(), store.Options{DataDir: h.t.TempDir(), DatabaseURL: h.databaseURL,
		Key: key})
	h.must(err)
	h.t.Cleanup(func() { _ = h.admin.Close() })
	accounts, err := h.admin.ListAccounts(h.t.Context())
	h.must(err)
	_, err = h.admin.GrantDomain(h.t.Context(), accounts[0].ID, "*.example.com")
	h.must(err)
}

func (h *history) must(err error) {
	h.t.Helper()
	must.Succeed(h.t, err)
}

// logServices prints the last lines of the services' logs when the test has failed.
func (h *history) logServices() {
	if !h.t.Failed() {
		return
	}
	for i, r := range h.replicas {
		lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
		h.t.Logf("service %d:\n%s", i, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// loses reports whether the answer to a commit gets lost: the first one that can, and some others.
func (h *history) loses() bool {
	h.random.Lock()
	defer h.random.Unlock()
	if !h.lossy.Load() || h.counts.lost.Load() > 0 && h.random.IntN(40) > 0 {
		return false
	}
	h.counts.lost.Add(1)
	return true
}

// any returns one of the services that are ready, nil while none is.
func (h *history) any(random *rand.Rand) *incarnation {
	first := random.IntN(historyReplicas)
	for i := range historyReplicas {
		if now := h.replicas[(first+i)%historyReplicas].now.Load(); now != nil {
			return now
		}
	}
	return nil
}

// pause waits for a random time; it reports whether the test goes on.
func (h *history) pause(random *rand.Rand, most time.Duration) bool {
	select {
	case <-time.After(time.Duration(random.Int64N(int64(most)) + int64(time.Millisecond))):
		return true
	case <-h.t.Context().Done():
		return false
	}
}

func (h *history) run() {
	const most = 3 * servicetest.MaxWait // three minutes on a quiet machine, with the race detector
	ctx, cancel := context.WithTimeout(h.t.Context(), most*time.Duration(h.rounds()))
	defer cancel()
	h.breaking.Store(true)
	people := h.startPeople(h.newRandom(3), h.roots)
	var others, writing, watching sync.WaitGroup
	writers := make([]*writer, historyWriters)
	for i := range writers {
		writers[i] = h.newWriter(i)
		writing.Go(func() { writers[i].run(ctx) })
	}
	watchers := make([]*watcher, historyWatchers)
	for i := range watchers {
		watchers[i] = h.newWatcher(i)
		watching.Go(func() { watchers[i].run(ctx) })
	}
	others.Go(func() { people.run(ctx, h.newRandom(4)) })
	h.startTraffic(ctx, &others)
	b := &breaker{history: h, ctx: ctx, random: h.newRandom(2), people: people}
	b.breakAll(h.rounds())
	others.Wait()
	writing.Wait()
	h.settle(ctx)
	watching.Wait()
	if ctx.Err() != nil {
		h.t.Error("the history did not come to its end")
	}
	h.checkEnd(h.t.Context(), writers, watchers)
	h.report()
}

// newRandom returns the random numbers of one of those who take part.
func (h *history) newRandom(of uint64) *rand.Rand { return rand.New(rand.NewPCG(h.seed, of)) }

// rounds returns how often the faults are injected.
func (h *history) rounds() int {
	n, err := strconv.Atoi(cmp.Or(os.Getenv(historyRounds), "1"))
	h.must(err)
	return n
}

// startTraffic starts what changes the answers of endpoints, and what requests them.
func (h *history) startTraffic(ctx context.Context, all *sync.WaitGroup) {
	policy, agents := new(atomic.Pointer[register]), new(atomic.Pointer[register])
	row := &agentRow{random: h.newRandom(5)}
	row.h, row.host = h, agentsHost
	agents.Store(&row.register)
	all.Go(func() { row.runAgents(ctx) })
	all.Go(func() { h.runPolicies(ctx, h.newRandom(6), policy) })
	for i, r := range h.replicas {
		all.Go(func() { h.runProber(ctx, h.newRandom(uint64(10+i)), r, []*atomic.Pointer[register]{policy, agents}) })
	}
}

// report logs what was done, and fails the test when a rule was never put to the test.
func (h *history) report() {
	c := &h.counts
	h.t.Logf("%d faults, %d services fenced, %d versions; calls: %d acknowledged, %d refused, %d without an answer, "+
		"%d refused by a fenced service; %d answers to commits lost; watchers: %d moves, %d times gone; people: "+
		"%d revoked, %d logged in again; %d takeovers and stops seen at once; %d checks", h.injected, h.fenced,
		h.versions.count(), c.acknowledged.Load(), c.refused.Load(), c.unknown.Load(), c.fencedRefusals.Load(),
		c.lost.Load(), c.moves.Load(), c.gone.Load(), c.revoked.Load(), c.again.Load(), c.strict.Load(),
		c.checks.Load())
	for what, n := range map[string]int64{"answer to a commit lost": c.lost.Load(),
		"write refused by a fenced service": c.fencedRefusals.Load(), "watcher whose version was gone": c.gone.Load(),
		"person revoked": c.revoked.Load(), "person logged in again": c.again.Load()} {
		if n == 0 {
			h.t.Errorf("there was no %s: this history does not show what it should", what)
		}
	}
}

// settle waits until nothing happens any more: the last agent's endpoint has been removed.
func (h *history) settle(ctx context.Context) {
	wait.Until(h.t, "end of the last agent's endpoint", func() bool {
		now := h.replicas[0].now.Load()
		if now == nil {
			return false
		}
		list, _, err := h.list(ctx, now)
		return err == nil && !strings.Contains(fmt.Sprint(list), agentsHost)
	})
	h.settled.Store(true)
}

// checkEnd compares what all services answer in the end with what clients know.
func (h *history) checkEnd(ctx context.Context, writers []*writer, watchers []*watcher) {
	for _, r := range h.replicas {
		now := r.waitReady()
		var list map[string]string
		wait.Until(h.t, "list of a service", func() (done bool) {
			var err error
			list, _, err = h.list(ctx, now)
			return err == nil
		})
		for i, w := range watchers {
			for id := range maps.Keys(merged(list, w.all)) {
				if w.all[id] != list[id] {
					h.t.Errorf("watcher %d has\n%s\nservice %s has\n%s", i, w.all[id], r.host, list[id])
				}
			}
		}
		for _, w := range writers {
			w.checkAll(ctx, now)
		}
	}
	h.versions.check()
}

// merged returns a map with the keys of both.
func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}
