// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// accepted is the program's error when it has read all flags, variables and files and then finds no
// cluster.
const accepted = "finding the Kubernetes cluster"

// programs is the folder of those that the charts run.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the programs before any test and its deadline begin: with cold caches that takes
// minutes.
func run(m *testing.M) int {
	var err error
	if programs, err = os.MkdirTemp("", "fairlead-chart-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(programs) }()
	build := exec.Command("go", "build", "-trimpath", "-o", programs+"/", // as make build does, whose cache it shares
		"./cmd/fairlead", "./cmd/fairlead-operator", "./cmd/fairlead-server")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the programs: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// program returns the path of one of the three programs.
func program(name string) string { return filepath.Join(programs, name) }

// command prepares the program as the container would run it, with the pod's mounts below the
// folder.
func command(t *testing.T, c corev1.Container, mounts string, more ...string) *exec.Cmd {
	t.Helper()
	args := append(arguments(c), more...)
	for i := range args {
		args[i] = strings.Replace(args[i], "=/etc/fairlead/", "="+mounts+"/", 1)
	}
	cmd := exec.CommandContext(t.Context(), program("fairlead-operator"), args...)
	cmd.Env = []string{"HOME=" + mounts}
	for name, value := range environment(c) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// checker gives the program what the chart rendered, each command line once. It may be used from
// several goroutines.
type checker struct {
	mounts string
	seen   sync.Map
}

// check runs the program for every Deployment; it must find nothing to object to.
func (c *checker) check(t *testing.T, all rendered) {
	t.Helper()
	for _, o := range all {
		if o.GetKind() != "Deployment" {
			continue
		}
		container := get[appsv1.Deployment](t, all, "Deployment", o.GetName()).Spec.Template.Spec.Containers[0]
		key, _ := json.Marshal([]any{arguments(container), environment(container)})
		if _, seen := c.seen.LoadOrStore(string(key), true); seen {
			continue
		}
		if out, err := command(t, container, c.mounts).CombinedOutput(); err == nil ||
			!strings.Contains(string(out), accepted) {
			t.Errorf("%s %v: %s (%v)", o.GetName(), container.Args, out, err)
		}
	}
}

// The program itself reads every argument and variable that the chart writes, finds nothing to
// object to and goes on to look for a cluster, which is not there. TestValues_EveryOneHasAnEffect
// does the same for every single value.
func TestProgram_AcceptsChartArguments(t *testing.T) {
	t.Parallel()
	c := &checker{mounts: mountedFiles(t)}
	inputs, _ := filepath.Glob("testdata/*.in.yaml")
	for _, input := range inputs {
		text, err := template(t, nil, "--values", input)
		must.Succeed(t, err)
		c.check(t, parse(t, text))
	}
	container := manager(t, render(t, validValues())).Spec.Template.Spec.Containers[0]
	if out, _ := command(t, container, c.mounts, "--no-such-flag").CombinedOutput(); strings.Contains(string(out),
		accepted) {
		t.Error("an unknown flag passes, so this test proves nothing")
	}
}

// The arguments of the chart as it was first installed: users may keep that chart with today's
// image.
func TestProgram_AcceptsFirstChartArguments(t *testing.T) {
	t.Parallel()
	const first = "../e2e/testdata/fairlead-operator-95e5f3f.tgz"
	c := &checker{mounts: mountedFiles(t)}
	for name, v := range map[string]values{
		"least":    validValues(),
		"disabled": validValues().set("binding.enabled", false),
		"more": validValues().set("api.caBundle", "-----BEGIN CERTIFICATE-----\n").set("edge.address", "edge:1").
			set("clusterDomain", "corp.example").
			set("binding.endpointSelector", "ep.port == 80").set("description", "text").set("forwarder.drainTimeout",
			"2h").
			set("binding.removalDelay", "5m"),
	} {
		text, err := helm(t, os.DevNull, v, "template", release, first, "--namespace", namespace, "--kube-version",
			kubeVersion)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.check(t, parse(t, text))
	}
}

// mountedFiles writes what the pods find below /etc/fairlead.
func mountedFiles(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	dir := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for name, content := range map[string]string{"credentials/api-key": "flk_x", "credentials/authtoken": "flt_x",
		"credentials/exporter-api-key": "flk_y", "credentials/token": "e30.eyJleHAiOjF9.e30",
		"ca/ca.crt": string(authority), "ca/seal.crt": string(authority)} {
		file := filepath.Join(dir, name)
		must.Succeed(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Succeed(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return dir
}
