// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package must ends tests whose steps fail. Tests come in for what is not under test: what is, they
// compare themselves, with a message that names it.
package must

import "testing"

// Succeed ends the test on an error.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
