// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// described joins the descriptions of credentials.
func described(all []store.Credential) string {
	texts := make([]string, len(all))
	for i, c := range all {
		texts[i] = c.Description
	}
	return strings.Join(texts, ",")
}

// TestRestore_ReportsCredentials follows watchers, tokens, sessions and endpoints through a backup
// of a live store and its restore.
func TestRestore_ReportsCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "backup.db")
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(context.WithoutCancel(t.Context()), opt)
	})
	ctx := t.Context()
	token := func(description string) *account.Authtoken {
		made, err := f.Store.CreateAuthtoken(ctx, account.Caller{AccountID: f.AccountID},
			account.AuthtokenPatch{Description: &description})
		storetest.Must(t, err)
		return made
	}
	revoked, changed := token("revoked"), token("changed")
	kept := f.Bind(f.Session(), "http://kept.demo").Endpoint
	storetest.Must(t, store.Backup(ctx, dir, file)) // beside the open store
	before := f.List()

	storetest.Must(t, f.Store.DeleteAuthtoken(ctx, account.Caller{AccountID: f.AccountID}, revoked.ID))
	_, err := f.Store.PatchAuthtoken(ctx, account.Caller{AccountID: f.AccountID}, changed.ID,
		account.AuthtokenPatch{ACL: &[]string{"bind:http://only.demo"}})
	storetest.Must(t, err)
	made := token("made since")
	f.Bind(f.Session(), "http://late.demo")
	storeID := f.Store.StoreID()
	late := f.List().Version
	storetest.Must(t, f.Store.Close())

	restored, err := store.Restore(ctx, store.Options{DataDir: dir, Clock: f.Clock.Now}, file)
	storetest.Must(t, err)
	storetest.Equal(t, "credentials", fmt.Sprintf("%v %s|%s|%s", restored.Compared, described(restored.Reactivated),
		described(restored.Changed), described(restored.Unknown)),
		"true revoked|changed|made since")
	storetest.Equal(t, "valid", len(restored.Valid), 3)
	f.Store, err = store.Open(ctx, store.Options{DataDir: dir, Clock: f.Clock.Now})
	storetest.Must(t, err)
	storetest.Equal(t, "store", f.Store.StoreID(), storeID)
	expectGone(f, restored.Epoch, before.Version, late)
	page := f.List()
	storetest.Equal(t, "endpoints", fmt.Sprint(len(page.Endpoints), page.Endpoints[0].ID, page.Endpoints[0].Status),
		fmt.Sprint(1, kept.ID, account.StatusOffline))
	sessions, _, err := f.Store.ListTunnelSessions(ctx, f.AccountID, account.Page{})
	storetest.Must(t, err)
	storetest.Equal(t, "sessions", len(sessions), 0)
	again := f.Bind(f.Session(), "http://kept.demo").Endpoint
	storetest.Equal(t, "id of the endpoint that comes back", again.ID, kept.ID)
	f.Expect(page.Version, account.Modified)
	_, err = f.Store.TunnelCredential(ctx, *revoked.Token)
	storetest.Must(t, err)
	_, err = f.Store.TunnelCredential(ctx, *made.Token)
	storetest.MustCode(t, err, account.CodeUnknownCredential)
	onlyOwners(t, dir, file)
	if _, err := os.Stat(restored.ReplacedFile); err != nil {
		t.Errorf("the replaced store: %v", err)
	}
}

// expectGone checks that watchers from the versions, of earlier epochs, have to list again.
func expectGone(f *storetest.Fixture, epoch int64, versions ...account.ResourceVersion) {
	f.T.Helper()
	for _, v := range versions {
		_, _, err := f.Store.EndpointEvents(f.T.Context(), f.AccountID, v, account.EndpointFilter{}, 0)
		if account.CodeOf(err) != account.CodeGone || v.Epoch >= epoch {
			f.T.Errorf("a watcher from %s: %v", v, err)
		}
	}
}

// onlyOwners fails when others may read a file of the directory, or something temporary is left in
// it.
func onlyOwners(t *testing.T, dir string, more ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	storetest.Must(t, err)
	for _, e := range entries {
		more = append(more, filepath.Join(dir, e.Name()))
	}
	for _, file := range more {
		info, err := os.Stat(file)
		storetest.Must(t, err)
		if info.Mode().Perm() != 0o600 || strings.HasPrefix(filepath.Base(file), ".") {
			t.Errorf("%s is left, with mode %s", file, info.Mode())
		}
	}
}

func TestRestore_LeavesStoreAfterRefusal(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	open := func(dir string) *store.Store {
		s, err := store.Open(t.Context(), store.Options{DataDir: dir})
		storetest.Must(t, err)
		return s
	}
	s := open(dir)
	storeID := s.StoreID()
	storetest.Must(t, s.Close())
	file := func(name string, content []byte) string {
		path := filepath.Join(elsewhere, name)
		storetest.Must(t, os.WriteFile(path, content, 0o600))
		return path
	}
	good := filepath.Join(elsewhere, "good")
	storetest.Must(t, store.Backup(t.Context(), dir, good))
	whole, err := os.ReadFile(good)
	storetest.Must(t, err)
	newer := t.TempDir()
	storetest.Must(t, open(newer).Close())
	execute(t, newer, `PRAGMA user_version = 99`)
	live := open(elsewhere)
	defer func() { storetest.Must(t, live.Close()) }()
	for name, c := range map[string]struct{ file, part string }{
		"missing": {filepath.Join(elsewhere, "none"), "no such file"},
		"rubbish": {file("rubbish", []byte(strings.Repeat("rubbish ", 1000))),
			"no SQLite file or damaged; take another backup"},
		"empty": {file("empty", nil),
			"not a database of fairlead-server; give a file that `fairlead-server backup` wrote"},
		"cut":             {file("cut", whole[:len(whole)/2]), "damaged"},
		"newer":           {filepath.Join(newer, "fairlead.db"), "newer fairlead-server"},
		"a live database": {filepath.Join(elsewhere, "fairlead.db"), "fairlead-server backup"},
	} {
		_, err := store.Restore(t.Context(), store.Options{DataDir: dir}, c.file)
		if err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s: %v", name, err)
		}
	}
	lock, err := store.LockServer(t.Context(), store.Options{DataDir: dir})
	storetest.Must(t, err)
	if _, err := store.Restore(t.Context(), store.Options{DataDir: dir}, good); err == nil ||
		!strings.Contains(err.Error(), "in use by another fairlead-server") {
		t.Errorf("restoring beside a server: %v", err)
	}
	storetest.Must(t, lock.Release())
	if err := store.Backup(t.Context(), dir, good); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("writing over a backup: %v", err)
	}
	s = open(dir)
	storetest.Equal(t, "store", s.StoreID(), storeID)
	storetest.Must(t, s.Close())
	entries, err := os.ReadDir(dir)
	storetest.Must(t, err)
	storetest.Equal(t, "files", len(entries), 2) // the database and the lock
}

// TestRestore_FillsEmptyDirectory is what a new machine does.
func TestRestore_FillsEmptyDirectory(t *testing.T) {
	t.Parallel()
	dir, fresh := t.TempDir(), filepath.Join(t.TempDir(), "new")
	s, err := store.Open(t.Context(), store.Options{DataDir: dir})
	storetest.Must(t, err)
	defer func() { storetest.Must(t, s.Close()) }()
	made, _, err := s.Bootstrap(t.Context())
	storetest.Must(t, err)
	file := filepath.Join(t.TempDir(), "backup.db")
	storetest.Must(t, store.Backup(t.Context(), dir, file))
	restored, err := store.Restore(t.Context(), store.Options{DataDir: fresh}, file)
	storetest.Must(t, err)
	storetest.Equal(t, "restored", fmt.Sprint(restored.Compared, len(restored.Valid), restored.ReplacedFile == ""),
		"false 2 true")
	there, err := store.Open(t.Context(), store.Options{DataDir: fresh})
	storetest.Must(t, err)
	defer func() { storetest.Must(t, there.Close()) }()
	_, err = there.APIKeyBySecret(t.Context(), made.APIKeySecret)
	storetest.Must(t, err)
}

// TestNewEpoch_InvalidatesVersionsOfPostgres is what pg_restore leaves to do.
func TestNewEpoch_InvalidatesVersionsOfPostgres(t *testing.T) {
	t.Parallel()
	databaseURL := postgres.Server(t).URL(t)
	opt := store.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL}
	l := newLockedStore(t, databaseURL)
	l.Bind(l.Session(), "http://api.demo")
	before := l.List().Version
	if _, err := store.NewEpoch(t.Context(), opt); err == nil ||
		!strings.Contains(err.Error(), "in use by another fairlead-server") {
		t.Errorf("beside a server: %v", err)
	}
	l.stop()
	restored, err := store.NewEpoch(t.Context(), opt)
	storetest.Must(t, err)
	storetest.Equal(t, "valid", len(restored.Valid), 1)
	_, err = l.Store.Bind(t.Context(), l.Request(l.AccountID, "http://late.demo"))
	storetest.MustCode(t, err, account.CodeUnavailable) // a server of the old epoch
	s, err := store.Open(t.Context(), opt)
	storetest.Must(t, err)
	defer func() { storetest.Must(t, s.Close()) }()
	_, _, err = s.EndpointEvents(t.Context(), l.AccountID, before, account.EndpointFilter{}, 0)
	storetest.MustCode(t, err, account.CodeGone)
	page, err := s.ListEndpoints(t.Context(), l.AccountID, account.EndpointFilter{}, account.Page{})
	storetest.Must(t, err)
	storetest.Equal(t, "epoch", page.Version.Epoch, restored.Epoch)
	storetest.Equal(t, "endpoint", page.Endpoints[0].Status, account.StatusOffline)
}

// TestRestore_EndsSessions checks that a restore ends all sessions and makes every user sign in
// again: the backup does not hold the revocations made after it.
func TestRestore_EndsSessions(t *testing.T) {
	t.Parallel()
	dir, databaseURL := t.TempDir(), postgres.Server(t).URL(t)
	file := filepath.Join(t.TempDir(), "backup.db")
	for name, c := range map[string]struct {
		opt     store.Options
		restore func(opt store.Options) (*store.Restored, error)
	}{
		"sqlite": {store.Options{DataDir: dir}, func(opt store.Options) (*store.Restored, error) {
			return store.Restore(t.Context(), opt, file)
		}},
		"postgres": {store.Options{DataDir: t.TempDir(), DatabaseURL: databaseURL},
			func(opt store.Options) (*store.Restored, error) { return store.NewEpoch(t.Context(), opt) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
				opt.DataDir, opt.DatabaseURL = c.opt.DataDir, c.opt.DatabaseURL
				return store.Open(context.WithoutCancel(t.Context()), opt)
			})
			live := f.Login("alice", "s1")
			key, _, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "", nil, nil)
			storetest.Must(t, err)
			_, err = f.Store.SignIn(t.Context(), key, storetest.TokenHash("dashboard"))
			storetest.Must(t, err)
			storetest.Must(t, f.Store.SaveTicket(t.Context(), f.AccountID, storetest.TokenHash("ticket"), []byte("x"),
				f.Clock.Now().Add(time.Hour)))
			if c.opt.DatabaseURL == "" {
				storetest.Must(t, store.Backup(t.Context(), dir, file))
			}
			storetest.Must(t, f.Store.Close())
			f.Clock.Step(time.Second)
			c.opt.Clock = f.Clock.Now
			_, err = c.restore(c.opt)
			storetest.Must(t, err)
			f.Reopen()
			storetest.Equal(t, "lives", f.Lives("s1"), false)
			_, err = f.Store.DashboardSession(t.Context(), storetest.TokenHash("dashboard"))
			storetest.MustCode(t, err, account.CodeUnknownCredential)
			_, err = f.Store.RedeemTicket(t.Context(), f.AccountID, storetest.TokenHash("ticket"))
			storetest.MustCode(t, err, account.CodeNotFound)
			accessed, err := f.Store.AccessedEndpoints(t.Context(), f.AccountID, live.Identity.ID) // users stay
			storetest.Must(t, err)
			storetest.Equal(t, "accessed", len(accessed), 1)
			f.Clock.Step(time.Second)
			again := f.NewLogin("alice", "s2")
			again.AuthTime = time.Time{}
			_, err = f.Store.Login(t.Context(), f.AccountID, again)
			storetest.MustCode(t, err, account.CodeLoginAgain)
			again.ForceReauth = true
			_, err = f.Store.Login(t.Context(), f.AccountID, again)
			storetest.Must(t, err)
		})
	}
}
