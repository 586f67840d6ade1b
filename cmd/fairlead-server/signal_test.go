// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// asProcess makes a test binary behave as the command.
const asProcess = "FAIRLEAD_TEST_AS_PROCESS"

// TestSignal_SimultaneousInterruptsDrain: Ctrl-C reaches the whole group of a terminal's processes,
// and wrappers such as make, npm and go run pass it on, so that one Ctrl-C is several signals.
func TestSignal_SimultaneousInterruptsDrain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "--addr", "127.0.0.1:0", "--metrics-addr", "", "--data-dir",
		t.TempDir())
	cmd.Env = []string{asProcess + "=1", "HOME=" + t.TempDir()}
	log, err := cmd.StderrPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	var logged strings.Builder
	for lines := bufio.NewScanner(log); lines.Scan(); {
		logged.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "is up") {
			for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGINT} {
				_ = cmd.Process.Signal(s)
			}
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(logged.String(), `"stopped"`) {
		t.Errorf("it ended with %v, want exit code 0, and logged\n%s", err, logged.String())
	}
}
