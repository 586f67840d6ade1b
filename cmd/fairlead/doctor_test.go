// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// machineCase is a machine's settings, and what doctor reports about them.
type machineCase struct {
	svc    *service
	token  string
	change func(env map[string]string) // nil: no change
	broken string                      // the broken check; empty: all are good
	want   string                      // text of the report
}

// machineCases returns the cases by name; nothing listens on the address closed.
func machineCases(good, refusing *service, closed string) map[string]machineCase {
	return map[string]machineCase{
		"all good":      {good, goodToken, nil, "", "takes the authtoken"},
		"token refused": {refusing, goodToken, nil, "session", "the authtoken is unknown"},
		"no token":      {good, "", nil, "authtoken", "fairlead config add-authtoken -"},
		"no server": {good, goodToken, func(env map[string]string) {
			delete(env, agentconfig.EnvServerURL)
		}, "settings", "no server is configured"},
		"config unread": {good, goodToken, func(env map[string]string) {
			env[agentconfig.EnvConfig] = "/does/not/exist"
		}, "settings", "does not exist"},
		"another CA": {good, goodToken, func(env map[string]string) {
			delete(env, agentconfig.EnvCAFile)
			env[agentconfig.EnvCASHA256] = strings.Repeat("a", 64)
		}, "server", "cannot be trusted"},
		"nothing listens": {good, goodToken, func(env map[string]string) {
			env[agentconfig.EnvServerURL] = "https://" + closed
		}, "server", "connection refused"},
		"not a host:port": {good, goodToken, func(env map[string]string) {
			env[agentconfig.EnvServerURL] = "ftp://x"
		}, "authtoken", "the scheme must be https"},
		"proxy is no URL": {good, goodToken, func(env map[string]string) {
			env["HTTPS_PROXY"] = "::"
		}, "authtoken", "HTTPS_PROXY"},
		"unknown CA": {good, goodToken, func(env map[string]string) {
			delete(env, agentconfig.EnvCAFile)
		}, "server", "--ca-file"},
		"an API key, oops": {good, "flk_SECRET", nil, "settings", "is an API key"},
	}
}

func TestDoctor_OfMachine(t *testing.T) {
	t.Parallel()
	good := newService(t, nil, nil)
	refusing := newService(t, &tunnel.Error{Code: tunnel.CodeBadToken, Msg: "the authtoken is unknown"}, nil)
	for name, c := range machineCases(good, refusing, closedport.Reserve(t)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{"HOME": t.TempDir(), agentconfig.EnvServerURL: c.svc.url,
				agentconfig.EnvCAFile: c.svc.caFile, agentconfig.EnvAuthtoken: c.token}
			if c.change != nil {
				c.change(env)
			}
			r := fairlead(t, env, "", "doctor", "-o", "json")
			var report path.Report
			if err := json.Unmarshal([]byte(r.out), &report); err != nil {
				t.Fatalf("%v in %+v", err, r)
			}
			if report.Broken != c.broken || report.OK != (c.broken == "") || (r.code == 0) != report.OK || r.code > 1 ||
				!strings.Contains(r.out, c.want) || r.err != "" {
				t.Errorf("want %q broken and %q, got code %d:\n%s%s", c.broken, c.want, r.code, r.out, r.err)
			}
			if strings.Contains(r.out, "SECRET") || strings.Contains(r.out, goodToken) {
				t.Errorf("the authtoken is shown: %s", r.out)
			}
			if table := fairlead(t, env, "", "doctor"); table.code != r.code ||
				!strings.Contains(table.out, "settings") {
				t.Errorf("as a table: %+v", table)
			}
		})
	}
}

// TestDoctor_ComparesClocks uses a server that answers API requests only, with a clock of its own.
func TestDoctor_ComparesClocks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ahead time.Duration
		want  path.Status
	}{"same": {0, path.OK}, "ahead": {time.Hour, path.Broken}, "behind": {-time.Hour, path.Broken}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", time.Now().Add(c.ahead).UTC().Format(http.TimeFormat))
			}))
			defer api.Close()
			m := &machineDiagnosis{console: console{env: func(string) string { return "" }}}
			m.settings, _ = agentconfig.Load(agentconfig.Flags{ServerURL: api.URL, CAFile: writeCA(t)},
				func(k string) string {
					return map[string]string{agentconfig.EnvAuthtoken: goodToken}[k]
				}, nil)
			if h := m.checkAuthtoken(t.Context()); h.Status != path.OK {
				t.Fatal(h)
			}
			if h := m.checkClock(t.Context()); h.Status != c.want {
				t.Errorf("got %+v, want %s", h, c.want)
			}
		})
	}
}

// TestDoctor_RunsKubectl runs the kubectl of PATH; on a broken hop the command prints the report
// alone.
func TestDoctor_RunsKubectl(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\nif [ \"$1\" = config ]; then echo staging; exit; fi\necho \"$@\" >>" + dir +
		"/calls\necho 'error: You must be logged in to the server (Unauthorized)' >&2\nexit 1\n"
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	r := fairlead(t, nil, "", "doctor", "http://api.demo", "--kubeconfig", "/k", "--context", "c")
	if r.code != 1 || r.err != "" || !strings.Contains(r.out, "context c does not know you") ||
		!strings.Contains(r.out, "broken: cluster") || strings.Contains(r.out, "\x1b") {
		t.Errorf("got %+v", r)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil || !strings.Contains(string(calls), "--kubeconfig=/k --context=c") {
		t.Errorf("kubectl was called with %q, %v", calls, err)
	}
	for _, flag := range []string{"--context", "--export-context"} {
		if r = fairlead(t, nil, "", "__complete", "doctor", flag, "s"); !strings.HasPrefix(r.out, "staging\n:4") {
			t.Errorf("%s: %+v", flag, r)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if r = fairlead(t, nil, "", "doctor", "http://api.demo"); r.code != 1 ||
		!strings.Contains(r.out, "kubectl is not in PATH") {
		t.Errorf("got %+v", r)
	}
}

// TestDoctor_NamesOfClustersets asks kubectl for what the argument names.
func TestDoctor_NamesOfClustersets(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$@\" >>" + dir +
		"/calls\n[ \"$1\" = get ] && echo 'error: the server does not answer' >&2 " +
		"&& exit 1\necho staging\n"
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	const imports, exports = "get serviceimports.v1beta1.multicluster.x-k8s.io hello --namespace demo",
		"get serviceexports.v1beta1.multicluster.x-k8s.io hello --namespace demo"
	for arg, c := range map[string]struct{ url, call string }{
		"hello.demo.svc.clusterset.local": {"hello.demo.svc.clusterset.local", imports},
		"hello.demo.svc.mesh.example.":    {"hello.demo.svc.mesh.example", imports},
		"serviceimport/demo/hello":        {"hello.demo.svc.clusterset.local", imports},
		"svcim/demo/hello":                {"hello.demo.svc.clusterset.local", imports},
		"serviceexport/demo/hello":        {"hello.demo.svc.clusterset.local", exports},
	} {
		_ = os.Remove(filepath.Join(dir, "calls"))
		r := fairlead(t, nil, "", "doctor", arg, "-o", "json")
		calls, err := os.ReadFile(filepath.Join(dir, "calls"))
		if err != nil || !strings.Contains(string(calls), c.call) || strings.Count(string(calls), c.call[:12]) != 1 ||
			r.code != 1 || !strings.Contains(r.out, `"url": "`+c.url+`"`) {
			t.Errorf("%s: %+v, kubectl was called with %s", arg, r, calls)
		}
	}
}
