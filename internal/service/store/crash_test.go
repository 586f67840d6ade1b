// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/sqldb"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// These tell the test binary that it is the process that is killed, and where its store is.
const (
	childDir = "FAIRLEAD_TEST_STORE_DIR"
	childURL = "FAIRLEAD_TEST_DATABASE_URL"
)

// kills is how often a test kills a process that writes.
const kills = 12

// writeUntilKilled runs a server that binds and unbinds, and prints the changes it has
// acknowledged: "A id version" and "D id".
func writeUntilKilled(opt store.Options) {
	ctx := context.Background()
	fail := func(err error) {
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
	}
	var err error
	opt.Lock, err = store.LockServer(ctx, opt)
	fail(err)
	s, err := store.Open(ctx, opt)
	fail(err)
	fail(s.BeginServerTerm(ctx))
	_, _, err = s.Bootstrap(ctx)
	fail(err)
	accounts, err := s.ListAccounts(ctx)
	fail(err)
	session := account.NewID(account.PrefixTunnelSession, accounts[0].CreatedAt)
	fail(s.StartSession(ctx, account.TunnelSession{ID: session, AccountID: accounts[0].ID}))
	fmt.Println("account", accounts[0].ID)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for {
				u, err := account.ParseEndpointURL(fmt.Sprintf("http://e%d.demo", rand.Uint64()))
				fail(err)
				e := account.NewEndpoint(account.BindingKubernetes, u)
				e.AccountID = accounts[0].ID
				got, err := s.Bind(ctx, account.BindRequest{Endpoint: e, SessionID: session})
				fail(err)
				fmt.Println("A", got.Endpoint.ID, got.Endpoint.ResourceVersion)
				if rand.N(2) == 0 {
					fail(s.Unbind(ctx, accounts[0].ID, got.Endpoint.ID, session))
					fmt.Println("D", got.Endpoint.ID)
				}
			}
		})
	}
	all.Wait()
}

// acknowledged holds what killed processes have printed.
type acknowledged struct {
	t         *testing.T
	accountID string
	lines     []string
}

// round starts a process, lets it acknowledge so many changes, and ends it by kill.
func (a *acknowledged) round(opt store.Options, changes int, kill func(*os.Process)) {
	a.t.Helper()
	child := exec.CommandContext(a.t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+opt.DataDir, childURL+"="+opt.DatabaseURL)
	out, err := child.StdoutPipe()
	storetest.Must(a.t, err)
	storetest.Must(a.t, child.Start())
	lines := bufio.NewReader(out)
	begin := len(a.lines)
	for killed := false; ; {
		line, err := lines.ReadString('\n')
		if err != nil { // a line that was cut in its middle is no acknowledgement
			if err != io.EOF || !killed {
				a.t.Errorf("the process ended by itself: %v", err)
			}
			break
		}
		line = strings.TrimSuffix(line, "\n")
		if id, ok := strings.CutPrefix(line, "account "); ok {
			a.accountID = id
			continue
		}
		if strings.HasPrefix(line, "error:") {
			if !killed || opt.DatabaseURL == "" {
				a.t.Error(line)
			}
			continue
		}
		a.lines = append(a.lines, line)
		if !killed && len(a.lines) >= begin+changes {
			killed = true
			kill(child.Process)
		}
	}
	_ = child.Process.Kill() // it may have ended by itself, when its database was killed
	_ = child.Wait()
}

// check opens the store as the next server does and holds it against what was acknowledged.
func (a *acknowledged) check(opt store.Options) {
	a.t.Helper()
	lock, err := store.LockServer(a.t.Context(), opt)
	storetest.Must(a.t, err)
	defer func() { storetest.Must(a.t, lock.Release()) }()
	opt.Lock = lock
	s, err := store.Open(a.t.Context(), opt)
	storetest.Must(a.t, err)
	defer func() { storetest.Must(a.t, s.Close()) }()
	page, err := s.ListEndpoints(a.t.Context(), a.accountID, account.EndpointFilter{},
		account.Page{Limit: account.MaxPageLimit})
	storetest.Must(a.t, err)
	storetest.Equal(a.t, "more than a page", page.More, false)
	log := readLog(a.t, s, a.accountID, page.Version)
	sameAsFolded(a.t, log, page.Endpoints)
	at := map[string]account.EventType{}
	for _, e := range log {
		at[e.Endpoint.ID+" "+e.ResourceVersion.String()] = e.Type
		at[e.Endpoint.ID] = e.Type
	}
	for _, line := range a.lines {
		kind, rest, _ := strings.Cut(line, " ")
		if want := map[string]account.EventType{"A": account.Added, "D": account.Deleted}[kind]; at[rest] != want {
			a.t.Errorf("acknowledged %q; the log has %q", line, at[rest])
		}
	}
	storetest.Must(a.t, s.BeginServerTerm(a.t.Context()))
	page, err = s.ListEndpoints(a.t.Context(), a.accountID, account.EndpointFilter{},
		account.Page{Limit: account.MaxPageLimit})
	storetest.Must(a.t, err)
	for _, e := range page.Endpoints {
		storetest.Equal(a.t, "status", e.Status, account.StatusOffline)
	}
	a.t.Logf("%d acknowledged, %d in the log, %d endpoints", len(a.lines), len(log), len(page.Endpoints))
}

// readLog reads the whole log and fails unless its numbers have no gap.
func readLog(t *testing.T, s *store.Store, accountID string, upTo account.ResourceVersion) []account.EndpointEvent {
	t.Helper()
	var log []account.EndpointEvent
	for v := (account.ResourceVersion{Epoch: upTo.Epoch}); v.Seq < upTo.Seq; {
		some, next, err := s.EndpointEvents(t.Context(), accountID, v, account.EndpointFilter{}, 1000)
		storetest.Must(t, err)
		log, v = append(log, some...), next
	}
	for i, e := range log {
		storetest.Equal(t, "number", e.ResourceVersion.Seq, int64(i+1))
	}
	storetest.Equal(t, "events", int64(len(log)), upTo.Seq)
	return log
}

// sameAsFolded fails unless what the log's events leave is what is listed: an event without its
// row, or a row without its event, is a half.
func sameAsFolded(t *testing.T, log []account.EndpointEvent, listed []account.Endpoint) {
	t.Helper()
	left := map[string]*account.Endpoint{}
	for _, e := range log {
		left[e.Endpoint.ID] = e.Endpoint
		if e.Type == account.Deleted {
			delete(left, e.Endpoint.ID)
		}
	}
	storetest.Equal(t, "endpoints", len(listed), len(left))
	for _, e := range listed {
		row, err := json.Marshal(e)
		storetest.Must(t, err)
		event, err := json.Marshal(left[e.ID])
		storetest.Must(t, err)
		if !slices.Equal(row, event) {
			t.Errorf("the row is\n%s\nits last event holds\n%s", row, event)
		}
	}
}

func TestSQLite_KeepsAcknowledgedWritesAfterKill(t *testing.T) {
	t.Parallel()
	a := &acknowledged{t: t}
	opt := store.Options{DataDir: t.TempDir()}
	for i := range kills {
		a.round(opt, 1+rand.N(40), func(p *os.Process) {
			if _, err := store.LockServer(t.Context(), opt); i == 0 &&
				(err == nil || !strings.Contains(err.Error(), "in use by another fairlead-server")) {
				t.Errorf("locking beside a live server: %v", err)
			}
			storetest.Must(t, p.Kill())
		})
	}
	a.check(opt)
}

// TestPostgres_KeepsAcknowledgedWritesAfterCrash kills the server and the database in turns.
func TestPostgres_KeepsAcknowledgedWritesAfterCrash(t *testing.T) {
	t.Parallel()
	server, err := postgrestest.Start("fsync=off") // the machine does not crash here
	postgrestest.SkipWithout(t, err)
	defer func() { storetest.Must(t, server.Remove()) }()
	a := &acknowledged{t: t}
	opt := store.Options{DataDir: t.TempDir(), DatabaseURL: server.URL(t)}
	for i := range kills {
		a.round(opt, 1+rand.N(40), func(p *os.Process) {
			if i%3 != 0 {
				storetest.Must(t, p.Kill())
				return
			}
			storetest.Must(t, server.Crash())
			storetest.Must(t, server.Up())
		})
		untilUnlocked(t, opt)
	}
	a.check(opt)
}

// untilUnlocked waits until the database has noticed that a killed server is gone.
func untilUnlocked(t *testing.T, opt store.Options) {
	t.Helper()
	var err error
	for range 60 { // LockServer waits for a moment itself
		var lock *sqldb.ServerLock
		if lock, err = store.LockServer(t.Context(), opt); err == nil {
			storetest.Must(t, lock.Release())
			return
		}
	}
	t.Fatal(err)
}
