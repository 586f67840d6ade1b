// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/reference"
)

func TestReference_DescribesCommands(t *testing.T) {
	t.Parallel()
	root := newRoot(console{out: io.Discard, err: io.Discard, env: func(string) string { return "" }})
	ca, _, err := root.Find([]string{"ca"})
	must.Succeed(t, err)
	reference.Block(t, "../../docs/reference/cli/fairlead-server.md", "commands", reference.Commands(root, "ca"))
	reference.Block(t, "../../docs/reference/cli/fairlead-server-ca.md", "commands", reference.Commands(ca))
}
