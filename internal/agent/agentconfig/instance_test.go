// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func acquire(t *testing.T, dir string) *Instance {
	t.Helper()
	i, err := AcquireInstance(dir)
	if err != nil || !account.ValidID("in", i.ID) {
		t.Fatalf("got %+v, %v", i, err)
	}
	return i
}

func TestAcquireInstance_OneIDPerProcess(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "fairlead")
	first := acquire(t, dir)
	second := acquire(t, dir)
	if first.ID == second.ID {
		t.Fatal("two live processes share an id")
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("state directory: %v, %v", info.Mode(), err)
	}
	must.Succeed(t, first.Release())
	again := acquire(t, dir)
	if again.ID != first.ID {
		t.Errorf("after a restart the id is %s, was %s", again.ID, first.ID)
	}
	third := acquire(t, dir)
	if third.ID == again.ID || third.ID == second.ID {
		t.Error("a third process took an id that is held")
	}
	for _, i := range []*Instance{again, second, third} {
		if err := i.Release(); err != nil {
			t.Error(err)
		}
	}
}

func TestAcquireInstance_ReplacesDamagedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "instance-0"), "in-NOT AN ID\n", 0o600)
	made := acquire(t, dir)
	must.Succeed(t, made.Release())
	if again := acquire(t, dir); again.ID != made.ID {
		t.Errorf("the new id was not kept: %s, then %s", made.ID, again.ID)
	}
}

func TestAcquireInstance_WithoutStateDirectory(t *testing.T) {
	t.Parallel()
	blocked := write(t, filepath.Join(t.TempDir(), "file"), "", 0o600)
	i, err := AcquireInstance(filepath.Join(blocked, "fairlead"))
	if err == nil || !account.ValidID("in", i.ID) {
		t.Fatalf("got %+v, %v; want an error and an id", i, err)
	}
	if err := i.Release(); err != nil {
		t.Error(err)
	}
}
