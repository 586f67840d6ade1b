// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/reference"
)

func TestReference_DescribesCommands(t *testing.T) {
	t.Parallel()
	root := newRoot(func(string) string { return "" }, io.Discard, io.Discard)
	reference.Block(t, "../../docs/reference/cli/fairlead-operator.md", "commands", reference.Commands(root))
}
