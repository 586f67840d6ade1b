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
	for page, c := range map[string]struct {
		command []string
		apart   []string
	}{
		"fairlead":              {nil, []string{"api", "doctor", "seal"}},
		"fairlead-doctor":       {[]string{"doctor"}, nil},
		"fairlead-seal":         {[]string{"seal"}, nil},
		"fairlead-api":          {[]string{"api"}, []string{"backends"}},
		"fairlead-api-backends": {[]string{"api", "backends"}, nil},
	} {
		root := newRoot(console{out: io.Discard, err: io.Discard, env: func(string) string { return "" }})
		command, _, err := root.Find(c.command)
		must.Succeed(t, err)
		reference.Block(t, "../../docs/reference/cli/"+page+".md", "commands", reference.Commands(command, c.apart...))
	}
}
