// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
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

// namesFairlead reports whether a text tells people to run fairlead, or has an error of that name.
func namesFairlead(text string) bool {
	text = regexp.MustCompile(`kubectl\s+fairlead`).ReplaceAllString(text, "")
	return regexp.MustCompile(`(?m)(^|[^-/.\w])fairlead: `).MatchString(text) || pluginText(text) != text
}

// TestPlugin_ErrorsNameKubectl checks errors, warnings and remedies of commands that fail.
func TestPlugin_ErrorsNameKubectl(t *testing.T) {
	t.Parallel()
	exposed := filepath.Join(t.TempDir(), "config.yaml")
	must.Succeed(t, os.WriteFile(exposed, []byte("authtoken: "+goodToken+"\n"), 0o644))
	for line, want := range map[string]string{
		"htp":                                  "kubectl fairlead: unknown command \"htp\"; did you mean `kubectl",
		"http":                                 "HOST:PORT or URL, and got 0; e.g. kubectl fairlead http",
		"http 1 --url tcp://a.b:1":             "use `kubectl fairlead tcp`",
		"http 1 --ulr x":                       "unknown flag: --ulr; did you mean --url?",
		"tcp 1 --url tcp://a.b:1":              "run `kubectl fairlead config add-authtoken -`",
		"http 1 --url a --log-format json":     `"cause":"--url`,
		"start --all":                          "`kubectl fairlead start --help`",
		"api endpoints list":                   "run `kubectl fairlead login`",
		"login flk_x":                          "kubectl fairlead login takes no key",
		"policy check":                         "kubectl fairlead policy check needs files",
		"doctor --context x":                   "kubectl fairlead doctor without a URL",
		"doctor --config " + exposed + "-none": "kubectl fairlead config check",
		"doctor --server https://s":            "kubectl fairlead config add-authtoken -",
		"doctor --server https://s -o json":    "kubectl fairlead config add-authtoken -",
		"status":                               "kubectl fairlead login --server",
		"seal status":                          "run kubectl fairlead seal init",
		"config check --config " + exposed:     "kubectl fairlead: warning: others can read",
	} {
		var out bytes.Buffer
		env := map[string]string{"HOME": t.TempDir()}
		code := run(t.Context(), strings.Fields(line), console{plugin: true, in: strings.NewReader(""), out: &out,
			err: &out, env: func(k string) string { return env[k] }})
		if code == 0 || !strings.Contains(out.String(), want) || namesFairlead(out.String()) {
			t.Errorf("`%s` exits with %d and prints, without %q:\n%s", line, code, want, &out)
		}
	}
}

// TestPlugin_KnowsOwnCommands checks that each command is renamed, and that namespaces of the
// program's name are not.
func TestPlugin_KnowsOwnCommands(t *testing.T) {
	t.Parallel()
	for _, cmd := range newRoot(console{env: func(string) string { return "" }}).Commands() {
		if got := pluginText("run `fairlead " + cmd.Name() + "`"); got != "run `kubectl fairlead "+cmd.Name()+"`" {
			t.Errorf("it says %s", got)
		}
	}
	const of = "helm install fairlead charts/fairlead-operator --namespace fairlead --create-namespace; " +
		"kubectl --namespace fairlead get pods; kubectl -n fairlead logs x"
	if got := pluginText(of); got != of {
		t.Errorf("it says %s", got)
	}
}

// TestPlugin_HelpNamesKubectl checks the help of every command: no line tells people to run
// fairlead, which krew does not install.
func TestPlugin_HelpNamesKubectl(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	root := newRoot(console{plugin: true, out: &out, err: &out, env: func(string) string { return "" }})
	root.SetOut(&out)
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		out.Reset()
		must.Succeed(t, cmd.Help())
		if !strings.Contains(out.String(), "kubectl "+strings.Join(strings.Fields(cmd.CommandPath())[1:], " ")) ||
			namesFairlead(out.String()) {
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
