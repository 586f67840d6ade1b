// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package workflows

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rhysd/actionlint"
)

const folder = "../../.github/workflows"

var (
	rule     = regexp.MustCompile(`(?m)^([a-z0-9%$ -]+):(?:[^=]|$)`)
	variable = regexp.MustCompile(`\$[({]([A-Z_]+)[)}]|(?m)^([A-Z_]+) *\??=`)
	// A word of a command: a target, or a variable of make with its value.
	word    = regexp.MustCompile(`^(?:([a-z0-9-]+)|([A-Z_]+)=[^;&|<>$` + "`" + `]*)$`)
	uses    = regexp.MustCompile(`(?m)^\s*(?:- )?uses: *(\S+)(.*)$`)
	pinned  = regexp.MustCompile(`^([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)(?:/[A-Za-z0-9_./-]+)?@[0-9a-f]{40}$`)
	version = regexp.MustCompile(`^ # v\d+\.\d+\.\d+$`)
)

// makefile is what the Makefile knows.
type makefile struct{ targets, variables map[string]bool }

func readMakefile(t *testing.T) makefile {
	t.Helper()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := makefile{targets: map[string]bool{}, variables: map[string]bool{}}
	for _, found := range rule.FindAllStringSubmatch(string(text), -1) {
		for target := range strings.FieldsSeq(found[1]) {
			m.targets[target] = true
		}
	}
	for _, found := range variable.FindAllStringSubmatch(string(text), -1) {
		m.variables[found[1]+found[2]] = true
	}
	return m
}

// command returns what is wrong with one command of a workflow, or "". values are those of the
// job's matrix.
func (m makefile) command(line string, values map[string][]string) string {
	if line == ".ci/run" {
		return ""
	}
	for key, all := range values {
		if expression := "${{ matrix." + key + " }}"; strings.Contains(line, expression) {
			for _, value := range all {
				if wrong := m.command(strings.ReplaceAll(line, expression, value), values); wrong != "" {
					return wrong
				}
			}
			return ""
		}
	}
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "make" {
		return fmt.Sprintf("%q: want .ci/run or `make TARGET`, which people can run, too", line)
	}
	for _, w := range words[1:] {
		switch found := word.FindStringSubmatch(w); {
		case found == nil:
			return fmt.Sprintf("%q: %s is neither a target nor NAME=value", line, w)
		case found[1] != "" && !m.targets[found[1]]:
			return fmt.Sprintf("%q: the Makefile has no target %s", line, found[1])
		case found[2] != "" && !m.variables[found[2]]:
			return fmt.Sprintf("%q: the Makefile has no variable %s", line, found[2])
		}
	}
	return ""
}

// problems returns what actionlint and the rules of this repository find in a workflow.
func (m makefile) problems(t *testing.T, name string, text []byte) []string {
	t.Helper()
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	faults, err := linter.Lint(name, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		found = append(found, f.Error())
	}
	w, _ := actionlint.Parse(text)
	if w == nil {
		return found
	}
	if w.Permissions == nil || w.Permissions.All != nil || len(w.Permissions.Scopes) > 0 {
		found = append(found, "want `permissions: {}`, and each job with the rights that it needs")
	}
	if w.Concurrency == nil {
		found = append(found, "no concurrency group")
	}
	for _, event := range w.On {
		if event.EventName() == "pull_request_target" {
			found = append(found, "pull_request_target gives strangers' commits this repository's rights")
		}
	}
	for _, job := range w.Jobs {
		found = append(found, m.jobProblems(job)...)
	}
	for _, u := range uses.FindAllStringSubmatch(string(text), -1) {
		if !pinned.MatchString(u[1]) || !version.MatchString(u[2]) {
			found = append(found, fmt.Sprintf("%s%s: want the commit's hash, and the version as a comment", u[1], u[2]))
		}
	}
	return found
}

func (m makefile) jobProblems(job *actionlint.Job) (found []string) {
	id := job.ID.Value
	if job.TimeoutMinutes == nil {
		found = append(found, id+": no timeout-minutes")
	}
	if job.Permissions == nil || job.Permissions.All != nil {
		found = append(found, id+": no permissions, or all of them")
	}
	values := map[string][]string{}
	if job.Strategy != nil && job.Strategy.Matrix != nil {
		for key, row := range job.Strategy.Matrix.Rows {
			for _, v := range row.Values {
				values[key] = append(values[key], strings.Trim(v.String(), `"`))
			}
		}
	}
	for _, step := range job.Steps {
		switch exec := step.Exec.(type) {
		case *actionlint.ExecRun:
			for line := range strings.Lines(exec.Run.Value) {
				if wrong := m.command(strings.TrimSpace(line), values); wrong != "" {
					found = append(found, id+": "+wrong)
				}
			}
		case *actionlint.ExecAction:
			keep := exec.Inputs["persist-credentials"]
			if strings.HasPrefix(exec.Uses.Value, "actions/checkout@") && (keep == nil || keep.Value.Value != "false") {
				found = append(found, id+": the checkout keeps its credentials: persist-credentials: false")
			}
		}
	}
	return found
}

func TestWorkflows_KeepRules(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(folder, "*.yml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("workflows %v, %v", files, err)
	}
	m, versions := readMakefile(t), map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range m.problems(t, file, text) {
			t.Errorf("%s: %s", filepath.Base(file), p)
		}
		for _, u := range uses.FindAllStringSubmatch(string(text), -1) {
			name, hash, _ := strings.Cut(u[1], "@")
			name = strings.Join(strings.SplitN(name, "/", 3)[:2], "/")
			if other, ok := versions[name]; ok && other != hash+u[2] {
				t.Errorf("%s: %s is pinned to %s%s here and to %s elsewhere", filepath.Base(file), name, hash,
					u[2], other)
			}
			versions[name] = hash + u[2]
		}
	}
}

// The commands of CI are those of the test workflow and no others.
func TestWorkflows_RunCI(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(folder, "test.yml"))
	if err != nil {
		t.Fatal(err)
	}
	w, faults := actionlint.Parse(text)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	var commands []string
	for _, job := range w.Jobs {
		for _, step := range job.Steps {
			if run, ok := step.Exec.(*actionlint.ExecRun); ok {
				commands = append(commands, run.Run.Value)
			}
		}
	}
	if !slices.Equal(commands, []string{".ci/run"}) {
		t.Errorf("test.yml runs %q, want .ci/run alone", commands)
	}
}

const good = `name: x
on: push
permissions: {}
concurrency: x
jobs:
  a:
    runs-on: ubuntu-24.04
    timeout-minutes: 1
    permissions: {contents: read}
    strategy: {matrix: {target: [build, test]}}
    steps:
      - uses: actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1
        with: {persist-credentials: false}
      - run: make ${{ matrix.target }} BENCH=quick
`

func TestProblems_FindsEach(t *testing.T) {
	t.Parallel()
	m := readMakefile(t)
	if p := m.problems(t, "good.yml", []byte(good)); len(p) > 0 {
		t.Errorf("a good workflow: %q", p)
	}
	for _, tt := range []struct{ old, bad, want string }{
		{"permissions: {}\n", "", "permissions: {}"},
		{"permissions: {}\n", "permissions: {contents: write}\n", "permissions: {}"},
		{"concurrency: x\n", "", "concurrency"},
		{"on: push", "on: pull_request_target", "pull_request_target"},
		{"on: push", "on: pushed", "unknown Webhook event"},
		{"    timeout-minutes: 1\n", "", "timeout-minutes"},
		{"    permissions: {contents: read}\n", "", "no permissions"},
		{"{contents: read}", "write-all", "all of them"},
		{"@3d3c42e5aac5ba805825da76410c181273ba90b1", "@v7", "hash"},
		{" # v7.0.1", "", "as a comment"},
		{"{persist-credentials: false}", "{fetch-depth: 0}", "persist-credentials"},
		{"[build, test]", "[build, testt]", "no target testt"},
		{"BENCH=quick", "BENTCH=quick", "no variable BENTCH"},
		{"BENCH=quick", "; curl x", "neither a target"},
		{"make ${{ matrix.target }} BENCH=quick", "go build ./...", ".ci/run or"},
		{"BENCH=quick", "BENCH=${{ github.head_ref }}", "untrusted"},
	} {
		bad := strings.Replace(good, tt.old, tt.bad, 1)
		if bad == good {
			t.Fatalf("the good workflow has no %q", tt.old)
		}
		if p := m.problems(t, "bad.yml", []byte(bad)); !strings.Contains(strings.Join(p, "\n"), tt.want) {
			t.Errorf("%q in place of %q: found %q, want %q", tt.bad, tt.old, p, tt.want)
		}
	}
}
