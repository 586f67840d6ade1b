// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// policyFiles are files of traffic policies: good has no mistake, bad two; none is not there.
type policyFiles struct{ dir, good, bad, large, none string }

func writePolicyFiles(t *testing.T) policyFiles {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	return policyFiles{dir: dir, none: filepath.Join(dir, "none"),
		good: file("good.yaml",
			"on_http_request:\n- actions: [{type: forward-backend, config: {backend_id: "+
				"bkdfo-0123456789abcdefghijklmnop}}]\non_tcp_connect:\n- actions: [{type: deny}]\n"),
		bad: file("bad.yaml",
			"on_http_request:\n- expressions: [\"req.x == 'a'\"]\n  actions: [{type: deny}, {type: nope}]\n"),
		large: file("large.yaml", "#"+strings.Repeat("x", 1<<20))}
}

// policyCase is a call of `fairlead policy check`, and what it prints.
type policyCase struct {
	stdin    string
	args     []string
	code     int
	out, err string
}

func runPolicyChecks(t *testing.T, cases map[string]policyCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := fairlead(t, nil, c.stdin, append([]string{"policy", "check"}, c.args...)...)
			if r.code != c.code || !strings.Contains(r.out, c.out) || !strings.Contains(r.err, c.err) || c.err == "" &&
				r.err != "" || strings.ContainsRune(r.err, '\x1b') {
				t.Errorf("got %+v, want %+v", r, c)
			}
		})
	}
}

func TestPolicyCheck_ListsMistakes(t *testing.T) {
	t.Parallel()
	f := writePolicyFiles(t)
	runPolicyChecks(t, map[string]policyCase{
		"good": {"", []string{f.good}, 0,
			f.good +
				": 2 rules in on_tcp_connect, on_http_request; actions deny, forward-backend; backends " +
				"bkdfo-0123456789abcdefghijklmnop\n", ""},
		"bad": {"", []string{f.bad, f.good}, exitUsage, f.good + ": 2 rules",
			f.bad + ":2:18: there is no variable req.x; req has method"},
		"every mistake":  {"", []string{f.bad}, exitUsage, "", "\n" + f.bad + ":3:34: there is no action \"nope\""},
		"standard input": {"{}", []string{"-"}, 0, "(standard input): no rules\n", ""},
		"one rule": {"on_tcp_connect: [{actions: [{type: deny}]}]",
			[]string{"-", "--scheme", "tcp", "--binding", "kubernetes"}, 0, "1 rule in on_tcp_connect", ""},
		"tcp": {"", []string{f.good, "--scheme", "tcp"}, exitUsage, "",
			f.good + ":1:1: a tcp endpoint is never parsed as HTTP"},
		"too large": {"", []string{f.large}, exitUsage, "",
			f.large + ":1:1: the document has 65537 bytes, at most 65536 are allowed"},
		"another format": {"{}", []string{"-", "-o", "yaml"}, exitUsage, "",
			`--output "yaml": must be text or json`},
		"no file":     {"", []string{f.none}, exitUsage, "", "no such file"},
		"a folder":    {"", []string{f.dir}, exitUsage, "", "reading the policy"},
		"no argument": {"", nil, exitUsage, "", "fairlead policy check needs files"},
		"wrong scheme": {"", []string{"-", "--scheme", "udp"}, exitUsage, "",
			`--scheme "udp": must be http, https or tcp`},
		"wrong binding": {"", []string{"-", "--binding", "x"}, exitUsage, "", `--binding "x": must be`},
		"an escape":     {"\"\\e[31m\": 1", []string{"-"}, exitUsage, "", `no key "\x1b[31m"`},
	})
}

func TestPolicyCheck_ListsMistakesAsJSON(t *testing.T) {
	t.Parallel()
	f := writePolicyFiles(t)
	runPolicyChecks(t, map[string]policyCase{
		"json": {"", []string{f.good, f.bad, "-o", "json"}, exitUsage, `[
  {
    "file": "` + f.bad + `",
    "line": 2,
    "column": 18,
    "field": "on_http_request[0].expressions[0]",
    "message": "there is no variable req.x; req has method`, ""},
		"json of the last mistake": {"", []string{f.bad, "-o", "json"}, exitUsage, `"line": 3,
    "column": 34,
    "field": "on_http_request[0].actions[1].type",`, ""},
		"json of a phase": {"", []string{f.good, "--scheme", "tcp", "-o", "json"}, exitUsage,
			`"field": "on_http_request",`, ""},
		"json of what is no YAML": {"{", []string{"-", "-o", "json"}, exitUsage, `"field": "",`, ""},
		"json without mistakes":   {"", []string{f.good, "-o", "json"}, 0, "[]\n", ""},
		"json beside no file": {"", []string{f.none, f.bad, "-o", "json"}, exitUsage, `"line": 3,`,
			"no such file"},
	})
}
