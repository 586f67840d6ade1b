// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
)

// quickstarted is a quick start that has printed its summary.
type quickstarted struct {
	t    *testing.T
	out  *logbuffer.Buffer
	stop func() (code int) // stop ends it as Ctrl-C does.
}

// startQuickstart runs the command until the test ends. Its tests run one after the other: each
// prefers the same ports.
func startQuickstart(t *testing.T, args ...string) *quickstarted {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	q := &quickstarted{t: t, out: new(logbuffer.Buffer)}
	log, ended := new(logbuffer.Buffer), make(chan int, 1)
	go func() {
		ended <- run(ctx, append([]string{"quickstart"}, args...), console{out: q.out, err: log, env: noEnv})
	}()
	q.stop = sync.OnceValue(func() int { cancel(); return <-ended })
	t.Cleanup(func() {
		q.stop()
		if log.String() != "" {
			t.Errorf("it logged:\n%s", log)
		}
	})
	waitForText(t, q.out, "Requests, as the agent sees them")
	return q
}

// find returns what the group of the expression matches in the output.
func (q *quickstarted) find(expression string) string {
	q.t.Helper()
	found := regexp.MustCompile(expression).FindStringSubmatch(q.out.String())
	if found == nil {
		q.t.Fatalf("no %s in the output:\n%s", expression, q.out)
	}
	return found[1]
}

// get requests a path at the server whose URL follows prefix in the output.
func (q *quickstarted) get(prefix, path string, tr *http.Transport, key string) (status int, body string) {
	q.t.Helper()
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(q.t.Context(), http.MethodGet, q.find(prefix+`(https?://[^/\s]+)`)+path, nil)
	if err != nil {
		q.t.Fatal(err)
	}
	if key != "" {
		req.Header = http.Header{"Authorization": {"Bearer " + key}, "Service-Version": {"2"}}
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		q.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		q.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// call calls the endpoint by the printed curl command.
func (q *quickstarted) call(path string) (status int, body string) {
	q.t.Helper()
	return q.get("curl ", path, &http.Transport{}, "")
}

func TestQuickstart_AnswersAndLeavesNothing(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	q := startQuickstart(t)
	if status, body := q.call("/cart"); status != http.StatusOK || !strings.Contains(body, "GET /cart came through") {
		t.Errorf("the hello page: %d %q", status, body)
	}
	waitForText(t, q.out, "/cart")
	if status, body := q.get("inspector +", "/", &http.Transport{}, ""); status != http.StatusOK ||
		!strings.Contains(body, "/cart") {
		t.Errorf("the inspector: %d %q", status, body)
	}
	client, err := trust.Options{CAFile: filepath.Join(q.find(`removes (\S+)\.`), "ca.crt")}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	dashboard, key := &http.Transport{TLSClientConfig: client}, q.find(`(flk_\S+)`)
	if status, body := q.get("dashboard +", "/endpoints", dashboard, key); status != http.StatusOK ||
		!strings.Contains(body, `"url":"http://hello.demo"`) {
		t.Errorf("the endpoints by the API key: %d %q", status, body)
	}
	if status, body := q.get("dashboard +", "/ui/sign-in", dashboard, ""); status != http.StatusOK ||
		!strings.Contains(body, "API key") {
		t.Errorf("the dashboard: %d %q", status, body)
	}
	if code := q.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	requireEmpty(t, temporary)
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestQuickstart_SignalsLeaveNothing holds that Ctrl-C, kill and a closed terminal end a process in
// order, also when its output has no reader any more.
func TestQuickstart_SignalsLeaveNothing(t *testing.T) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP) // else processes ignore it where this test runs under nohup
	defer signal.Stop(hangup)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		temporary := t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, os.Args[0], "quickstart")
		cmd.Env = []string{asProcess + "=1", "TMPDIR=" + temporary}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "Requests, as the agent") {
				_ = out.Close()
				_ = cmd.Process.Signal(s)
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v, want exit code 0", s, err)
		}
		requireEmpty(t, temporary)
	}
}

func TestQuickstart_ForwardsToTarget(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, r.Host+r.URL.Path)
	}))
	defer server.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(server.URL, "http://"), ":")
	q := startQuickstart(t, port)
	want := q.find(`curl http://(\S+)/`) + "/cart"
	if status, body := q.call("/cart"); status != http.StatusTeapot || body != want {
		t.Errorf("got %d %q, want %q", status, body, want)
	}
}

func TestQuickstart_GoesOnWithoutTarget(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	defer broken.Close()
	for name, target := range map[string]string{"closed": closedport.Reserve(t), "broken": broken.URL} {
		q := startQuickstart(t, target)
		if status, _ := q.call("/"); status != http.StatusBadGateway {
			t.Errorf("%s: status %d", name, status)
		}
		q.find(`(That does not answer yet)`)
		q.stop()
	}
}

func TestQuickstart_NamedFolderStays(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	identity := func(q *quickstarted) string {
		t.Helper()
		ca, _ := ok(t, "ca", "--data-dir", dir)
		accounts, _ := ok(t, "account", "list", "--data-dir", dir)
		client, err := trust.Options{CAPEM: []byte(ca)}.ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		_, endpoints := q.get("dashboard +", "/endpoints", &http.Transport{TLSClientConfig: client},
			q.find(`(flk_\S+)`))
		return ca + accounts + regexp.MustCompile(`"id":"ep-\w+"`).FindString(endpoints)
	}
	first := startQuickstart(t, "--data-dir", dir)
	before := identity(first)
	if code, _, errs := command(t, "quickstart", "--data-dir", dir); code != 1 ||
		!strings.HasPrefix(errs, "fairlead-server: the service: data directory "+dir+" is in use") {
		t.Errorf("a second one in the folder: exit %d: %s", code, errs)
	}
	if code := first.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	second := startQuickstart(t, "--data-dir", dir)
	if after := identity(second); after != before || !strings.Contains(after, "ep-") {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if status, body := second.call("/"); status != http.StatusOK {
		t.Errorf("got %d %q", status, body)
	}
	for kind, want := range map[string]int{"api-key": 1, "authtoken": 2} {
		list, _ := ok(t, kind, "list", "--data-dir", dir)
		if n := strings.Count(list, "quick start"); n != want {
			t.Errorf("%d credentials of all starts, want %d:\n%s", n, want, list)
		}
	}
}

// failingWriter is a terminal that is gone.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestQuickstart_FailedStartLeavesNothing(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	var errs logbuffer.Buffer
	code := run(t.Context(), []string{"quickstart"}, console{out: failingWriter{}, err: &errs, env: noEnv})
	if code != 1 || !strings.Contains(errs.String(), "printing the summary: gone") {
		t.Errorf("exit %d: %s", code, &errs)
	}
	requireEmpty(t, temporary)
}

func TestQuickstart_RefusesFolderOfServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	_, stop := served(t, dir)
	stop()
	code, _, errs := command(t, "quickstart", "--data-dir", dir)
	if code != 2 || !strings.Contains(errs, `--data-dir "`+dir+`": holds the data of a server; name a new folder`) {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestQuickstart_RefusesWrongUsage(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"web":                       `TARGET "web": the port is missing; give PORT or HOST:PORT`,
		"70000":                     `TARGET "70000": the port must be a number from 1 to 65535`,
		"http://localhost/a":        `TARGET "http://localhost/a": a path is not allowed; remove it`,
		"tcp://localhost:5432":      `TARGET "tcp://localhost:5432": the scheme must be http or https`,
		"3000 4000":                 "takes one target, and got \"4000\" too",
		"--log-level loud":          `--log-level "loud": must be`,
		"--database-url postgres:x": "leave out --database-url",
	} {
		code, _, errs := command(t, append([]string{"quickstart"}, strings.Fields(args)...)...)
		if code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d: %s", args, code, errs)
		}
	}
}
