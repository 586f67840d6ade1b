// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/trafficpolicy"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// wrongPolicy has two mistakes: the value of the first contains the separator of mistakes, the
// second has no value.
const wrongPolicy = `on_http_request:
  - name: first
    expressions: ["nope == '; traffic_policy \"'"]
    actions: [{type: nonsense}]
  - actions: []
`

// refusedPolicy returns the mistakes of wrongPolicy, and the refusal of a server that lists them.
func refusedPolicy(t *testing.T) ([]trafficpolicy.Problem, *tunnel.Error) {
	t.Helper()
	options := trafficpolicy.Options{Scheme: "http", Binding: "kubernetes"}
	_, mistakes := trafficpolicy.Check(wrongPolicy, options)
	_, err := trafficpolicy.Compile(wrongPolicy, options)
	if len(mistakes) < 3 {
		t.Fatalf("mistakes %v", mistakes)
	}
	listed := &tunnel.Error{Code: tunnel.CodeInvalid, Msg: err.Error()}
	for _, f := range account.FieldsOf(err) {
		listed.Errors = append(listed.Errors, tunnel.FieldError(f))
	}
	return mistakes, listed
}

func TestRefusal_ListsPolicyMistakes(t *testing.T) {
	t.Parallel()
	mistakes, listed := refusedPolicy(t)
	svc := newService(t, nil, listed)
	path := filepath.Join(t.TempDir(), "web.yml")
	storetest.Must(t, os.WriteFile(path, []byte(wrongPolicy), 0o600))
	inFile, inline := "fairlead: the server refused the traffic policy of http://web.demo:\n",
		"fairlead: the server refused the traffic policy of http://web.demo:\n"
	for _, m := range mistakes {
		inFile += fmt.Sprintf("%s:%d:%d: %s\n", path, m.Line, m.Column, m.Msg)
		inline += fmt.Sprintf("%s\n", m)
	}
	config := func(policy string) []string {
		text := "endpoints:\n- name: web\n  url: http://web.demo\n  upstream: 8080\n  " + policy + "\n"
		return []string{"start", "web", "--config", configFile(t, svc, text)}
	}
	flags := []string{"http", "8080", "--url", "http://web.demo", "--server", svc.url, "--ca-file", svc.caFile,
		"--traffic-policy-file", path}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"flag":        {flags, inFile},
		"config file": {config("traffic_policy_file: " + path), inFile},
		"inline":      {config("traffic_policy: |\n    " + strings.ReplaceAll(wrongPolicy, "\n", "\n    ")), inline},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken}, "", c.args...)
			if r.code != exitUsage || r.err != c.want {
				t.Errorf("exit code %d, prints\n%swant\n%s", r.code, r.err, c.want)
			}
		})
	}
	t.Run("for programs", func(t *testing.T) {
		t.Parallel()
		r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken}, "",
			append(flags, "--log-format", "json")...)
		if r.code != exitUsage || strings.Count(r.err, "\n") != 1 ||
			!strings.Contains(r.err, `"cause":"the server refused http://web.demo: traffic_policy`) {
			t.Errorf("%+v", r)
		}
	})
	t.Run("config check", func(t *testing.T) {
		t.Parallel()
		args := append([]string{"config", "check"}, config("traffic_policy_file: " + path)[2:]...)
		r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken}, "", args...)
		first := fmt.Sprintf("fairlead: %s:%d:%d: %s\n", path, mistakes[0].Line, mistakes[0].Column, mistakes[0].Msg)
		if r.code != exitUsage || !strings.HasPrefix(r.err, first) || strings.Count(r.err, "\n") != len(mistakes) {
			t.Errorf("%+v", r)
		}
	})
}

// TestRefusal_ListsSeveralMistakes: one broken rule is a sentence, several are a line each. An
// older server sends no list: its sentence is printed as it is.
func TestRefusal_ListsSeveralMistakes(t *testing.T) {
	t.Parallel()
	name := tunnel.FieldError{Field: "name", Value: "x\x1b", Rule: "is taken"}
	policy := tunnel.FieldError{Field: "traffic_policy", Value: account.NotShown, Rule: "line 1, column 2: wrong",
		Line:   1,
		Column: 2}
	const intro = "fairlead: the server refused http://web.demo"
	for _, c := range []struct {
		msg    string
		errors []tunnel.FieldError
		want   string
	}{
		{"traffic_policy: too long", nil, intro + ": traffic_policy: too long\n"},
		{`name "x": is taken; traffic_policy: line 1, column 2: wrong`, nil,
			intro + ": name \"x\": is taken; traffic_policy: line 1, column 2: wrong\n"},
		{"is taken", []tunnel.FieldError{name}, intro + ": is taken\n"},
		{"two", []tunnel.FieldError{name, policy}, intro + ":\nname \"x\\x1b\": is taken\nline 1, column 2: wrong\n"},
	} {
		svc := newService(t, nil, &tunnel.Error{Code: tunnel.CodeInvalid, Msg: c.msg, Errors: c.errors})
		r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken}, "", "http", "8080", "--url",
			"http://web.demo", "--server", svc.url, "--ca-file", svc.caFile)
		if r.code != exitUsage || r.err != c.want {
			t.Errorf("%+v, want\n%s", r, c.want)
		}
	}
}
