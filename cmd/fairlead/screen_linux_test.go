// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	entered = "\x1b[?1049h"
	left    = "\x1b[?1049l"
)

// onTerminal is the command on a pseudo-terminal of its own.
type onTerminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File

	mu    sync.Mutex
	text  string
	more  chan struct{} // closed and replaced with each output
	ended bool
}

// pty makes a pseudo-terminal of 100 columns and 30 rows.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must.Succeed(t, err)
	must.Succeed(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	resize(t, master, 100, 30)
	return master, slave
}

func resize(t *testing.T, master *os.File, columns, rows uint16) {
	t.Helper()
	must.Succeed(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Col: columns, Row: rows}))
}

func startOnTerminal(t *testing.T, svc *service, env []string, args ...string) *onTerminal {
	t.Helper()
	master, slave := pty(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	o := &onTerminal{t: t, master: master, more: make(chan struct{})}
	o.cmd = exec.CommandContext(ctx, os.Args[0], append(args, "--server", svc.url, "--ca-file", svc.caFile)...)
	o.cmd.Env = append([]string{asProcess + "=1", "HOME=" + t.TempDir(), agentconfig.EnvAuthtoken + "=" + goodToken,
		"TERM=xterm-256color"}, env...)
	o.cmd.Stdin, o.cmd.Stdout, o.cmd.Stderr = slave, slave, slave
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // else the process ignores it where these tests run under nohup
	t.Cleanup(func() { signal.Stop(hangup) })
	must.Succeed(t, o.cmd.Start())
	_ = slave.Close()
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		buf := make([]byte, 64<<10)
		for {
			n, err := master.Read(buf)
			o.mu.Lock()
			o.text += string(buf[:n])
			o.ended = err != nil
			close(o.more)
			o.more = make(chan struct{})
			o.mu.Unlock()
			if err != nil { // EIO when the last process has closed the terminal
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = o.cmd.Process.Kill()
		_ = o.cmd.Wait()
		<-reading
		_ = master.Close()
	})
	return o
}

// until waits for a text, drops what came up to its end, and returns that.
func (o *onTerminal) until(text string) string {
	o.t.Helper()
	for deadline := time.After(time.Minute); ; {
		o.mu.Lock()
		before, after, found := strings.Cut(o.text, text)
		if found {
			o.text = after
		}
		more, ended, all := o.more, o.ended, o.text
		o.mu.Unlock()
		switch {
		case found:
			return before + text
		case ended:
			o.t.Fatalf("the terminal ended without %q; it has %q", text, all)
		}
		select {
		case <-more:
		case <-deadline:
			o.t.Fatalf("no %q; the terminal has %q", text, all)
		}
	}
}

func (o *onTerminal) signal(s os.Signal) {
	o.t.Helper()
	must.Succeed(o.t, o.cmd.Process.Signal(s))
}

func TestLiveScreen_RestoresTerminal(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, nil)
	o := startOnTerminal(t, svc, nil, "http", "8080", "--url", "http://a.b")
	o.until(entered)
	o.until("http://a.b -> http://localhost:8080")
	s := <-svc.bound
	o.until("online")
	o.until("latency")
	s.SendRequestLine(tunnel.RequestLine{EndpointID: "ep-1", Method: "GET", Path: "/\x1b[2Jhello", Status: 204,
		Duration: time.Millisecond})
	if got := o.until("hello"); !strings.Contains(got, `/\x1b[2Jhello`) || strings.Contains(got, "\x1b[2Jhello") {
		t.Errorf("a request's path: %q", got)
	}
	o.until("204")

	resize(t, o.master, 40, 10) // the kernel sends SIGWINCH
	o.until("\r\n\x1b[KServer    " + svc.url[:20])
	o.until("…") // what was a whole line

	o.signal(syscall.SIGTSTP) // Ctrl-Z
	o.until(left)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(o.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("after SIGTSTP: %v, %v", status, err)
	}
	o.signal(syscall.SIGCONT) // fg
	o.until(entered)

	if _, err := o.master.WriteString("\x03"); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	o.until(left)
	o.until("stopped\r\n")
	if err := o.cmd.Wait(); err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestLiveScreen_LeavesBeforeErrors(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, refusal(tunnel.CodeURLTaken, "it is taken by ts-9"))
	o := startOnTerminal(t, svc, nil, "http", "8080", "--url", "http://a.b")
	o.until(entered)
	o.until(left)
	o.until("fairlead: it is taken by ts-9\r\n")
	if _ = o.cmd.Wait(); o.cmd.ProcessState.ExitCode() != exitURLTaken {
		t.Errorf("exit code %d", o.cmd.ProcessState.ExitCode())
	}
}

func TestLiveScreen_WrongFingerprintIsExitCode6(t *testing.T) {
	t.Parallel()
	svc := *newService(t, nil, nil)
	svc.caFile = ""
	o := startOnTerminal(t, &svc, nil, "http", "8080", "--url", "http://a.b", "--ca-sha256", strings.Repeat("0", 64))
	o.until("not the one whose fingerprint was given; compare --ca-sha256 with what the server has")
	if _ = o.cmd.Wait(); o.cmd.ProcessState.ExitCode() != exitIdentity {
		t.Errorf("exit code %d", o.cmd.ProcessState.ExitCode())
	}
}

// TestLiveScreen_UnbindsWhenTerminalIsClosed: SIGHUP ends the agent in order, so that its endpoint
// does not stay behind offline.
func TestLiveScreen_UnbindsWhenTerminalIsClosed(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, nil)
	o := startOnTerminal(t, svc, nil, "http", "8080", "--url", "http://a.b")
	o.until("online")
	o.signal(syscall.SIGHUP)
	must.Succeed(t, o.cmd.Wait())
	if id := <-svc.unbound; id != "ep-1" {
		t.Errorf("goodbye to %q", id)
	}
}

// TestLiveScreen_LeavesOnSignals: signals that end the process must not leave the terminal in the
// screen's mode.
func TestLiveScreen_LeavesOnSignals(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			o := startOnTerminal(t, newService(t, nil, nil), nil, "http", "8080", "--url", "http://a.b")
			o.until(entered)
			o.until("online")
			o.signal(s)
			o.until(left)
			_ = o.cmd.Wait()
		})
	}
}

func TestLiveScreen_NotWithLineFlags(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ env, args []string }{
		"flag":     {nil, []string{"--no-screen"}},
		"format":   {nil, []string{"--log-format", "text"}},
		"level":    {nil, []string{"--log-level", "info"}},
		"terminal": {[]string{"TERM=dumb"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := startOnTerminal(t, newService(t, nil, nil), c.env,
				append([]string{"http", "8080", "--url", "http://a.b"}, c.args...)...)
			if got := o.until("online"); strings.Contains(got, entered) {
				t.Errorf("a status screen: %q", got)
			}
		})
	}
}

func TestLiveScreen_HonoursNoColor(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]bool{"NO_COLOR=1": false, "X=1": true} {
		o := startOnTerminal(t, newService(t, nil, nil), []string{env}, "http", "8080", "--url", "http://a.b")
		if got := o.until("online"); strings.Contains(got, "\x1b[3") != want { // the first frame has no state yet
			t.Errorf("%s: %q", env, got)
		}
	}
}

func TestInspect_ServesOnTerminals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want bool
	}{
		"screen": {nil, true}, "lines": {[]string{"--no-screen"}, true}, "off": {[]string{"--inspect=false"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := startOnTerminal(t, newService(t, nil, nil), nil,
				append([]string{"http", "8080", "--url", "http://a.b"},
					c.args...)...)
			got := o.until("http://localhost:8080")
			if served := strings.Contains(got, "Inspector ") &&
				strings.Contains(got, "http://127.0.0.1:4"); served != c.want {
				t.Errorf("inspector %t, want %t: %q", served, c.want, got)
			}
		})
	}
}

// TestInspect_ScreenShowsNoSecret checks what the status screen shows of requests with secrets.
func TestInspect_ScreenShowsNoSecret(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(repeatSecrets())
	defer upstream.Close()
	svc := newService(t, nil, nil)
	o := startOnTerminal(t, svc, nil, "http", upstream.URL, "--url", "http://a.b", "--inspect-addr", "127.0.0.1:0",
		"--traffic-policy-file", writePlantedPolicy(t))
	shown := o.until("online")
	if !inspectorURL.MatchString(shown) { // the inspector listened only after this frame
		shown += o.until("Inspector") + o.until("\x1b[H") // the end of a frame
	}
	base := inspectorOf(t, func() string { return shown })
	plant(t, <-svc.bound)
	checkInspector(t, base)
	shown += o.until("/turns")
	o.signal(syscall.SIGTERM)
	shown += o.until("stopped\r\n")
	(&inspectorClient{t: t}).check("the screen", withDecoded(shown))
}
