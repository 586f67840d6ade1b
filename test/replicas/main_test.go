// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
)

// postgres is shared by the tests that do not stop it.
var postgres postgrestest.Shared

// program is the fairlead-server that the tests run, built without the race detector.
var program string

// recorded is done once the cache of results knows what the programs are made from.
var recorded sync.Once

// built is where this version's programs are: fairlead-server, and all three with compatVariable.
var built programs

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the programs, as make build does, before any test and its deadline begin.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fairlead-replicas-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	flag.Parse()
	if given := flag.Lookup("test.parallel"); given.Value.String() == given.DefValue {
		_ = flag.Set("test.parallel", "3") // the tests wait most of the time
	}
	built = programs{name: "new", dir: dir}
	program = built.server()
	args := []string{"build", "-trimpath", "-o", dir + string(filepath.Separator), "./cmd/fairlead-server"}
	if os.Getenv(compatVariable) != "" {
		args = append(args, "./cmd/fairlead", "./cmd/fairlead-operator")
	}
	build := exec.Command("go", args...)
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the programs: %v\n%s", err, out)
		return 1
	}
	defer stopCompatCluster()
	return postgrestest.Main{M: m, Shared: &postgres}.Run()
}
