// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/storetest"
)

// newPerson returns an API whose key is in no setting yet, and the path of the config file.
func newPerson(t *testing.T) (a *accountAPI, key, path string) {
	t.Helper()
	a = newAccountAPI(t)
	key = a.env[envAPIKey]
	delete(a.env, envAPIKey)
	return a, key, filepath.Join(a.env["HOME"], ".config", "fairlead", "config.yaml")
}

// TestLogin_StoresKeyForAPI logs in on a machine without settings, calls the API, and logs out.
func TestLogin_StoresKeyForAPI(t *testing.T) {
	t.Parallel()
	a, key, path := newPerson(t)
	a.api(exitUsage, "endpoints", "list")
	server, ca := a.env["FAIRLEAD_SERVER_URL"], a.env["FAIRLEAD_CA_FILE"]
	a.env = map[string]string{"HOME": a.env["HOME"]}
	r := fairlead(t, a.env, key+"\n", "login", "-", "--server", server, "--ca-file", ca)
	if r.code != 0 || r.out != "API key of account "+a.AccountID+" stored in "+path+"\n" || r.err != "" {
		t.Fatalf("login: %+v", r)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file is %v, %v; want 0600", info, err)
	}
	a.Bind(a.Session(), "http://a.demo")
	if r := a.api(0, "endpoints", "list"); !strings.Contains(r.out, "http://a.demo") || r.err != "" {
		t.Errorf("the API with the stored key: %+v", r)
	}
	if r := fairlead(t, a.env, "", "doctor", "http://a.demo", "--kubeconfig", "/none"); !strings.Contains(r.out,
		"1 endpoint has the URL in the account") {
		t.Errorf("the doctor with the stored key: %+v", r)
	}
	r = fairlead(t, a.env, "", "config", "check")
	if r.code != 0 || !strings.Contains(r.out, "API key      present (api_key in "+path+")") ||
		strings.Contains(r.out+r.err, key) {
		t.Errorf("config check: %+v", r)
	}
	must.Succeed(t, os.Chmod(path, 0o644))
	if r := a.api(0, "endpoints", "list"); !strings.Contains(r.err, "warning: others can read the API key in "+path) {
		t.Errorf("with a file that others read: %+v", r)
	}
	a.env["FAIRLEAD_CA_FILE"], a.env["FAIRLEAD_CA_SHA256"] = ca, "a mistake that is not about the key"
	if r := fairlead(t, a.env, "", "logout"); r.code != 0 || r.out != "API key removed from "+path+"\n" {
		t.Fatalf("logout: %+v", r)
	}
	if text, _ := os.ReadFile(path); strings.Contains(string(text), "api_key") ||
		!strings.Contains(string(text), server) {
		t.Errorf("logout left %s", text)
	}
	if r := fairlead(t, a.env, "", "logout"); r.code != exitOther ||
		!strings.Contains(r.err, "no API key is stored in "+path) {
		t.Errorf("the second logout: %+v", r)
	}
	must.Succeed(t, os.WriteFile(path, []byte("api_key: a\ncolour: red\nshape: round\n"), 0o600))
	if r := fairlead(t, a.env, "", "logout"); strings.Count(r.err, "\nfairlead: config file") != 1 {
		t.Errorf("logout with two mistakes in the file: %+v", r)
	}
}

func TestLogin_RefusedKeyChangesNothing(t *testing.T) {
	t.Parallel()
	a, key, path := newPerson(t)
	for name, c := range map[string]struct {
		stdin string
		args  []string
		code  int
		want  string
	}{
		"an argument":  {"", []string{key}, exitUsage, "fairlead login takes no key as an argument"},
		"no terminal":  {key, nil, exitUsage, "there is no terminal to ask for the API key: give -"},
		"an authtoken": {goodToken, []string{"-"}, exitCredentials, "is an authtoken (flt_…), which is for agents"},
		"nothing":      {"", []string{"-"}, exitCredentials, "is empty; run `fairlead login`"},
		"two lines":    {key + "\nx", []string{"-"}, exitCredentials, "a character that no API key has"},
		"an unknown key": {"flk_" + strings.Repeat("A", 43), []string{"-"}, exitCredentials,
			"the API key is not known"},
		"no authority": {key, []string{"-", "--ca-sha256", strings.Repeat("0", 64)}, exitIdentity,
			"compare --ca-sha256"},
		"no such server":  {key, []string{"-", "--server", "https://127.0.0.1:1"}, exitOther, "does not answer"},
		"a server's path": {key, []string{"-", "--server", "https://s/x"}, exitUsage, "--server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := fairlead(t, a.env, c.stdin, append([]string{"login"}, c.args...)...)
			if r.code != c.code || !strings.Contains(r.err, c.want) || strings.Contains(r.out+r.err, key) {
				t.Errorf("got %+v, want code %d and %q", r, c.code, c.want)
			}
			if _, err := os.Stat(path); err == nil {
				t.Error("the config file was written")
			}
		})
	}
}

// TestLogin_ReplacesBrokenKey repairs a file whose credentials are malformed, with a key that may
// read nothing.
func TestLogin_ReplacesBrokenKey(t *testing.T) {
	t.Parallel()
	a, key, path := newPerson(t)
	must.Succeed(t, agentconfig.Save(path, map[string]string{agentconfig.KeyAPIKey: goodToken,
		agentconfig.KeyAuthtoken: key}))
	if r := a.api(exitCredentials, "endpoints", "list"); !strings.Contains(r.err,
		"api_key in "+path+" is an authtoken") {
		t.Errorf("the API: %+v", r)
	}
	if r := fairlead(t, a.env, "", "config", "check"); !strings.Contains(r.err,
		"api_key in "+path+" is an authtoken") || !strings.Contains(r.err, "authtoken in "+path+" is an API key") {
		t.Errorf("config check: %+v", r)
	}
	_, narrow, err := a.Store.IssueAPIKey(t.Context(), a.AccountID, "", []account.Scope{account.ScopeIdentities}, nil)
	storetest.Must(t, err)
	var out, errOut bytes.Buffer
	a.env[envAPIKey] = "flk_another"
	code := run(t.Context(), []string{"login"}, console{in: strings.NewReader("not this"), out: &out, err: &errOut,
		env:    func(k string) string { return a.env[k] },
		secret: func(string) (string, bool, error) { return narrow, true, nil }})
	if code != 0 || out.String() != "API key stored in "+path+"\n" ||
		!strings.Contains(errOut.String(), "warning: FAIRLEAD_API_KEY is set, and is used instead") {
		t.Errorf("login: %d, %s, %s", code, &out, &errOut)
	}
	delete(a.env, envAPIKey)
	if r := fairlead(t, a.env, "", "doctor", "https://none.fairlead.invalid"); r.err != "" || r.code != exitOther {
		t.Errorf("the doctor, which needs no authtoken: %+v", r)
	}
	if r := a.api(exitOther, "endpoints", "list"); !strings.Contains(r.err, "ERR_FL_1020") {
		t.Errorf("the API with the stored key: %+v", r)
	}
}
