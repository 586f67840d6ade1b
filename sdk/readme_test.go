// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/sdk"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestREADME_ProgramIsEndpoint builds the program of README.md, runs it and calls it.
func TestREADME_ProgramIsEndpoint(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(readme), "```go\n")
	program, _, ok := strings.Cut(program, "```")
	if lines := strings.Count(program, "\n"); !ok || lines > 20 {
		t.Fatalf("the program of README.md has %d lines:\n%s", lines, program)
	}
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	for name, text := range map[string]string{source: program, filepath.Join(dir, "x"): "hello from README"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx := servicetest.Context(t)
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, source).CombinedOutput(); err != nil {
		t.Fatalf("building the program: %v\n%s", err, out)
	}
	s := servicetest.Start(t)
	cmd := exec.CommandContext(ctx, binary)
	cmd.Dir, cmd.Stderr = dir, s.Log
	cmd.Env = []string{"HOME=" + dir, "FAIRLEAD_SERVER_URL=https://" + s.Addrs.Service.String(),
		"FAIRLEAD_AUTHTOKEN=" + s.Authtoken, "FAIRLEAD_CA_SHA256=" + s.Addrs.CAFingerprint}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	for e, err := range client(t, s, s.APIKey).Endpoints.Watch(ctx, sdk.Filter{"url": "http://api.demo"}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type != sdk.EventAdded {
			continue
		}
		b := tunnel.Bound{EndpointID: e.Endpoint.ID, URL: e.Endpoint.URL}
		if status, body := s.StartForwarder().Get(b); status != http.StatusOK || body != "hello from README" {
			t.Errorf("the program answered %d %q", status, body)
		}
		return
	}
}
