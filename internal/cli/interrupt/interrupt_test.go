// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package interrupt

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/test/support/must"
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
	if os.Getenv(childProcessEnv) == "hangup" {
		ctx, stop := Context(context.Background(), syscall.SIGHUP)
		defer stop()
		fmt.Println("ready")
		<-ctx.Done()
		os.Exit(0)
	}
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
			must.Succeed(t, err)
			must.Succeed(t, cmd.Start())
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

// TestContext_HangupEndsUnlessIgnored: a closed terminal stops the process in order, and nohup keeps
// it running.
func TestContext_HangupEndsUnlessIgnored(t *testing.T) {
	t.Parallel()
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // else processes ignore it where this test runs under nohup
	defer signal.Stop(hangup)
	for script, ends := range map[string]syscall.Signal{
		`exec "$0"`:              syscall.SIGHUP,
		`trap "" HUP; exec "$0"`: syscall.SIGTERM,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script, os.Args[0])
		cmd.Env = []string{childProcessEnv + "=hangup"}
		out, err := cmd.StdoutPipe()
		must.Succeed(t, err)
		must.Succeed(t, cmd.Start())
		if !bufio.NewScanner(out).Scan() {
			t.Fatal("the process printed nothing")
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		must.Succeed(t, err)
		if got, want := ignoresHangup(status), ends != syscall.SIGHUP; got != want {
			t.Errorf("%s: SIGHUP is ignored: %v, want %v", script, got, want)
		}
		_ = cmd.Process.Signal(ends)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v after %v", script, err, ends)
		}
	}
}

// ignoresHangup reports whether SigIgn in a process's status has SIGHUP, its lowest bit.
func ignoresHangup(status []byte) bool {
	_, rest, found := bytes.Cut(status, []byte("SigIgn:\t"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return found && len(line) > 0 && strings.ContainsRune("13579bdf", rune(line[len(line)-1]))
}
