// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// The environment of a child process: this test binary, run as one part of a chain.
const (
	envRole    = "FAIRLEAD_BENCH_ROLE"    // "<variant> <part>"
	envNext    = "FAIRLEAD_BENCH_NEXT"    // what the part has to know: the address of the next one, and more
	envKey     = "FAIRLEAD_BENCH_KEY"     // certificate and key of every hop
	envProfile = "FAIRLEAD_BENCH_PROFILE" // file for a CPU profile
)

func TestMain(m *testing.M) {
	role := os.Getenv(envRole)
	if role == "" {
		flag.Parse()
		os.Exit(m.Run())
	}
	if err := child(role, os.Getenv(envNext)); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
}

// child runs a part of a chain: it prints what the parent has to know, its address first, and ends
// with its input.
func child(role, next string) error {
	start := findRole(role)
	if start == nil {
		return errors.New("unknown role")
	}
	keys, err := loadKeys()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	told, err := start(ctx, keys, next)
	if err != nil {
		return err
	}
	if path := os.Getenv(envProfile); path != "" { // before the parent goes on, which would wait for more
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err != nil {
			return err
		}
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer func() { pprof.StopCPUProfile(); _ = f.Close() }()
	}
	fmt.Println(told)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); { // a question: how much is there?
		runtime.GC()
		debug.FreeOSMemory()
		var heap runtime.MemStats
		runtime.ReadMemStats(&heap)
		fmt.Println(runtime.NumGoroutine(), heap.HeapInuse)
	}
	return nil
}

// process is a part of a chain as its parent sees it.
type process struct {
	part string // forwarder, edge or agent
	told []string
	pid  int
	in   io.Writer
	out  *bufio.Reader
	cmd  *exec.Cmd
}

// spawn starts a part and waits until it is up.
func spawn(b testing.TB, variant, part, keys, next string) *process {
	b.Helper()
	return spawnIn(b, "", variant, part, keys, next)
}

// spawnIn is spawn in a network namespace; "" is this one.
func spawnIn(b testing.TB, namespace, variant, part, keys, next string) *process {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	if namespace != "" {
		cmd = exec.Command("ip", "netns", "exec", namespace, os.Args[0])
	}
	if variant == unprivileged {
		cmd = unprivilegedCommand()
	}
	cmd.Env = append(os.Environ(), envRole+"="+variant+" "+part, envNext+"="+next, envKey+"="+keys,
		"GORACE=halt_on_error=1") // a part with a data race ends, so that the test fails
	if *profiles != "" && variant != unprivileged {
		cmd.Env = append(cmd.Env, envProfile+"="+filepath.Join(*profiles, variant+"-"+part+".pprof"))
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must.Succeed(b, err)
	out, err := cmd.StdoutPipe()
	must.Succeed(b, err)
	must.Succeed(b, cmd.Start())
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	p := &process{part: part, pid: cmd.Process.Pid, in: in, out: bufio.NewReader(out), cmd: cmd}
	p.told = p.line(b)
	return p
}

func (p *process) line(b testing.TB) []string {
	b.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		b.Fatalf("reading from the %s: %v", p.part, err)
	}
	return strings.Fields(line)
}

// resourceUse are what a process must give back.
type resourceUse struct{ goroutines, descriptors, heap int }

func (p *process) resourceUse(b testing.TB) (h resourceUse) {
	b.Helper()
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Sscan(strings.Join(p.line(b), " "), &h.goroutines, &h.heap); err != nil {
		b.Fatal(err)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	if err != nil {
		b.Skipf("descriptors are counted in /proc: %v", err)
	}
	h.descriptors = len(open)
	return h
}

// cpu returns the CPU time that the process has used.
func (p *process) cpu(b testing.TB) time.Duration {
	b.Helper()
	used, err := cpuTime(p.pid)
	if err != nil {
		b.Fatalf("reading the CPU time of the %s: %v", p.part, err)
	}
	return used
}

// memory returns the process' resident set, in kB.
func (p *process) memory(b testing.TB) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	must.Succeed(b, err)
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 64)
			must.Succeed(b, err)
			return kb
		}
	}
	b.Fatalf("process %d has no VmRSS", p.pid)
	return 0
}

// bytesRead returns how many bytes the process has read by system calls that copy them.
func (p *process) bytesRead(b testing.TB) (n int64) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.pid))
	must.Succeed(b, err)
	_, err = fmt.Sscanf(string(text), "rchar: %d", &n)
	must.Succeed(b, err)
	return n
}
