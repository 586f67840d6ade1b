// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProcess) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// waitForText waits until the output holds the text, and logs the output when it never does.
func waitForText(t *testing.T, output *logbuffer.Buffer, text string) {
	t.Helper()
	holds := func() bool { return strings.Contains(output.String(), text) }
	defer func() {
		if !holds() {
			t.Logf("the output:\n%s", output)
		}
	}()
	wait.Until(t, strconv.Quote(text)+" in the output", holds)
}

func noEnv(string) string { return "" }

// command runs one command line to its end.
func command(t *testing.T, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr logbuffer.Buffer
	code = run(t.Context(), args, console{out: &stdout, err: &stderr, env: noEnv})
	return code, stdout.String(), stderr.String()
}

// ok runs a command that must succeed and returns what it printed.
func ok(t *testing.T, args ...string) (out, errs string) {
	t.Helper()
	code, out, errs := command(t, args...)
	if code != 0 {
		t.Fatalf("%v: exit %d: %s", args, code, errs)
	}
	return out, errs
}

// served starts a server on the data directory; stop ends it and returns its exit code.
func served(t *testing.T, dir string, args ...string) (log *logbuffer.Buffer, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log = new(logbuffer.Buffer)
	exit := make(chan int, 1)
	args = append([]string{"serve", "--addr", "127.0.0.1:0", "--metrics-addr", "", "--data-dir", dir}, args...)
	go func() { exit <- run(ctx, args, console{out: new(logbuffer.Buffer), err: log, env: noEnv}) }()
	waitForText(t, log, "is up")
	var once sync.Once
	var code int
	stop = func() int {
		once.Do(func() { cancel(); code = <-exit })
		return code
	}
	t.Cleanup(func() { stop() })
	return log, stop
}

func TestServe_AcceptsAdministration(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	log, stop := served(t, dir, "--log-format", "json")
	data := func(args ...string) []string { return append(args, "--data-dir", dir) }

	ca, fingerprint := ok(t, data("ca")...)
	if !strings.HasPrefix(ca, "-----BEGIN CERTIFICATE-----") || !regexp.MustCompile(`^ca-sha256 [0-9a-f]{64}\n$`).
		MatchString(fingerprint) {
		t.Errorf("ca printed %q and %q", ca, fingerprint)
	}
	if sum := strings.Fields(fingerprint)[1]; !strings.Contains(log.String(), sum) {
		t.Error("the log does not name the fingerprint")
	}
	key, about := ok(t, data("api-key", "create", "--scope", "operator", "--expires", "720h", "--description",
		"cluster")...)
	if !regexp.MustCompile(`^flk_[\w-]+\n$`).MatchString(key) || strings.Contains(about, strings.TrimSpace(key)) ||
		!strings.Contains(about, "operator") {
		t.Errorf("a key: %q and %q", key, about)
	}
	table, _ := ok(t, data("api-key", "list")...)
	if lines := strings.Split(strings.TrimSpace(table), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "ID") ||
		!strings.Contains(lines[1], "cluster") {
		t.Errorf("the table of keys:\n%s", table)
	}
	ok(t, data("account", "create", "team-a")...)
	if accounts, _ := ok(t, data("account", "list")...); !strings.Contains(accounts, "team-a") ||
		!strings.Contains(accounts, "default") {
		t.Errorf("accounts:\n%s", accounts)
	}
	for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		if !json.Valid([]byte(line)) {
			t.Errorf("the log has a line that is no JSON: %s", line)
		}
	}
	if code := stop(); code != 0 {
		t.Errorf("exit code %d after an orderly stop", code)
	}
}

func TestAuthtoken_CreateSetsRules(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	served(t, dir)
	for args, want := range map[string]string{
		"":                                   `["bind:*"]`,
		"--connect *":                        `["connect:*"]`,
		"--acl bind:http://*.a --connect *":  `["bind:http://*.a","connect:*"]`,
		"--acl bind:http://A.b:80":           `["bind:http://a.b"]`,
		"--acl connect:* --description text": `["connect:*"]`,
	} {
		out, _ := ok(t, append(strings.Fields("authtoken create -o json --data-dir "+dir), strings.Fields(args)...)...)
		var made credentialJSON
		if err := json.Unmarshal([]byte(out), &made); err != nil || !strings.HasPrefix(made.Secret, "flt_") {
			t.Fatalf("%s: %v in %s", args, err, out)
		}
		if acl, _ := json.Marshal(made.ACL); string(acl) != want {
			t.Errorf("%q gave the rules %s, want %s", args, acl, want)
		}
		if out, _ := ok(t, "authtoken", "delete", made.ID, "--data-dir", dir); out !=
			"authtoken "+made.ID+" deleted: in effect on the server\n" {
			t.Errorf("a deletion printed %q", out)
		}
	}
	if tokens, _ := ok(t, "authtoken", "list", "-o", "json", "--data-dir", dir); strings.Contains(tokens, "secret") ||
		strings.Count(tokens, `"id"`) != 1 {
		t.Errorf("tokens: %s", tokens)
	}
}

func TestAPIKey_CreateForExporter(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	served(t, dir)
	for args, want := range map[string]string{
		"--scope exporter": `["export:*","bind:*"] `,
		"--scope exporter --cluster-uid 1f0c --acl export:a/* --acl bind:tcp://*": `["export:a/*","bind:tcp://*"] 1f0c`,
	} {
		out, about := ok(t, append(strings.Fields("api-key create -o json --data-dir "+dir),
			strings.Fields(args)...)...)
		var made credentialJSON
		if err := json.Unmarshal([]byte(out), &made); err != nil {
			t.Fatalf("%s: %v in %s", args, err, out)
		}
		if acl, _ := json.Marshal(made.ACL); string(acl)+" "+made.ClusterUID != want {
			t.Errorf("%q gave %s %s, want %s; %s", args, acl, made.ClusterUID, want, about)
		}
	}
	table, _ := ok(t, "api-key", "list", "--data-dir", dir)
	for _, want := range []string{"SCOPES", "RULES", "CLUSTER", "exporter", "export:a/* bind:tcp://*", "1f0c"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestAuthtoken_CreateSetsExpiry(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	served(t, dir)
	for expires, want := range map[string]string{"2100-01-31": "2100-01-31T00:00:00Z",
		"2100-01-31T18:00:00+01:00": "2100-01-31T17:00:00Z", "": ""} {
		out, _ := ok(t, "authtoken", "create", "-o", "json", "--expires", expires, "--data-dir", dir)
		var made credentialJSON
		if err := json.Unmarshal([]byte(out), &made); err != nil || (made.ExpiresAt == nil) != (want == "") ||
			want != "" && made.ExpiresAt.UTC().Format(time.RFC3339) != want {
			t.Errorf("--expires %q made a token that ends %v, want %q: %v", expires, made.ExpiresAt, want, err)
		}
		ok(t, "authtoken", "delete", made.ID, "--data-dir", dir)
	}
}

func TestRun_WrongUsageExitsWith2(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	_, stop := served(t, dir)
	ok(t, "account", "create", "second", "--data-dir", dir)
	for line, texts := range map[string][]string{
		"api-kye":                     {"api-kye", "did you mean `fairlead-server api-key`"},
		"serve extra":                 {"extra"},
		"--bogus":                     {"--bogus", "--help"},
		"--drain-timeout soon":        {"drain-timeout", "soon"},
		"--drain-timeout -1s":         {"--drain-timeout", "-1s"},
		"--base-url ftp://x":          {"--base-url", "ftp://x", "https"},
		"--log-level loud":            {"--log-level", "loud", "debug"},
		"--log-format xml":            {"--log-format", "xml", "json"},
		"account create":              {"NAME"},
		"account frob":                {"frob"},
		"account list -o yaml":        {"--output", "yaml", "json"},
		"api-key create":              {"--account", "default, second"},
		"api-key create --account no": {"--account", "no", "second"},
		"api-key create --account second --scope root":                         {"scopes", "root"},
		"api-key create --account second --scope exporter --acl export:team-a": {"acl", "export:team-a/*"},
		"api-key create --account second --cluster-uid 1f0c":                   {"cluster_uid", "scope exporter"},
		"api-key create --account second --expires soon":                       {"--expires", "soon", "720h"},
		"api-key create --account second --expires -1h":                        {"--expires", "future"},
		"api-key create --account second --expires 2001-01-01":                 {"--expires", "2001-01-01"},
		"api-key delete": {"ID"},
		"authtoken create --account second --expires -1h":        {"--expires", "future"},
		"authtoken create --account second --expires 2100-01-32": {"--expires", "2100-01-32", "2027-01-31"},
		"authtoken create --account second --acl bind:tls://a.b": {"acl", "scheme"},
		"authtoken create --account second --connect no-such":    {"acl", "connect:no-such"},
		"authtoken delete a b":                                   {`"b"`},
	} {
		code, _, errs := command(t, append(strings.Fields(line), "--data-dir", dir)...)
		if code != 2 || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "fairlead-server: ") {
			t.Errorf("%s: exit %d, %q", line, code, errs)
		}
		for _, text := range texts {
			if !strings.Contains(errs, text) {
				t.Errorf("%s: %q lacks %q", line, errs, text)
			}
		}
	}
	stop()
}

func TestRun_FailuresExitWith1(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	used := filepath.Join(t.TempDir(), "used")
	served(t, used)
	newer := filepath.Join(t.TempDir(), "newer")
	_, stop := served(t, newer)
	stop()
	db, err := sql.Open("sqlite", filepath.Join(newer, "fairlead.db"))
	must.Succeed(t, err)
	if _, err := db.ExecContext(t.Context(),
		"PRAGMA user_version = 999; UPDATE store SET compatible_from = 999"); err != nil {
		t.Fatal(err)
	}
	_ = db.Close()
	for line, text := range map[string]string{
		"--addr " + taken.Addr().String() + " --data-dir " + t.TempDir():  "in use",
		"--addr 127.0.0.1:0 --metrics-addr= --data-dir " + used:           "in use by another fairlead-server",
		"--addr 127.0.0.1:0 --metrics-addr= --data-dir " + newer:          "newer",
		"account list --data-dir " + newer:                                "newer",
		"account list --data-dir /nowhere":                                "--data-dir",
		"ca --data-dir /nowhere":                                          "no authority",
		"api-key delete ak-none --data-dir " + used:                       "ak-none",
		"authtoken delete cr-none --data-dir " + used:                     "cr-none",
		"account create default --data-dir " + used:                       "already",
		"--addr 127.0.0.1:0 --metrics-addr= --data-dir /proc/nothing/new": "/proc/nothing/new",
	} {
		code, _, errs := command(t, strings.Fields(line)...)
		if code != 1 || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, text) {
			t.Errorf("%s: exit %d, %q, want %q", line, code, errs, text)
		}
	}
}

func TestHelp_OfEveryCommand(t *testing.T) {
	t.Parallel()
	root := newRoot(console{out: new(logbuffer.Buffer), err: new(logbuffer.Buffer), env: noEnv})
	queue := root.Commands()
	for len(queue) > 0 {
		cmd := queue[0]
		queue = append(queue[1:], cmd.Commands()...)
		if cmd.Short == "" || cmd.Runnable() && !cmd.HasSubCommands() && cmd.Example == "" {
			t.Errorf("%s has no short help or no example", cmd.CommandPath())
		}
	}
	for _, line := range []string{"--help", "serve --help", "authtoken create --help", "account"} {
		if out, _ := ok(t, strings.Fields(line)...); !strings.Contains(out, "Usage:") {
			t.Errorf("%s printed %q", line, out)
		}
	}
}

func TestDefaultDataDir_FollowsXDG(t *testing.T) {
	t.Parallel()
	env := func(pairs ...string) func(string) string {
		return func(name string) string {
			for _, p := range pairs {
				if value, found := strings.CutPrefix(p, name+"="); found {
					return value
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		env  func(string) string
		euid int
		want string
	}{
		{env("HOME=/root", "XDG_DATA_HOME=/x"), 0, "/var/lib/fairlead"},
		{env("HOME=/home/a"), 1000, "/home/a/.local/share/fairlead"},
		{env("HOME=/home/a", "XDG_DATA_HOME=/data"), 1000, "/data/fairlead"},
		{env("HOME=/home/a", "XDG_DATA_HOME=relative"), 1000, "/home/a/.local/share/fairlead"},
		{env(), 1000, "/var/lib/fairlead"},
	} {
		if got := defaultDataDir(c.env, c.euid); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestServe_PrintsFirstSecretsOnTerminal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	terminal, log, exit := new(logbuffer.Buffer), new(logbuffer.Buffer), make(chan int, 1)
	dir := filepath.Join(t.TempDir(), "data")
	go func() {
		exit <- run(ctx, []string{"--addr", "127.0.0.1:0", "--metrics-addr", "", "--data-dir", dir},
			console{out: terminal, err: log, outTerminal: true, errTerminal: true, env: noEnv})
	}()
	waitForText(t, log, "is up")
	cancel()
	if code := <-exit; code != 0 {
		t.Errorf("exit %d", code)
	}
	secret := regexp.MustCompile(`flk_[\w-]+`).FindString(terminal.String())
	if secret == "" || strings.Contains(log.String(), secret) || !strings.Contains(log.String(), "level=INFO") {
		t.Errorf("terminal:\n%s\nlog:\n%s", terminal, log)
	}
	if _, err := os.Stat(filepath.Join(dir, "bootstrap.txt")); err == nil {
		t.Error("a file was written, too")
	}
}
