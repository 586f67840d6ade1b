// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/manpagetest"
)

func TestManpages_CoverCommands(t *testing.T) {
	t.Parallel()
	manpagetest.Compare(t, newRoot(func(string) string { return "" }, io.Discard, io.Discard))
}
