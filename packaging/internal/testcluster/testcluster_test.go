// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/packaging/internal/release"
	"github.com/fairlead-dev/fairlead/packaging/internal/releasetest"
)

// program stands in for the cluster program: it prints what it was called with, and whether another
// Kubernetes was chosen.
const program = `package main

import (
	"os"
	"strings"

	_ "google.golang.org/protobuf/encoding/protowire"
)

func main() {
	said := strings.Join(os.Args[1:2], " ") + os.Getenv("FAIRLEAD_KUBERNETES")
	if err := os.WriteFile(os.Args[2], []byte(said), 0o600); err != nil {
		panic(err)
	}
}
`

func TestWrite_SavesTheClusterWhereItIsAskedFor(t *testing.T) {
	t.Setenv("FAIRLEAD_KUBERNETES", "1.34")
	checkout := releasetest.Checkout(t)
	module := filepath.Join(checkout, "test/cluster")
	releasetest.WriteFile(t, filepath.Join(module, "main.go"), program)
	releasetest.WriteFile(t, filepath.Join(module, "go.mod"),
		"module c\n\ngo 1.26.0\n\nrequire "+releasetest.Module+"\n")
	if err := os.Link(filepath.Join(checkout, "go.sum"), filepath.Join(module, "go.sum")); err != nil {
		t.Fatal(err)
	}
	releasetest.Commit(t, checkout, "cluster")
	for _, asked := range []bool{false, true} {
		o := releasetest.Options(t, checkout, "darwin/arm64")
		o.Cluster = asked
		r, err := release.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Begin(); err != nil {
			t.Fatal(err)
		}
		if err := Write(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		archive := r.Path("fairlead_0.2.0_cluster_linux_" + runtime.GOARCH + ".tar.gz")
		if text, err := os.ReadFile(archive); asked && (err != nil || string(text) != "save") || !asked && err == nil {
			t.Errorf("asked for: %t; archive %q, %v", asked, text, err)
		}
		texts, err := os.ReadFile(archive + ".licenses.txt")
		if asked && (err != nil || !strings.Contains(string(texts), releasetest.Module+" LICENSE\n") ||
			!strings.Contains(string(texts), "std go1.")) {
			t.Errorf("licences %q, %v", texts, err)
		}
	}
}
