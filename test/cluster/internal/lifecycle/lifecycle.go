// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle starts and stops clusters. Options come in; a running node, recorded in the
// cluster's folder, goes out to internal/node. Whatever happened before (a kill, a crash, an
// interrupted start), Up ends with a ready cluster or an error, and Down with nothing left.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/build"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/cgroup"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/enter"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/node"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/preflight"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/state"
)

// Up makes sure that the cluster runs and is ready; where it already is, it does nothing. It writes
// its progress to out. When ctx ends during a start, everything is taken down again.
func Up(ctx context.Context, out io.Writer, cache build.Cache, want state.Cluster) error {
	if err := preflight.CheckDir(want.Dir, "--state-dir"); err != nil {
		return err
	}
	if err := preflight.CheckDir(cache.Dir, "the environment variable FAIRLEAD_CACHE"); err != nil {
		return err
	}
	images := hostImages(want.Options)
	if err := preflight.Check(ctx, preflight.This(), needed(images)...); err != nil {
		return err
	}
	if err := cache.Build(ctx, out, build.All()...); err != nil {
		return err
	}
	unlock, err := state.Lock(ctx, out, want.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	have, err := state.Load(want.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		_, _ = fmt.Fprintf(out, "starting anew, because what was known of the cluster is unreadable: %v\n", err)
	}
	if have.Alive() && node.ReadProgress(have).Failed == "" {
		if have.Options != want.Options {
			return fmt.Errorf("the cluster %s runs with other options (%s): run `cluster down` first", have.Name,
				have.Options)
		}
		if node.ReadProgress(have).Ready {
			_, _ = fmt.Fprintf(out, "the cluster %s is already running\n", have.Name)
			return nil
		}
		return follow(ctx, out, have) // started by a command that was killed
	}
	if err := remove(&want); err != nil {
		return err
	}
	return start(ctx, out, cache, want, images)
}

func start(ctx context.Context, out io.Writer, cache build.Cache, c state.Cluster, images []hostImage) (err error) {
	defer func() {
		if ctx.Err() != nil {
			err = errors.Join(ctx.Err(), remove(&c), os.RemoveAll(c.Dir))
		}
	}()
	for name, dir := range map[string]*string{build.Kubenode: &c.Kubenode, build.Tools: &c.Tools, build.Helm: &c.Helm,
		build.Images: &c.Images} {
		if *dir, err = cache.PartDir(name); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.Path("log"), 0o755); err != nil {
		return err
	}
	if err := packHostImages(ctx, c.Path(node.HostImages), images); err != nil {
		return err
	}
	if err := launch(ctx, &c); err != nil {
		return errors.Join(fmt.Errorf("starting the node: %w", err), remove(&c))
	}
	return follow(ctx, out, &c)
}

// launch starts PID 1 in new namespaces. It waits there until it is recorded and in its control
// groups; should this program die before, it ends.
func launch(ctx context.Context, c *state.Cluster) error {
	hs, err := cgroup.Hierarchies()
	if err != nil {
		return err
	}
	if err := cgroup.Create(hs, c.CgroupName()); err != nil {
		return err
	}
	waiting, release, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = release.Close() }()
	log, err := os.Create(c.Path("log", "node.log"))
	if err != nil {
		_ = waiting.Close()
		return err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe", node.InitCommand, c.Dir)
	cmd.Args[0] = "cluster"
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", enter.Environ(c), log, log
	cmd.ExtraFiles = []*os.File{waiting}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: node.Namespaces}
	err = cmd.Start()
	_, _ = waiting.Close(), log.Close()
	if err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // its end is seen in the process table
	c.Started = time.Now().UTC()
	if err := c.SetProcess(cmd.Process.Pid); err != nil {
		return err
	}
	if err := c.Save(); err != nil {
		return err
	}
	if err := cgroup.Join(hs, c.CgroupName(), cmd.Process.Pid); err != nil {
		return err
	}
	_, err = release.Write([]byte{1})
	return err
}

// follow prints the node's progress until it is ready.
func follow(ctx context.Context, out io.Writer, c *state.Cluster) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for shown := 0; ; {
		alive := c.Alive() // before its last words are read
		p := node.ReadProgress(c)
		for ; shown < len(p.Steps); shown++ {
			_, _ = fmt.Fprintln(out, p.Steps[shown])
		}
		switch {
		case p.Ready:
			return nil
		case p.Failed != "":
			return errors.Join(fmt.Errorf("the node did not start: %s", p.Failed), keepLogs(c))
		case !alive:
			return errors.Join(fmt.Errorf("the node ended during its start: %s", tail(c.Path("log", "node.log"))),
				keepLogs(c))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// keepLogs ends what is left of a failed start but leaves its folder for a look.
func keepLogs(c *state.Cluster) error {
	return errors.Join(fmt.Errorf("logs are in %s until the next up or down", c.Path("log")), c.Kill(), removeGroups(c))
}

// Down ends the cluster and removes all of it. Where nothing is, it does nothing.
func Down(ctx context.Context, out io.Writer, c state.Cluster) error {
	if os.Geteuid() != 0 {
		return errors.New("ending a node needs root: run this with sudo")
	}
	unlock, err := state.Lock(ctx, out, c.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := remove(&c); err != nil {
		return err
	}
	if err := os.RemoveAll(c.Dir); err != nil {
		return fmt.Errorf("removing the cluster's folder: %w", err)
	}
	return nil
}

// remove takes away all of a cluster that an earlier run left, save the folder itself, which
// carries the lock.
func remove(c *state.Cluster) error {
	have, err := state.Load(c.Dir)
	if err == nil {
		if err := have.Kill(); err != nil {
			return err
		}
	}
	if err := removeGroups(c); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(c.Path(e.Name())); err != nil {
			return fmt.Errorf("removing what the cluster left: %w", err)
		}
	}
	return nil
}

func removeGroups(c *state.Cluster) error {
	hs, err := cgroup.Hierarchies()
	if err != nil {
		return err
	}
	return cgroup.Remove(hs, c.CgroupName())
}
