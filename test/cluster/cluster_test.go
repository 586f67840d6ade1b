// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/build"
	"github.com/fairlead-dev/fairlead/test/cluster/internal/node"
)

// asCluster makes the test's binary the cluster program, so that what is tested is what was
// compiled.
const asCluster = "FAIRLEAD_TEST_AS_CLUSTER"

func TestMain(m *testing.M) {
	if os.Getenv(asCluster) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// cli runs sub-commands on one cluster in a folder of the test.
type cli struct {
	t         *testing.T
	name, dir string
}

// newCLI returns the commands of one cluster. Go's test cache does not notice what they read: sources of
// images, versions of Kubernetes. So it lists every folder here.
func newCLI(t *testing.T, name string) cli {
	t.Helper()
	if err := filepath.WalkDir(".", func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
		t.Fatal(err)
	}
	return cli{t, name, filepath.Join(t.TempDir(), name)}
}

// cleanUp takes the cluster down at the end of the test.
func (c cli) cleanUp() {
	c.t.Cleanup(func() {
		if code, out := c.run("down"); code != 0 {
			c.t.Errorf("down: %s", out)
		}
	})
}

func (c cli) command(args ...string) *exec.Cmd {
	command, rest := args[0], args[1:]
	cmd := exec.Command(os.Args[0], append([]string{command, "--name", c.name, "--state-dir", c.dir}, rest...)...)
	cmd.Env = append(os.Environ(), asCluster+"=1")
	return cmd
}

// run returns the exit code and all that was said.
func (c cli) run(args ...string) (int, string) {
	c.t.Helper()
	cmd := c.command(args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		c.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// want runs a sub-command that must end with a code and say something.
func (c cli) want(code int, says string, args ...string) {
	c.t.Helper()
	got, out := c.run(args...)
	if got != code || !strings.Contains(out, says) {
		c.t.Errorf("cluster %s: exit code %d, want %d; said %q, want %q in it", strings.Join(args, " "), got, code, out,
			says)
	}
}

// upUntil starts `up`, waits for a sign and sends a signal; it returns the exit code.
func (c cli) upUntil(sign string, s syscall.Signal) int {
	c.t.Helper()
	cmd := c.command("up")
	out, err := cmd.StderrPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	var said bytes.Buffer
	for b := make([]byte, 4096); !strings.Contains(said.String(), sign); {
		n, err := out.Read(b)
		said.Write(b[:n])
		if err != nil {
			c.t.Fatalf("up ended before it said %q: %q", sign, said.String())
		}
	}
	if err := cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
	_ = cmd.Wait() // the code says it
	return cmd.ProcessState.ExitCode()
}

// wantNoTrace looks for folders and control groups.
func (c cli) wantNoTrace() {
	c.t.Helper()
	if _, err := os.Stat(c.dir); err == nil {
		c.t.Errorf("%s is left", c.dir)
	}
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, _ error) error {
		if d.IsDir() && strings.HasPrefix(d.Name(), "fairlead-"+c.name+"-") {
			c.t.Errorf("%s is left", path)
		}
		return nil
	})
	if err != nil {
		c.t.Error(err)
	}
}

func needsNode(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a node needs root: run `sudo go test -C test/cluster .`")
	}
	c, err := cache()
	if err != nil {
		t.Fatal(err)
	}
	if missing, err := c.Missing(build.All()...); err != nil || len(missing) > 0 {
		t.Skipf("%v are not built (%v): run `make cluster-build`", missing, err)
	}
}

// TestCluster_NodeLifecycle goes from a killed start over a crash to the end; each leaves nothing
// that the next command minds.
func TestCluster_NodeLifecycle(t *testing.T) {
	needsNode(t)
	c := newCLI(t, "test")
	c.cleanUp()
	if code := c.upUntil("API server ready", syscall.SIGINT); code != 130 {
		t.Errorf("exit code %d of an interrupted up, want 130", code)
	}
	c.wantNoTrace()

	c.upUntil("API server ready", syscall.SIGKILL)
	c.want(0, "the cluster is ready", "up")
	c.want(0, "already running", "up")
	if _, err := os.Stat(filepath.Join(c.dir, node.HostImages)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("archives of imported images are left: %v", err)
	}
	c.want(1, "runs with other options", "up", "--dns-cache")
	c.want(0, "Ready", "status")
	c.want(0, "Running", "exec", "kubectl", "get", "pods", "-A")
	c.want(7, "", "exec", "sh", "-c", "exit 7")
	c.want(127, "not found", "exec", "no-such-program")
	c.want(1, "needs a tag", "load", "x.test/untagged=/bin/true")
	c.want(0, "", "load", "x.test/loaded:1=/bin/true")
	c.want(0, "x.test/loaded:1", "exec", "ctr", "-n", "k8s.io", "images", "list", "-q")
	c.want(0, "", "exec", "sh", "-c", "kill -9 $(pidof kube-scheduler)")
	deadline := time.Now().Add(20 * time.Second)
	for code := 1; code != 0; code, _ = c.run("exec", "pidof", "kube-scheduler") {
		if time.Now().After(deadline) {
			t.Fatal("a killed program does not come back")
		}
	}

	_, out := c.run("status", "--output", "json")
	var st struct{ PID int }
	if err := json.Unmarshal([]byte(out), &st); err != nil || st.PID == 0 {
		t.Fatalf("status %q: %v", out, err)
	}
	if err := syscall.Kill(st.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for code := 0; code != 3; code, _ = c.run("status") { // its processes take a moment to end
		if time.Now().After(deadline.Add(20 * time.Second)) {
			t.Fatal("a killed node runs on")
		}
	}
	c.want(1, "is not running: start it with", "exec", "true")
	c.want(3, "not running", "status")
	c.want(0, "", "down")
	c.wantNoTrace()
	c.want(0, "", "down")
	c.wantNoTrace()
}

func TestCommand_WrongUsage(t *testing.T) {
	t.Parallel()
	c := newCLI(t, "test")
	for _, tc := range []struct {
		says string
		args []string
	}{
		{`cluster name "A/b": want`, []string{"status", "--name", "A/b"}},
		{`--output "yaml": want table or json`, []string{"status", "--output", "yaml"}},
		{"is not running", []string{"exec", "true"}},
		{"is not running", []string{"kubeconfig"}},
		{`--listen "0.0.0.0:0": want 127.0.0.1`, []string{"kubeconfig", "--listen", "0.0.0.0:0"}},
		{`--listen "localhost:1": want 127.0.0.1`, []string{"kubeconfig", "--listen", "localhost:1"}},
		{"want 0s or more", []string{"up", "--kube-proxy-min-sync", "-1s"}},
	} {
		code, out := c.run(tc.args...)
		if code != 1 || !strings.Contains(out, tc.says) || strings.Count(out, "\n") != 1 {
			t.Errorf("cluster %q: exit code %d, said %q; want 1 and one line with %q", tc.args, code, out, tc.says)
		}
	}
}

// TestBuild_TakesSavedParts carries parts that hold one file each from one cache to another.
func TestBuild_TakesSavedParts(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	run := func(cache string, args ...string) string {
		t.Helper()
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), asCluster+"=1", "FAIRLEAD_CACHE="+filepath.Join(folder, cache))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("cluster %q: %v: %s", args, err, out)
		}
		return string(out)
	}
	for _, part := range build.All() {
		dir := strings.TrimSpace(run("a", "build", "--only", part, "--print-dir"))
		if err := os.CopyFS(dir, fstest.MapFS{"program": {Data: []byte(part), Mode: 0o755}}); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(folder, "file")
	run("a", "save", file)
	if said := run("b", "build", "--from", file); strings.Count(said, ": taken from "+file+"\n") != len(build.All()) ||
		strings.Contains(said, "building") {
		t.Errorf("said %q, want that all parts were taken", said)
	}
	helm := filepath.Join(strings.TrimSpace(run("b", "build", "--only", build.Helm, "--print-dir")), "program")
	if text, err := os.ReadFile(helm); err != nil || string(text) != build.Helm {
		t.Errorf("%s: %q, %v", helm, text, err)
	}
}
