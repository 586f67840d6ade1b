// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestRunBuild_NamesVersionAndKey(t *testing.T) {
	t.Parallel()
	err := runBuild(t.Context(), []string{"--version", "0.2", "--dist", t.TempDir()})
	if err == nil || !strings.HasPrefix(err.Error(), `version "0.2": want a semantic version`) ||
		!strings.Contains(err.Error(), "\nno release key: give KEY=file") {
		t.Errorf("got %v, want what is wrong with the version, then with the key", err)
	}
}
