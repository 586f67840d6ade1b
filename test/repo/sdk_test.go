// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package repo

import (
	"os/exec"
	"regexp"
	"testing"
)

// TestSDK_NamesNoInternalTypes holds that what `go doc` shows of the public package can be read and
// used without the packages below internal.
func TestSDK_NamesNoInternalTypes(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "doc", "-all", "./sdk")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reading the documentation: %v", err)
	}
	if !regexp.MustCompile(`(?m)^func Listen\(`).Match(out) {
		t.Fatalf("this is not the documentation of the SDK:\n%s", out)
	}
	internal := regexp.MustCompile(`\b(account|agent|agentconfig|apiclient|tunnel|trafficpolicy|trust)\.[A-Z]\w*`)
	for _, name := range internal.FindAllString(string(out), -1) {
		t.Errorf("the package sdk exports %s, which other modules cannot import", name)
	}
}
