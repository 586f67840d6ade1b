// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		writeUntilKilled(store.Options{DataDir: dir, DatabaseURL: os.Getenv(childURL)})
	}
	goleak.VerifyTestMain(postgrestest.Main{M: m, Shared: &postgres})
}

func TestSQLite_Conforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Open {
		dir := t.TempDir()
		return func(opt store.Options) (*store.Store, error) {
			opt.DataDir = dir
			return store.Open(context.WithoutCancel(t.Context()), opt)
		}
	})
}

func TestBootstrap_FillsEmptyStoreOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := store.Open(t.Context(), store.Options{DataDir: dir})
	storetest.Must(t, err)
	made, created, err := s.Bootstrap(t.Context())
	storetest.Must(t, err)
	storetest.Equal(t, "created", created, true)
	key, err := s.APIKeyBySecret(t.Context(), made.APIKeySecret)
	storetest.Must(t, err)
	storetest.Equal(t, "admin", key.HasAnyScope(), true)
	token, err := s.TunnelCredential(t.Context(), made.AuthtokenSecret)
	storetest.Must(t, err)
	storetest.Equal(t, "rules", fmt.Sprint(token.ACL), "[bind:*]")
	storeID := s.StoreID()
	storetest.Equal(t, "store id", account.ValidID(account.PrefixStore, storeID), true)
	storetest.Must(t, s.Close())
	s, err = store.Open(t.Context(), store.Options{DataDir: dir})
	storetest.Must(t, err)
	defer func() { storetest.Must(t, s.Close()) }()
	_, created, err = s.Bootstrap(t.Context())
	storetest.Must(t, err)
	storetest.Equal(t, "created again", created, false)
	storetest.Equal(t, "store id", s.StoreID(), storeID)
	for _, file := range []string{"fairlead.db", "fairlead.db-wal"} {
		raw, err := os.ReadFile(filepath.Join(dir, file))
		storetest.Must(t, err)
		if strings.Contains(string(raw), made.APIKeySecret) || strings.Contains(string(raw), made.AuthtokenSecret) {
			t.Errorf("%s holds a secret", file)
		}
	}
}

func TestEnsureAPIKey_CreatesAccountInEmptyStore(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), store.Options{DataDir: t.TempDir()})
	storetest.Must(t, err)
	defer func() { storetest.Must(t, s.Close()) }()
	for range 2 {
		_, err = s.EnsureAPIKey(t.Context(), "flk_"+strings.Repeat("k", 43))
		storetest.Must(t, err)
		_, err = s.EnsureAuthtoken(t.Context(), "flt_"+strings.Repeat("t", 43))
		storetest.Must(t, err)
	}
	accounts, err := s.ListAccounts(t.Context())
	storetest.Must(t, err)
	storetest.Equal(t, "accounts", fmt.Sprint(len(accounts), " ", accounts[0].Name), "1 default")
	_, created, err := s.Bootstrap(t.Context())
	storetest.Must(t, err)
	storetest.Equal(t, "bootstrapped beside", created, false)
}

func TestOpen_CreatesPrivateFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep", "data #1?%41")
	lock, err := store.LockServer(context.Background(), store.Options{DataDir: dir})
	storetest.Must(t, err)
	defer func() { storetest.Must(t, lock.Release()) }()
	open := func() *store.Store {
		s, err := store.Open(t.Context(), store.Options{DataDir: dir})
		storetest.Must(t, err)
		return s
	}
	storetest.Must(t, open().Close())
	storetest.Must(t, os.Chmod(filepath.Join(dir, "fairlead.db"), 0o644)) // as a careless restore leaves it
	s := open()
	defer func() { storetest.Must(t, s.Close()) }()
	_, _, err = s.Bootstrap(t.Context())
	storetest.Must(t, err)
	want := map[string]os.FileMode{".": 0o700, "fairlead.db": 0o600, "fairlead.db-wal": 0o600, "fairlead.db-shm": 0o600,
		"server.lock": 0o600}
	for name, mode := range want {
		info, err := os.Stat(filepath.Join(dir, name))
		storetest.Must(t, err)
		storetest.Equal(t, name, info.Mode().Perm(), mode)
	}
	entries, err := os.ReadDir(dir)
	storetest.Must(t, err)
	storetest.Equal(t, "files", len(entries), len(want)-1)
}

func TestOpen_ExplainsSQLiteErrors(t *testing.T) {
	t.Parallel()
	fresh := func(t *testing.T, change string) string {
		dir := t.TempDir()
		s, err := store.Open(t.Context(), store.Options{DataDir: dir})
		storetest.Must(t, err)
		storetest.Must(t, s.Close())
		execute(t, dir, change)
		return dir
	}
	for name, c := range map[string]struct {
		dir   func(t *testing.T) string
		parts []string
	}{
		"newer schema": {func(t *testing.T) string {
			return fresh(t, `PRAGMA user_version = 99; UPDATE store SET compatible_from = 99`)
		},
			[]string{"schema version 99", "newer fairlead-server", "--data-dir"}},
		"another program's": {func(t *testing.T) string {
			dir := t.TempDir()
			execute(t, dir, `CREATE TABLE x (y); PRAGMA user_version = 1`)
			return dir
		},
			[]string{"not a database of fairlead-server"}},
		"another application's": {func(t *testing.T) string {
			return fresh(t, `PRAGMA application_id = 7`)
		}, []string{"not a database of fairlead-server"}},
		"no database": {func(t *testing.T) string {
			dir := t.TempDir()
			storetest.Must(t, os.WriteFile(filepath.Join(dir, "fairlead.db"), []byte(strings.Repeat("rubbish ", 1000)),
				0o600))
			return dir
		}, []string{"no SQLite file or damaged", "backup"}},
		"a file": {func(t *testing.T) string {
			file := filepath.Join(t.TempDir(), "file")
			storetest.Must(t, os.WriteFile(file, nil, 0o600))
			return file
		}, []string{"cannot be made", "--data-dir"}},
		"none": {func(*testing.T) string { return "" }, []string{"--data-dir"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := c.dir(t)
			s, err := store.Open(t.Context(), store.Options{DataDir: dir})
			if err == nil {
				_ = s.Close()
				t.Fatal("it opens")
			}
			for _, part := range append(c.parts, dir) {
				if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
					t.Errorf("error %q does not name %q on one line", err, part)
				}
			}
		})
	}
}

// execute changes a database behind the store's back.
func execute(t *testing.T, dir, text string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "fairlead.db"))
	storetest.Must(t, err)
	defer func() { storetest.Must(t, db.Close()) }()
	_, err = db.ExecContext(t.Context(), text)
	storetest.Must(t, err)
}

func TestOpen_ExplainsReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	storetest.Must(t, os.Chmod(filepath.Dir(dir), 0o755)) // the other user gets that far
	storetest.Must(t, os.Chmod(dir, 0o555))
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	errs := make(chan error, 2)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its other user
		if os.Getuid() == 0 {
			_, _ = unix.SetfsuidRetUid(65534)
		}
		s, err := store.Open(context.Background(), store.Options{DataDir: dir})
		if err == nil {
			_ = s.Close()
		}
		errs <- err
		_, err = store.LockServer(context.Background(), store.Options{DataDir: dir})
		errs <- err
	}()
	for range 2 {
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "not writable for user") ||
			!strings.Contains(err.Error(), dir) {
			t.Errorf("error %v", err)
		}
	}
}

// TestOpen_TakesVolumeOfAnotherUID opens a database that another user made and the kubelet gave to
// the pod's group, as on OpenShift after a move to another namespace. It needs root.
func TestOpen_TakesVolumeOfAnotherUID(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	for name, c := range map[string]struct {
		mode os.FileMode
		want string
	}{"of the group": {0o660, ""}, "of all": {0o666, "readable for others"}} {
		dir := t.TempDir()
		storetest.Must(t, os.Chmod(filepath.Dir(dir), 0o755)) // the other user gets that far
		s, err := store.Open(t.Context(), store.Options{DataDir: dir})
		storetest.Must(t, err)
		storetest.Must(t, s.Close())
		storetest.Must(t, os.Chmod(dir, 0o770))
		storetest.Must(t, os.Chmod(filepath.Join(dir, "fairlead.db"), c.mode))
		errs := make(chan error)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with its other user
			_, _ = unix.SetfsuidRetUid(65534)
			s, err := store.Open(context.Background(), store.Options{DataDir: dir})
			if err == nil {
				err = s.Close()
			}
			errs <- err
		}()
		if err := <-errs; (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestOpen_AllowsCommandsBesideServer holds that what a command writes in its process is seen by
// the server's at once.
func TestOpen_AllowsCommandsBesideServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server, err := store.Open(t.Context(), store.Options{DataDir: dir})
	storetest.Must(t, err)
	defer func() { storetest.Must(t, server.Close()) }()
	made, _, err := server.Bootstrap(t.Context())
	storetest.Must(t, err)
	command, err := store.Open(t.Context(), store.Options{DataDir: dir})
	storetest.Must(t, err)
	defer func() { storetest.Must(t, command.Close()) }()
	key, secret, err := command.IssueAPIKey(t.Context(), made.Account.ID, "", []account.Scope{account.ScopeRead}, nil)
	storetest.Must(t, err)
	_, err = server.APIKeyBySecret(t.Context(), secret)
	storetest.Must(t, err)
	storetest.Must(t, command.DeleteAPIKey(t.Context(), account.Caller{AccountID: made.Account.ID}, key.ID))
	alive, err := server.LiveCredentials(t.Context(), storetest.Uses(key.ID))
	storetest.Must(t, err)
	storetest.Equal(t, "alive", len(alive), 0)
	_, err = server.APIKeyBySecret(t.Context(), secret)
	storetest.MustCode(t, err, account.CodeUnknownCredential)
}

// TestSweep_DeletesExpiredLogins counts the rows in the database file.
func TestSweep_DeletesExpiredLogins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := storetest.NewFixture(t, func(opt store.Options) (*store.Store, error) {
		opt.DataDir = dir
		return store.Open(context.WithoutCancel(t.Context()), opt)
	})
	soon := f.Clock.Now().Add(time.Minute)
	for i := range 3 {
		f.Login("alice", fmt.Sprint(i), func(l *account.NewLogin) { l.NotAfter = soon })
	}
	f.Login("alice", "idle", func(l *account.NewLogin) { l.Idle = time.Minute })
	_, err := f.Store.UseOnce(t.Context(), f.AccountID, "x", soon)
	storetest.Must(t, err)
	storetest.Must(t, f.Store.SaveTicket(t.Context(), f.AccountID, storetest.TokenHash("x"), nil, soon))
	key, _, err := f.Store.IssueAPIKey(t.Context(), f.AccountID, "", nil, nil)
	storetest.Must(t, err)
	_, err = f.Store.SignIn(t.Context(), key, storetest.TokenHash("x"))
	storetest.Must(t, err)
	_, err = f.Store.Revoke(t.Context(), account.Caller{AccountID: f.AccountID},
		account.RevokeSelector{Issuer: "i", Subject: "s"}, account.RevokedByBackChannel)
	storetest.Must(t, err)
	db, err := sql.Open("sqlite", filepath.Join(dir, "fairlead.db"))
	storetest.Must(t, err)
	defer func() { storetest.Must(t, db.Close()) }()
	rows := func() string {
		t.Helper()
		var counts [5]int
		storetest.Must(t, db.QueryRowContext(t.Context(),
			`SELECT (SELECT COUNT(*) FROM app_sessions), (SELECT COUNT(*) FROM login_once),
			(SELECT COUNT(*) FROM login_tickets),
			(SELECT COUNT(*) FROM dashboard_sessions), (SELECT COUNT(*) FROM login_tombstones)`).
			Scan(&counts[0], &counts[1],
				&counts[2], &counts[3], &counts[4]))
		return fmt.Sprint(counts)
	}
	for _, step := range []struct {
		after time.Duration
		want  string
	}{
		// a minute for uses that are still to be written
		{time.Minute - 1, "[4 1 1 1 1]"}, {1, "[4 0 0 1 1]"}, {time.Minute, "[0 0 0 1 1]"},
		{account.DashboardLife, "[0 0 0 0 1]"}, {account.MaxSessionDuration, "[0 0 0 0 0]"},
	} {
		f.Clock.Step(step.after)
		storetest.Must(t, f.Store.Sweep(t.Context()))
		storetest.Equal(t, "rows", rows(), step.want)
	}
}

// TestMigrations_UpgradeSQLite checks that keys and tokens of a store of version 1 stay valid.
func TestMigrations_UpgradeSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	schema, err := os.ReadFile("migrations/0001_initial.sql")
	storetest.Must(t, err)
	key, token := account.NewSecret(account.APIKeyPrefix), account.NewSecret(account.AuthtokenPrefix)
	execute(t, dir, string(schema)+fmt.Sprintf(`; PRAGMA application_id = 0x464c4431; PRAGMA user_version = 1;
		INSERT INTO store VALUES (1, 'st-old', 7);
		INSERT INTO accounts (id, name, created_at) VALUES ('ac-1', 'old', 1);
		INSERT INTO api_keys (id, account_id, description, scopes, secret_hash, created_at)
			VALUES ('ak-1', 'ac-1', 'key', '["admin"]', x'%x', 1);
		INSERT INTO authtokens (id, account_id, description, acl, secret_hash, created_at)
			VALUES ('cr-1', 'ac-1', 'token', '["bind:*"]', x'%x', 1);`,
		account.HashSecret(key), account.HashSecret(token)))
	s, err := store.Open(t.Context(), store.Options{DataDir: dir})
	storetest.Must(t, err)
	defer func() { storetest.Must(t, s.Close()) }()
	storetest.Equal(t, "store", s.StoreID(), "st-old")
	gotKey, err := s.APIKeyBySecret(t.Context(), key)
	storetest.Must(t, err)
	credential, err := s.TunnelCredential(t.Context(), token)
	storetest.Must(t, err)
	gotToken, err := s.Authtoken(t.Context(), credential.AccountID, credential.ID)
	storetest.Must(t, err)
	storetest.Equal(t, "credentials", fmt.Sprint(gotKey.ID, gotKey.Metadata, gotKey.ExpiresAt, gotKey.ACL,
		gotKey.ClusterUID, gotToken.ID, gotToken.Metadata, gotToken.ExpiresAt), "ak-1<nil> []cr-1<nil>")
}

// TestOpen_UsesCompatibleNewerSchema holds that this program goes on beside a newer one whose
// migrations it can live with, and leaves the schema alone.
func TestOpen_UsesCompatibleNewerSchema(t *testing.T) {
	t.Parallel()
	opt := store.Options{DataDir: t.TempDir()}
	s, err := store.Open(t.Context(), opt)
	storetest.Must(t, err)
	storetest.Must(t, s.Close())
	execute(t, opt.DataDir, `PRAGMA user_version = 99`)
	for range 2 {
		s, err := store.Open(t.Context(), opt)
		storetest.Must(t, err)
		_, err = s.CreateAccount(t.Context(), account.NewID("a", time.Now()))
		storetest.Must(t, err)
		storetest.Must(t, s.Close())
	}
}
