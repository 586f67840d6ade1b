// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestSDK_PodCallsProgramOfREADME runs the Go program of README.md, which serves its folder.
func TestSDK_PodCallsProgramOfREADME(t *testing.T) {
	t.Parallel()
	r, ns := InstallShared(t, "sdk")
	c, s := r.c, r.Service
	pod := c.CurlPod(t, ns)
	readme, err := os.ReadFile("../../README.md")
	must.Succeed(t, err)
	_, program, _ := strings.Cut(string(readme), "```go\n")
	program, _, ok := strings.Cut(program, "```")
	if !ok || strings.Count(program, `"http://api.demo"`) != 1 {
		t.Fatalf("the first Go program of README.md listens on no http://api.demo:\n%s", program)
	}
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	for name, text := range map[string]string{source: strings.Replace(program, "api.demo", "api."+ns, 1),
		filepath.Join(dir, "x"): "hello from README"} {
		must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as the programs are, whose packages are compiled
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	c.StartEnv(t, "program", []string{"FAIRLEAD_SERVER_URL=" + s.URL, "FAIRLEAD_CA_FILE=" + s.CAFile,
		"FAIRLEAD_AUTHTOKEN=" + s.Authtoken}, "sh", "-c", `cd "$1" && HOME=$1 exec "$2"`, "sh", dir, binary)
	r.BoundEndpoint(t, "api."+ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
	if body := c.CurlUntil(t, 15*time.Second, pod, "http://api."+ns+"/x", 200); body != "hello from README" {
		t.Errorf("body %q", body)
	}
}
