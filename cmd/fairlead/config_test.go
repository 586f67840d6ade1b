// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestAddAuthtoken_StoresWithoutShowing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arg, stdin string
	}{
		"argument":       {goodToken, ""},
		"standard input": {"-", "  " + goodToken + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"HOME": t.TempDir()}
			path := filepath.Join(env["HOME"], ".config", "fairlead", "config.yaml")
			r := fairlead(t, env, c.stdin, "config", "add-authtoken", c.arg, "--server", "fairlead.example.net:8443",
				"--ca-sha256", strings.Repeat("a", 64))
			if r.code != 0 || r.out != "authtoken stored in "+path+"\n" || r.err != "" {
				t.Fatalf("got %+v", r)
			}
			data, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(data), goodToken) ||
				!strings.Contains(string(data), "server_url: https://fairlead.example.net:8443") {
				t.Fatalf("the file holds %q, %v", data, err)
			}
			r = fairlead(t, env, "", "config", "check")
			if r.code != 0 || !strings.Contains(r.out, "authtoken    present (authtoken in "+path+")") ||
				strings.Contains(r.out+r.err, goodToken) {
				t.Errorf("check: %+v", r)
			}
		})
	}
}

func TestAddAuthtoken_InvalidTokenChangesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ arg, stdin, want string }{
		"API key":        {"flk_SECRET", "", "is an API key"},
		"API key, stdin": {"-", "flk_SECRET\n", "is an API key"},
		"empty stdin":    {"-", "", "is empty"},
		"two lines":      {"-", goodToken + "\n" + goodToken, "a character that no authtoken has"},
		"garbage":        {"SECRET", "", "those begin with flt_"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"HOME": t.TempDir()}
			r := fairlead(t, env, c.stdin, "config", "add-authtoken", c.arg)
			if r.code != exitCredentials || !strings.Contains(r.err, c.want) || strings.Contains(r.err, "SECRET") {
				t.Errorf("got %+v, want code 3 and %q", r, c.want)
			}
			if left, _ := os.ReadDir(env["HOME"]); len(left) != 0 {
				t.Errorf("something was written: %v", left)
			}
		})
	}
}

func TestAddAuthtoken_ReadsTerminalWithoutEcho(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		typed string
		err   error
		code  int
	}{
		"token":       {goodToken, nil, 0},
		"API key":     {"flk_x", nil, exitCredentials},
		"interrupted": {"", errors.New("interrupted"), exitOther},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, errOut bytes.Buffer
			env := map[string]string{"HOME": t.TempDir()}
			code := run(t.Context(), []string{"config", "add-authtoken", "-"}, console{
				in: strings.NewReader("not this"), out: &out, err: &errOut, env: func(k string) string {
					return env[k]
				},
				secret: func(string) (string, bool, error) { return c.typed, true, c.err },
			})
			if code != c.code {
				t.Errorf("code %d, %q, %q", code, out.String(), errOut.String())
			}
		})
	}
}

func TestAddAuthtoken_CAFileReplacesFingerprint(t *testing.T) {
	t.Parallel()
	env := map[string]string{"HOME": t.TempDir()}
	path := filepath.Join(env["HOME"], ".config", "fairlead", "config.yaml")
	must.Succeed(t, agentconfig.Save(path, map[string]string{agentconfig.KeyCASHA256: strings.Repeat("b", 64)}))
	ca := writeCA(t)
	relative, err := filepath.Rel(mustGetwd(t), ca)
	must.Succeed(t, err)
	if r := fairlead(t, env, "", "config", "add-authtoken", goodToken, "--ca-file", relative); r.code != 0 {
		t.Fatalf("got %+v", r)
	}
	s, err := agentconfig.Load(agentconfig.Flags{Config: path}, func(string) string { return "" }, nil)
	if err != nil || s.CAFile.Text != ca || s.CASHA256.Text != "" {
		t.Errorf("stored %+v %+v, %v; want %s", s.CAFile, s.CASHA256, err, ca)
	}
}

func mustGetwd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	must.Succeed(t, err)
	return dir
}

func TestConfigCheck_NamesMissingSettings(t *testing.T) {
	t.Parallel()
	r := fairlead(t, map[string]string{agentconfig.EnvServerURL: "https://s"}, "", "config", "check")
	if r.code != exitCredentials || !strings.Contains(r.out, "https://s (FAIRLEAD_SERVER_URL)") ||
		!strings.Contains(r.out, "the system's") {
		t.Errorf("got %+v", r)
	}
	r = fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken}, "", "config", "check")
	if r.code != exitUsage || !strings.Contains(r.err, "no server is configured") {
		t.Errorf("got %+v", r)
	}
}

func TestConfigCheck_WarnsOfExposedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yaml")
	text := "server_url: https://s\nauthtoken: " + goodToken + "\napi_key: flk_a\n"
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
	r := fairlead(t, nil, "", "config", "check", "--config", path)
	if r.code != 0 || !strings.Contains(r.err, "warning: others can read the authtoken and the API key in ") ||
		strings.Contains(r.err, goodToken) {
		t.Errorf("got %+v", r)
	}
}
