// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/postgrestest"
)

// withEnv runs one command line with one variable set.
func withEnv(t *testing.T, name, value string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr logbuffer.Buffer
	env := func(asked string) string {
		if asked == name {
			return value
		}
		return ""
	}
	code = run(t.Context(), args, console{out: &stdout, err: &stderr, env: env})
	return code, stdout.String(), stderr.String()
}

func TestCommands_OnPostgres(t *testing.T) {
	t.Parallel()
	postgres, err := postgrestest.Start("fsync=off")
	postgrestest.SkipWithout(t, err)
	t.Cleanup(func() { // after the server has ended
		if err := postgres.Remove(); err != nil {
			t.Error(err)
		}
	})
	databaseURL := postgres.URL(t)
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	must.Succeed(t, os.WriteFile(key, []byte(strings.Repeat("0f", 32)), 0o600))
	log, stop := served(t, filepath.Join(dir, "first"), "--database-url", databaseURL, "--secret-key-file", key)
	if !strings.Contains(log.String(), "postgres://fairlead@") {
		t.Errorf("the log does not name the database:\n%s", log)
	}
	secret := strings.Replace(databaseURL, "fairlead@", "fairlead:hunter2@", 1)
	file := filepath.Join(dir, "url")
	must.Succeed(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	nowhere := filepath.Join(dir, "nowhere")
	for _, create := range [][]string{{"--database-url", databaseURL}, {"--database-url-file", file}} {
		ok(t, append([]string{"api-key", "create", "--data-dir", nowhere}, create...)...)
	}
	code, out, errs := withEnv(t, databaseURLVariable, secret, "api-key", "list", "-o", "json", "--data-dir", nowhere)
	if code != 0 || strings.Count(out, `"id"`) != 3 {
		t.Errorf("listing: exit %d, %s %s", code, out, errs)
	}
	for _, line := range []string{
		"serve --addr 127.0.0.1:0 --metrics-addr= --data-dir " + filepath.Join(dir, "second") +
			" --database-url-file " +
			file + " --secret-key-file " + key,
		"store new-epoch --data-dir " + filepath.Join(dir, "third") + " --database-url-file " + file,
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var stderr logbuffer.Buffer
		code := run(ctx, strings.Fields(line), console{out: io.Discard, err: &stderr, env: noEnv})
		cancel()
		if code != 1 || !strings.Contains(stderr.String(), "in use by another fairlead-server") ||
			strings.Contains(stderr.String(), "hunter2") {
			t.Errorf("%s: exit %d, %s", line, code, &stderr)
		}
	}
	if code, _, errs := command(t, "backup", filepath.Join(dir, "b"), "--database-url", databaseURL); code != 1 ||
		!strings.Contains(errs, "pg_dump") {
		t.Errorf("backup: exit %d, %s", code, errs)
	}
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	out, _ = ok(t, "store", "new-epoch", "--data-dir", dir, "--database-url", databaseURL)
	if !strings.Contains(out, "watchers list again") || strings.Count(out, "api-key ") != 3 {
		t.Errorf("new epoch:\n%s", out)
	}
}

// TestCA_PrintsAuthorityOfDatabase moves a server with files to PostgreSQL, and begins a new epoch
// there.
func TestCA_PrintsAuthorityOfDatabase(t *testing.T) {
	t.Parallel()
	postgres, err := postgrestest.Start("fsync=off")
	postgrestest.SkipWithout(t, err)
	t.Cleanup(func() { // after the server has ended
		if err := postgres.Remove(); err != nil {
			t.Error(err)
		}
	})
	database := []string{"--database-url", postgres.URL(t)}
	dir, elsewhere := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "nowhere")
	if code, _, errs := command(t, append(database, "ca", "--data-dir", elsewhere)...); code != 1 ||
		!strings.Contains(errs, "no authority in "+elsewhere) || !strings.Contains(errs, "--database-url-file") {
		t.Errorf("before the first start: exit %d, %s", code, errs)
	}
	_, stop := served(t, dir)
	certificate, fingerprint := ok(t, "ca", "--data-dir", dir)
	stop()
	same := func(when string, args ...string) {
		t.Helper()
		c, f := ok(t, append(append([]string{"ca"}, database...), args...)...)
		if c != certificate || f != fingerprint {
			t.Errorf("%s: %s and %s instead of %s and %s", when, f, c, fingerprint, certificate)
		}
	}
	same("before the import", "--data-dir", dir)
	log, stop := served(t, dir, append(database, "--secret-key-file", filepath.Join(dir, "secret.key"))...)
	waitForText(t, log, strings.Fields(fingerprint)[1])
	stop()
	same("after the import", "--data-dir", elsewhere)
	ok(t, append([]string{"store", "new-epoch", "--data-dir", elsewhere}, database...)...)
	same("after a new epoch", "--data-dir", elsewhere)
}

func TestDatabaseURL_RefusesBadValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	must.Succeed(t, os.WriteFile(empty, nil, 0o600))
	for line, texts := range map[string][]string{
		"--database-url postgres://a:hunter2@localhost/b": {"--database-url", "list of processes",
			"--database-url-file", databaseURLVariable},
		"--database-url postgres://localhost/b?password=hunter2":         {"list of processes"},
		"--database-url postgres://a:hunter2%zz@localhost/b":             {"--database-url", "percent-encoded"},
		"--database-url mysql://localhost/b":                             {"postgres://"},
		"--database-url postgres://a@b/c --database-url-file " + empty:   {"not both"},
		"--database-url-file " + empty:                                   {"--database-url-file", "empty"},
		"--database-url postgres://localhost/b?sslmode=maybe_hunter2":    {"sslmode"},
		"account list --database-url postgres://a:hunter2@localhost/b":   {"list of processes"},
		"backup /nowhere/b --database-url postgres://a:hunter2@there/b":  {"list of processes"},
		"restore /nowhere/b --database-url postgres://a:hunter2@there/b": {"list of processes"},
	} {
		code, _, errs := command(t, append(strings.Fields(line), "--data-dir", dir)...)
		if code != 2 || strings.Count(errs, "\n") != 1 || strings.Contains(errs, "hunter2") {
			t.Errorf("%s: exit %d, %q", line, code, errs)
		}
		for _, text := range texts {
			if !strings.Contains(errs, text) {
				t.Errorf("%s: %q lacks %q", line, errs, text)
			}
		}
	}
	code, _, errs := withEnv(t, databaseURLVariable, "hunter2", "account", "list")
	if code != 2 || strings.Contains(errs, "hunter2") || !strings.Contains(errs, "postgres://") {
		t.Errorf("no URL in the variable: exit %d, %q", code, errs)
	}
}

func TestRestore_NamesDifferingCredentials(t *testing.T) {
	t.Parallel()
	dir, file := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backup.db")
	_, stop := served(t, dir)
	revoked, _ := ok(t, "api-key", "create", "--description", "revoked since", "-o", "json", "--data-dir", dir)
	ok(t, "backup", file, "--data-dir", dir)
	ok(t, "api-key", "delete", strings.Split(strings.SplitN(revoked, `"id": "`, 2)[1], `"`)[0], "--data-dir", dir)
	ok(t, "api-key", "create", "--description", "made since", "--data-dir", dir)
	if code, _, errs := command(t, "restore", file, "--data-dir", dir); code != 1 ||
		!strings.Contains(errs, "in use by another fairlead-server") {
		t.Errorf("beside a server: exit %d, %s", code, errs)
	}
	stop()
	out, _ := ok(t, "restore", file, "--data-dir", dir)
	for _, text := range []string{"watchers list again", "fairlead.db.replaced-", "valid again", "revoked since",
		"unknown now", "made since"} {
		if !strings.Contains(out, text) {
			t.Errorf("%q is missing in:\n%s", text, out)
		}
	}
	if strings.Contains(out, `["`) {
		t.Errorf("rules in brackets:\n%s", out)
	}
	asJSON, _ := ok(t, "restore", file, "--data-dir", dir, "-o", "json")
	if !strings.Contains(asJSON, `"valid_again": []`) || !strings.Contains(asJSON, `"compared": true`) {
		t.Errorf("the second restore: %s", asJSON)
	}
	served(t, dir) // the restored store serves
}
