// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// commandGrace is how long a command may take to end after SIGTERM.
const commandGrace = 10 * time.Second

// command prepares a command in the node (its network, KUBECONFIG, kubectl, helm and nettool in
// PATH; this machine's files), or with a context on this machine. Ending ctx ends it with SIGTERM,
// then SIGKILL.
func (c *Cluster) command(ctx context.Context, args []string) *exec.Cmd {
	if c.context == "" {
		args = append([]string{c.bin, "exec", "--name", c.name, "--"}, args...)
	} else {
		switch args[0] {
		case "kubectl":
			args = append([]string{"kubectl", "--context", c.context}, args[1:]...)
		case "helm":
			args = append([]string{"helm", "--kube-context", c.context}, args[1:]...)
		}
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = commandGrace
	return cmd
}

// Exec runs a command in the node to its end and returns what it wrote to stdout. The error of one
// that fails holds its stderr; errors.As finds the *exec.ExitError.
func (c *Cluster) Exec(ctx context.Context, args ...string) (string, error) {
	return c.ExecInput(ctx, nil, args...)
}

// ExecInput is Exec with something to read on stdin.
func (c *Cluster) ExecInput(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := c.command(ctx, args)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("running %s: %w: %s", strings.Join(args, " "), errors.Join(err, ctx.Err()),
			bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// Kubectl runs kubectl, which must succeed, and returns what it wrote to stdout.
func (c *Cluster) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	return c.mustRun(t, append([]string{"kubectl"}, args...)...)
}

// Helm runs helm, which must succeed, and returns what it wrote to stdout. Paths are relative to
// the test's folder.
func (c *Cluster) Helm(t testing.TB, args ...string) string {
	t.Helper()
	return c.mustRun(t, append([]string{"helm"}, args...)...)
}

func (c *Cluster) mustRun(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out, err := c.Exec(ctx, args...)
	must.Succeed(t, err)
	return out
}

// Apply gives the API server objects as YAML. They stay: make them in a namespace of the test
// (Namespace).
func (c *Cluster) Apply(t testing.TB, yaml string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.ExecInput(ctx, strings.NewReader(yaml), "kubectl", "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// Load gives the node images: "name:tag=binary", "name:tag=folder" or the path of an OCI archive.
// With a context it does nothing, as images are then loaded by other means.
func (c *Cluster) Load(t testing.TB, images ...string) {
	t.Helper()
	if c.context != "" {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, c.bin, append([]string{"load", "--name", c.name}, images...)...).
		CombinedOutput()
	if err != nil {
		t.Fatalf("loading images: %v: %s", err, out)
	}
}

// Eventually tries until check returns nil, and ends the test with its last error when the time is
// over. The context of a try ends with the time.
func (c *Cluster) Eventually(t testing.TB, timeout time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, timeout, err)
		}
	}
}

// pause waits, or returns why it did not.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
