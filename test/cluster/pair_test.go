// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/test/cluster/internal/build"
)

// pairPods are a client and a server of the images of the conformance suite, with its commands.
const pairPods = `
apiVersion: v1
kind: Pod
metadata: {name: request}
spec:
  containers:
  - {name: request, image: "nicolaka/netshoot:v0.15", args: [/bin/sh, -ec, "while :; do echo '.'; sleep 5 ; done"]}
---
apiVersion: v1
kind: Pod
metadata: {name: hello, labels: {app: hello}}
spec:
  containers:
  - name: hello
    image: alpine/socat:1.7.4.4
    command: [/bin/sh]
    args:
    - -c
    - |
      export first_ip=$(echo "$MY_POD_IPS" | tr ',' ' ' | awk '{print $1}')
      echo "$first_ip" | grep -qE '^[0-9.]+$' || exit 1
      socat -v -v TCP-LISTEN:42,crlf,reuseaddr,fork SYSTEM:'echo "pod ip $first_ip"'
    env: [{name: MY_POD_IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}]
---
apiVersion: v1
kind: Service
metadata: {name: hello}
spec:
  selector: {app: hello}
  ports: [{name: tcp, port: 42}]
`

const pairImport = `
apiVersion: multicluster.x-k8s.io/v1beta1
kind: ServiceImport
metadata: {name: hello}
spec:
  type: ClusterSetIP
  ips: [10.96.77.7]
  ports: [{name: tcp, port: 42, protocol: TCP}]
`

// host runs kubectl on this machine, with the merged kubeconfigs of several clusters.
type host struct {
	t           *testing.T
	kubectl     string
	cacheDir    string // kubectl's
	kubeconfigs []string
}

func newHost(t *testing.T) *host {
	t.Helper()
	c, err := cache()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := c.PartDir(build.Tools)
	if err != nil {
		t.Fatal(err)
	}
	return &host{t: t, kubectl: filepath.Join(dir, "kubectl"), cacheDir: t.TempDir()}
}

// add starts `cluster kubeconfig`, which ends with the test at the latest.
func (h *host) add(c cli) *exec.Cmd {
	h.t.Helper()
	file, err := os.Create(filepath.Join(h.t.TempDir(), c.name))
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := c.command("kubeconfig", "--listen", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = file, &bytes.Buffer{}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	h.kubeconfigs = append(h.kubeconfigs, file.Name())
	h.eventually("a kubeconfig", func() (string, bool) {
		b, err := os.ReadFile(file.Name())
		return string(b), err == nil && strings.HasSuffix(string(b), "\n")
	})
	return cmd
}

func (h *host) run(stdin string, args ...string) (string, error) {
	cmd := exec.Command(h.kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+strings.Join(h.kubeconfigs, ":"),
		"KUBECACHEDIR="+h.cacheDir)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *host) must(stdin string, args ...string) string {
	h.t.Helper()
	out, err := h.run(stdin, args...)
	if err != nil {
		h.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return out
}

func (h *host) eventually(what string, try func() (said string, ok bool)) {
	h.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		said, ok := try()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("no %s; the last answer was %q", what, said)
		}
	}
}

// wantInPod runs a shell command in the pod request until it prints a text, whatever its exit code.
func (h *host) wantInPod(context, want, command string) {
	h.t.Helper()
	h.eventually(want+" in "+context, func() (string, bool) {
		out, _ := h.run("", "--context", context, "exec", "request", "--", "sh", "-c", command)
		return out, strings.Contains(out, want)
	})
}

// wantEnded waits until a command has failed and said why.
func wantEnded(t *testing.T, cmd *exec.Cmd, says string) {
	t.Helper()
	timer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	said := cmd.Stderr.(*bytes.Buffer).String()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(said, says) {
		t.Errorf("%q: %v, said %q; want exit code 1 and %q", cmd.Args[1:], err, said, says)
	}
}

// TestCluster_Pair runs two clusters of equal addresses side by side, reaches both from this
// machine with one kubeconfig, and asks each for clusterset.local, which only one has a name in.
func TestCluster_Pair(t *testing.T) {
	needsNode(t)
	for _, program := range []string{"socat", "nc.openbsd", "nslookup"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%v: run `hack/deps.sh`", err)
		}
	}
	a, b := newCLI(t, "test-a"), newCLI(t, "test-b")
	var ups sync.WaitGroup
	for _, c := range []cli{a, b} {
		c.cleanUp()
		ups.Go(func() { c.want(0, "the cluster is ready", "up", "--multicluster") })
	}
	ups.Wait()
	if t.Failed() {
		return
	}
	h := newHost(t)
	forA, forB := h.add(a), h.add(b)

	uid := []string{"get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"}
	if inA, inB := h.must("", append(uid, "--context", "test-a")...),
		h.must("", append(uid, "--context", "test-b")...); inA == inB {
		t.Errorf("both contexts are of the cluster %s", inA)
	}
	for _, context := range []string{"test-a", "test-b"} {
		h.eventually("ServiceAccount default", func() (string, bool) {
			out, err := h.run("", "--context", context, "get", "serviceaccount", "default")
			return out, err == nil
		})
		h.must(pairPods, "--context", context, "apply", "-f", "-")
	}
	h.must(pairImport, "--context", "test-a", "apply", "-f", "-")
	for _, context := range []string{"test-a", "test-b"} {
		h.must("", "--context", context, "wait", "--for=condition=Ready", "pod/request", "pod/hello", "--timeout=60s")
		h.wantInPod(context, "pod ip 10.244.0.", "echo hi | nc -v -w 2 -4 hello.default.svc.cluster.local 42 2>&1")
	}
	const name = "hello.default.svc.clusterset.local."
	h.wantInPod("test-a", "Address: 10.96.77.7", "nslookup -type=A "+name)
	h.wantInPod("test-a", " 42 hello.default.svc.clusterset.local", "nslookup -type=SRV "+name)
	h.wantInPod("test-b", "NXDOMAIN", "nslookup -type=A "+name)

	if err := forA.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := forA.Wait(); err != nil {
		t.Errorf("`cluster kubeconfig` that was interrupted: %v", err)
	}
	a.want(0, "", "down")
	b.want(0, "", "down")
	wantEnded(t, forB, "the cluster test-b has ended")
	a.wantNoTrace()
	b.wantNoTrace()
}
