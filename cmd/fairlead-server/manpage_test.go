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
	manpagetest.Compare(t, newRoot(console{out: io.Discard, err: io.Discard, env: func(string) string { return "" }}))
}
