// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inputs names to `go test` the files that a test's child processes read: helm, a program
// that the test builds, another module's program. Go's test cache knows only what a test opens itself,
// and would serve a result again that does not hold any more. Tests come in with paths below this module.
package inputs

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Record makes the result of the package's tests depend on every file below the paths. It reads
// folders alone, whose list has each file's size and time.
func Record(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		must.Succeed(t, filepath.WalkDir(path, func(_ string, _ fs.DirEntry, err error) error { return err }))
	}
}
