// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

// mostMemory bounds the memory of an exporter with 100 exports, in MiB: its own, which kubectl top
// shows and the kernel counts against the limit first, and all with the pages of the program's file,
// some 40 MiB that the pods of a node share. The chart requests 64 MiB.
var mostMemory = map[string]int{"RssAnon": 24, "VmRSS": 64}

// TestExporter_ProcessMemory measures the program as it runs in a pod, with 100 exports.
func TestExporter_ProcessMemory(t *testing.T) {
	w := newWorld(t)
	env, err := testenv.New(testenv.WithServiceRange("10.64.0.0/16"), testenv.WithMultiClusterKinds())
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, env.Stop()) })
	w.kube = testenv.NewKube(t, env.Config)
	w.kube.MustCreate(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}})
	exports := exportCount(t, 100)
	for i := range exports {
		w.clusterService(fmt.Sprintf("s-%04d", i), "")
		w.serviceExport(fmt.Sprintf("s-%04d", i))
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "fairlead-operator")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "../../../cmd/fairlead-operator")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=") // as make build does, whose cache it shares
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the operator: %v\n%s", err, out)
	}
	kubeconfig, key := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "key")
	must.Succeed(t, os.WriteFile(kubeconfig, env.Kubeconfig, 0o600))
	must.Succeed(t, os.WriteFile(key, []byte(w.key), 0o600))
	edge, log := w.service.Addrs.Service.String(), &bytes.Buffer{}
	run := exec.Command(program, "exporter", "--api-url=https://"+edge, "--edge-address="+edge, "--api-key-file="+key,
		"--ca-file="+filepath.Join(w.service.Options.DataDir, "ca.crt"), "--namespace="+w.namespace,
		"--release=fairlead", "--deployment=exporter", "--services", "--cluster-id=a", "--cluster-domain=cluster.local",
		"--metrics-addr=", "--health-addr=")
	run.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "POD_NAME=exporter-0", "GOGC=", "GOMEMLIMIT=")
	run.Stdout, run.Stderr = log, log
	must.Succeed(t, run.Start())
	t.Cleanup(func() {
		must.Succeed(t, run.Process.Signal(syscall.SIGTERM))
		if err := run.Wait(); err != nil || t.Failed() {
			t.Errorf("the exporter ended with %v; its log:\n%s", err, log)
		}
	})
	w.expectRows("exported", exports)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", run.Process.Pid))
	must.Succeed(t, err)
	for field, most := range mostMemory {
		kib, err := strconv.Atoi(string(regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(status)[1]))
		must.Succeed(t, err)
		t.Logf("%d exports, %s: %d MiB", exports, field, kib>>10)
		if exports <= 100 && kib>>10 > most {
			t.Errorf("%s of an exporter with %d exports is %d MiB, want at most %d", field, exports, kib>>10, most)
		}
	}
}
