// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
)

var postgres postgrestest.Shared

func TestMain(m *testing.M) { goleak.VerifyTestMain(postgrestest.Main{M: m, Shared: &postgres}) }

// openStore opens the store of a server on the database.
func openStore(t *testing.T, databaseURL string) *store.Store {
	t.Helper()
	key, err := seal.New(bytes.Repeat([]byte{7}, seal.KeySize))
	must.Succeed(t, err)
	s, err := store.Open(t.Context(), store.Options{DatabaseURL: databaseURL, Key: key})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestOpen_SharesAuthorityOfStore starts servers without files on a new database at once.
func TestOpen_SharesAuthorityOfStore(t *testing.T) {
	t.Parallel()
	databaseURL := postgres.Server(t).URL(t)
	opened := make([]*Source, 4)
	dirs := make([]string, len(opened))
	var all sync.WaitGroup
	for i := range opened {
		o := Options{Store: openStore(t, databaseURL), Dir: t.TempDir(), Names: names,
			Logger: slog.New(slog.DiscardHandler)}
		dirs[i] = o.Dir
		all.Go(func() {
			var err error
			if opened[i], err = Open(t.Context(), o); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	pin := trust.Options{CASHA256: trust.Fingerprint(opened[0].CA())}
	for i, s := range append(opened, open(t, Options{Store: openStore(t, databaseURL), Dir: t.TempDir(),
		Names: names})) {
		if !s.CA().Equal(opened[0].CA()) {
			t.Errorf("server %d has another authority than the first", i)
		}
		if err := handshake(t, s, pin, "localhost"); err != nil {
			t.Errorf("server %d: %v", i, err)
		}
	}
	for _, dir := range dirs {
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("the data directory holds %v, %v", files, err)
		}
	}
}

func TestOpen_ImportsAuthorityOfDirectory(t *testing.T) {
	t.Parallel()
	databaseURL, dir := postgres.Server(t).URL(t), t.TempDir()
	before := open(t, Options{Dir: dir, Names: names}).CA()
	var log bytes.Buffer
	o := Options{Store: openStore(t, databaseURL), Dir: dir, Names: names,
		Logger: slog.New(slog.NewTextHandler(&log, nil))}
	for range 2 {
		if !open(t, o).CA().Equal(before) {
			t.Error("the authority is another one with a database")
		}
	}
	if strings.Count(log.String(), trust.Fingerprint(before)) != 1 || !strings.Contains(log.String(), "imported=true") {
		t.Errorf("the import is not logged once: %s", &log)
	}
	must.Succeed(t, os.Remove(filepath.Join(dir, caKeyFile)))
	if !open(t, o).CA().Equal(before) {
		t.Error("the authority is another one without its file")
	}
	o.Dir = t.TempDir()
	if !open(t, o).CA().Equal(before) {
		t.Error("another server has another authority")
	}
}

// TestOpen_RefusesAuthorityBesideStored follows each remedy of the error.
func TestOpen_RefusesAuthorityBesideStored(t *testing.T) {
	t.Parallel()
	server := postgres.Server(t)
	databaseURL, dir := server.URL(t), t.TempDir()
	o := Options{Store: openStore(t, databaseURL), Dir: t.TempDir(), Names: names,
		Logger: slog.New(slog.DiscardHandler)}
	stored := open(t, o).CA()
	local := open(t, Options{Dir: dir, Names: names}).CA()
	o.Dir = dir
	_, err := Open(t.Context(), o)
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Fatalf("error %v, want a sentence", err)
	}
	for _, text := range []string{trust.Fingerprint(stored), trust.Fingerprint(local), dir, o.Store.DisplayName(),
		"remove " + filepath.Join(dir, caCertFile) + " and " + caKeyFile, "DELETE FROM authority"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q lacks %q", err, text)
		}
	}
	if files, err := LoadCA(dir); err != nil || !files.Equal(local) {
		t.Errorf("the refusal changed the files: %v", err)
	}
	must.Succeed(t, server.Exec(t.Context(), databaseURL, `DELETE FROM authority`))
	if !open(t, o).CA().Equal(local) {
		t.Error("the data directory's authority is not presented once the database has none")
	}
	o.Dir = t.TempDir()
	open(t, Options{Dir: o.Dir, Names: names})
	for _, file := range []string{caCertFile, caKeyFile} {
		must.Succeed(t, os.Remove(filepath.Join(o.Dir, file)))
	}
	if !open(t, o).CA().Equal(local) {
		t.Error("the database's authority is not presented once the data directory has none")
	}
}

func TestOpen_RefusesExpiredAuthorityOfStore(t *testing.T) {
	t.Parallel()
	o := Options{Store: openStore(t, postgres.Server(t).URL(t)), Dir: t.TempDir(), Names: names,
		Logger: slog.New(slog.DiscardHandler)}
	open(t, o)
	_, err := openStoredAuthority(t.Context(), o, time.Now().Add(caLife+time.Hour))
	if err == nil || !strings.Contains(err.Error(), "expired on") || !strings.Contains(err.Error(), removeStored) {
		t.Errorf("error %v, want one with a remedy", err)
	}
}

func TestSource_RenewsLeafInMemory(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Store: openStore(t, postgres.Server(t).URL(t)), Dir: t.TempDir(), Names: names})
	first := s.Leaf()
	if s.refresh(t.Context(), time.Now().Add(59*24*time.Hour), "") != "" || !s.Leaf().Equal(first) {
		t.Error("renewed too early")
	}
	if s.refresh(t.Context(), time.Now().Add(61*24*time.Hour), "") != "" || s.Leaf().Equal(first) {
		t.Error("not renewed")
	}
}
