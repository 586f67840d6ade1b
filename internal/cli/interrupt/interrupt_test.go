// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package interrupt

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childProcessEnv makes the test binary a process that drains until it is killed.
const childProcessEnv = "FAIRLEAD_TEST_AS_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(childProcessEnv) != "" {
		reportSignals()
	}
	goleak.VerifyTestMain(m)
}

// reportSignals prints what each signal does to the process.
func reportSignals() {
	ctx, hurry, stop := WithForceStop(context.Background())
	defer stop()
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("stopping")
	select {
	case <-hurry:
		fmt.Println("hurried by the same signal")
	case <-time.After(2 * duplicateWindow):
		fmt.Println("draining")
	}
	<-hurry
	fmt.Println("in a hurry")
	select {}
}

func TestContext_IgnoresDuplicateSignal(t *testing.T) {
	t.Parallel()
	for name, signals := range map[string][2]syscall.Signal{
		"Ctrl-C of a terminal and of a wrapper": {syscall.SIGINT, syscall.SIGINT},
		"two kinds":                             {syscall.SIGINT, syscall.SIGTERM},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = []string{childProcessEnv + "=1"}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			twice := func() {
				for _, s := range signals {
					_ = cmd.Process.Signal(s)
				}
			}
			for _, step := range []struct {
				line string
				then func()
			}{{"ready", twice}, {"stopping", nil}, {"draining", twice}, {"in a hurry", func() {
				<-time.After(2 * duplicateWindow)
				twice()
			}}} {
				// a signal 300 ms later is a new one

				if !lines.Scan() || lines.Text() != step.line {
					t.Fatalf("the process printed %q, want %q", lines.Text(), step.line)
				}
				if step.then != nil {
					step.then()
				}
			}
			if lines.Scan() {
				t.Errorf("the process printed %q", lines.Text())
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 128+int(signals[0]) && code != 128+int(signals[1]) {
				t.Errorf("exit code %d after the third signal, want 128 and its number", code)
			}
		})
	}
}

func TestContext_StopCancels(t *testing.T) {
	t.Parallel()
	ctx, stop := Context(context.Background())
	stop()
	stop()
	<-ctx.Done()
}
