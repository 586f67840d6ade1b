// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCluster_ReusedPIDIsNotNode(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	c := &Cluster{Name: "x", Dir: t.TempDir()}
	if c.Alive() || (*Cluster)(nil).Alive() {
		t.Error("alive before it was started")
	}
	if err := c.SetProcess(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := c.Save(); err != nil {
		t.Fatal(err)
	}
	c, err := Load(c.Dir)
	if err != nil || !c.Alive() {
		t.Fatalf("not alive after a round trip: %+v, %v", c, err)
	}
	other := *c
	other.StartTime++
	later := *c
	later.BootID = "another"
	for what, c := range map[string]Cluster{"start time": other, "boot": later} {
		if c.Alive() {
			t.Errorf("a process of another %s is taken for the node", what)
		}
		if err := c.Kill(); err != nil {
			t.Error(err)
		}
	}
	if !c.Alive() {
		t.Fatal("another cluster's Kill ended the process")
	}
	if err := c.Kill(); err != nil || c.Alive() { // it is a zombie now, as its parent has not waited
		t.Errorf("Kill: %v, alive %t", err, c.Alive())
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process ended by itself")
	}
}

func TestLoad_DistinguishesMissingFromInvalid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := Load(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty folder: %v, want fs.ErrNotExist", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "cluster.json") {
		t.Errorf("half a file: %v, want an error that names it", err)
	}
}

func TestLock_SurvivesRemovalOfFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "c")
	unlock, err := Lock(t.Context(), io.Discard, dir)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Lock(short, &said, dir); !errors.Is(err, context.Canceled) ||
		!strings.Contains(said.String(), "waiting") {
		t.Errorf("a second lock: %v, said %q", err, said.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	second := make(chan error, 1)
	go func() {
		unlock, err := Lock(ctx, io.Discard, dir)
		if err == nil {
			_, err = os.Stat(dir) // it holds the folder that is there, not the removed one
			unlock()
		}
		second <- err
	}()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := <-second; err != nil {
		t.Errorf("a lock after the removal: %v", err)
	}
}

func TestName_Valid(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"e2e": true, "a": true, "a-b-1": true,
		"": false, "-a": false, "a-": false, "A": false, "a/b": false, "..": false, strings.Repeat("a", 31): false,
	} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("CheckName(%q) = %v", name, err)
		}
	}
	a, b := Cluster{Name: "x", Dir: "/a/x"}, Cluster{Name: "x", Dir: "/b/x"}
	if a.CgroupName() == b.CgroupName() {
		t.Error("two clusters of one name in two folders share a control group")
	}
}
