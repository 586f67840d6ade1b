// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestIsPlugin_ReadsName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"/home/a/.krew/bin/kubectl-fairlead": true, "kubectl-fairlead.exe": true,
		"/usr/bin/fairlead": false, "fairlead.exe": false, "kubectl-fairlead-old": false} {
		if isPlugin(name) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}

// TestPlugin_HelpNamesKubectl checks the help of every command: no line tells people to run
// fairlead, which krew does not install.
func TestPlugin_HelpNamesKubectl(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	root := newRoot(console{plugin: true, out: &out, err: &out, env: func(string) string { return "" }})
	root.SetOut(&out)
	direct := regexp.MustCompile("(?m)(^ +|`|<\\()fairlead ")
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		out.Reset()
		must.Succeed(t, cmd.Help())
		if !strings.Contains(out.String(), "kubectl "+strings.Join(strings.Fields(cmd.CommandPath())[1:], " ")) ||
			direct.MatchString(out.String()) {
			t.Errorf("help of `%s`:\n%s", cmd.CommandPath(), &out)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(root)
	if !strings.HasPrefix(root.CommandPath(), "kubectl fairlead") {
		t.Errorf("the program calls itself %s", root.CommandPath())
	}
}
