// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/version"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func refusal(code tunnel.Code, msg string) error { return &tunnel.Error{Code: code, Msg: msg} }

func TestHTTP_RefusalsHaveExitCodes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hello, bind error
		code        int
		want        string
	}{
		"bad authtoken": {refusal(tunnel.CodeBadToken, "unknown authtoken"), nil, exitCredentials,
			"fairlead: the server refused the authtoken: unknown authtoken; the authtoken in use is the one from " +
				"FAIRLEAD_AUTHTOKEN\n"},
		"no rule": {nil, refusal(tunnel.CodeForbidden, "no rule bind:http://a.b"), exitCredentials,
			"fairlead: the authtoken may not serve http://a.b: no rule bind:http://a.b; the authtoken in use"},
		"URL taken": {nil, refusal(tunnel.CodeURLTaken, "http://a.b is taken by ts-9 from 10.1.2.3 since 09:00"),
			exitURLTaken,
			"fairlead: http://a.b is taken by ts-9 from 10.1.2.3 since 09:00\n"},
		"stopped": {refusal(tunnel.CodeStop, "stopped by an administrator"), nil, exitStopped,
			"stopped by an administrator\n"},
		"version": {refusal(tunnel.CodeVersion, "speaks 2, not 1"), nil, exitStopped, "speaks 2, not 1\n"},
		"invalid": {nil, refusal(tunnel.CodeInvalid, "url: no"), exitUsage,
			"fairlead: the server refused http://a.b: url: no\n"},
		"account limit":   {nil, refusal(tunnel.CodeLimit, "100 endpoints"), exitUsage, "100 endpoints\n"},
		"terminal escape": {refusal(tunnel.CodeStop, "\x1b[2Jgone"), nil, exitStopped, `\x1b[2Jgone`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			svc := newService(t, c.hello, c.bind)
			r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken, agentconfig.EnvServerURL: svc.url,
				agentconfig.EnvCAFile: svc.caFile},
				"", "http", "8080", "--url", "http://a.b")
			if r.code != c.code || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 {
				t.Errorf("got %+v, want code %d and %q", r, c.code, c.want)
			}
			if strings.Contains(r.err+r.out, goodToken) {
				t.Error("the authtoken was printed")
			}
		})
	}
}

// TestHTTP_RetriesUntrustedServer: a captive portal, or a clock that is wrong after a boot, must not
// end an agent for good.
func TestHTTP_RetriesUntrustedServer(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, nil)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"system roots": {nil,
			"signed by an authority that this machine does not trust; give the server's authority with --ca-file"},
		"other fingerprint": {[]string{"--ca-sha256", strings.Repeat("0", 64)},
			"not the one whose fingerprint was given; compare --ca-sha256 with what the server has"},
		"other CA file": {[]string{"--ca-file", otherCA(t)},
			"that this machine does not trust; compare --ca-file with"},
		"other host name": {[]string{"--ca-file", svc.caFile, "--server",
			strings.Replace(svc.url, "127.0.0.1", "localhost", 1)},
			"its certificate is for another host name; call the server by a name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"http", "8080", "--url", "http://a.b", "--server", svc.url}, c.args...)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w, r := linePipe(t)
			env := map[string]string{"HOME": t.TempDir(), agentconfig.EnvAuthtoken: goodToken}
			var errOut bytes.Buffer
			code := make(chan int, 1)
			go func() {
				code <- run(ctx, args, console{in: strings.NewReader(""), out: w, err: &errOut,
					env: func(k string) string { return env[k] }})
			}()
			lines := bufio.NewScanner(r)
			for lines.Scan() && !strings.Contains(lines.Text(), c.want) {
			}
			if !strings.Contains(lines.Text(), c.want) {
				t.Errorf("ended without a line with %q", c.want)
			}
			cancel()
			if got := <-code; got != 0 {
				t.Errorf("code %d, %s", got, errOut.String())
			}
		})
	}
}

// otherCA writes the certificate of an authority that has signed nothing here.
func otherCA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	must.Succeed(t, err)
	path := filepath.Join(t.TempDir(), "other.pem")
	must.Succeed(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return path
}

func TestHTTP_PrintsEndpointAndUnbindsOnInterrupt(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, r := linePipe(t)
	var errOut bytes.Buffer
	env := map[string]string{"HOME": t.TempDir(), agentconfig.EnvAuthtoken: goodToken}
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"tcp", "5432", "--url", "tcp://postgres.demo:5432", "--server", svc.url, "--ca-file",
			svc.caFile},
			console{in: strings.NewReader(""), out: w, err: &errOut, env: func(k string) string { return env[k] }})
	}()
	lines := bufio.NewScanner(r)
	var got []string
	for len(got) < 4 && lines.Scan() {
		got = append(got, lines.Text())
	}
	want := []string{"fairlead " + version.String(), "Endpoint    tcp://postgres.demo:5432 (ep-1)",
		"Forwarding  to tcp://localhost:5432", "Session     ts-1 with " + svc.url + ": online"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	cancel()
	if id := <-svc.unbound; id != "ep-1" {
		t.Errorf("goodbye to %q", id)
	}
	if lines.Scan(); !regexp.MustCompile(`^\d\d:\d\d:\d\d  stopped$`).MatchString(lines.Text()) {
		t.Errorf("last line %q", lines.Text())
	}
	if c := <-code; c != 0 || errOut.Len() > 0 {
		t.Errorf("code %d, %q", c, errOut.String())
	}
	if h := <-svc.hellos; h.Token != goodToken || !strings.HasPrefix(h.InstanceID, "in-") {
		t.Errorf("hello: token %v, instance %q", h.Token == goodToken, h.InstanceID)
	}
}

func TestHTTP_PoolingNeedsItsFlag(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, refusal(tunnel.CodeURLTaken, "it is shared by a pool; join it with --pooling-enabled"))
	for _, command := range [][]string{{"http", "8080", "--url", "http://a.b"},
		{"tcp", "5432", "--url", "tcp://a.b:5432"}} {
		for want, flags := range map[bool][]string{true: {"--pooling-enabled"}, false: {"--pooling-enabled=false"}} {
			args := append(append([]string{}, command...),
				append(flags, "--name", "east", "--server", svc.url, "--ca-file", svc.caFile)...)
			r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken}, "", args...)
			if r.code != exitURLTaken || !strings.HasSuffix(r.err, "join it with --pooling-enabled\n") {
				t.Errorf("got %+v", r)
			}
			if b := <-svc.binds; b.PoolingEnabled != want || b.Name != "east" {
				t.Errorf("%v: bind %+v", args, b)
			}
		}
		if r := fairlead(t, nil, "", command[0], "--help"); !strings.Contains(r.out,
			"Agents share one URL when all of them are started with --pooling-enabled") {
			t.Errorf("the help of %s does not tell of pools", command[0])
		}
	}
}

func TestHTTP_KeepsInstanceID(t *testing.T) {
	t.Parallel()
	svc := newService(t, refusal(tunnel.CodeStop, "enough"), nil)
	env := map[string]string{"HOME": t.TempDir(), agentconfig.EnvAuthtoken: goodToken}
	var ids []string
	for range 2 {
		if r := fairlead(t, env, "", "http", "8080", "--url", "http://a.b", "--server", svc.url, "--ca-file",
			svc.caFile); r.code != exitStopped {
			t.Fatalf("got %+v", r)
		}
		ids = append(ids, (<-svc.hellos).InstanceID)
	}
	if ids[0] != ids[1] {
		t.Errorf("%q, then %q", ids[0], ids[1])
	}
}

func TestHTTP_UsesProxyOfEnvironment(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer proxy.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errOut bytes.Buffer
	env := map[string]string{"HOME": t.TempDir(), agentconfig.EnvAuthtoken: goodToken, "HTTPS_PROXY": proxy.URL}
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"http", "8080", "--url", "http://a.b", "--server", "https://fairlead.test:8443"},
			console{in: strings.NewReader(""), out: &out, err: &errOut, env: func(k string) string { return env[k] }})
	}()
	if got := <-asked; got != "CONNECT fairlead.test:8443" {
		t.Errorf("the proxy was asked %q", got)
	}
	<-asked // the second attempt: the first one was reported
	cancel()
	if c := <-code; c != 0 || !strings.Contains(out.String(), `it answered "403 Forbidden"`) {
		t.Errorf("code %d, %q, %q", c, out.String(), errOut.String())
	}
	r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken, "HTTPS_PROXY": "ftp://u:hunter2@p"}, "",
		"http", "8080", "--url", "http://a.b", "--server", "https://fairlead.test:8443")
	if r.code != exitUsage || !strings.Contains(r.err, "HTTPS_PROXY") || strings.Contains(r.err, "hunter2") {
		t.Errorf("got %+v", r)
	}
}

func TestHTTP_DebugLogOmitsAuthtoken(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, refusal(tunnel.CodeURLTaken, "taken"))
	for _, format := range []string{"text", "json"} {
		r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken}, "",
			"http", "8080", "--url", "http://a.b", "--server", svc.url, "--ca-file", svc.caFile, "--log-level", "debug",
			"--log-format", format)
		if r.code != exitURLTaken || strings.Contains(r.out+r.err, goodToken) {
			t.Errorf("%s: %+v", format, r)
		}
		if format != "json" {
			continue
		}
		for line := range strings.Lines(r.out + r.err) {
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		}
	}
}

// asProcess makes a test binary behave as the command.
const asProcess = "FAIRLEAD_TEST_AS_PROCESS"

// startProcess runs `fairlead http` as a process of its own and returns when it is online.
func startProcess(t *testing.T, svc *service) (cmd *exec.Cmd, lines *bufio.Scanner, home string) {
	t.Helper()
	home = t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd = exec.CommandContext(ctx, os.Args[0], "http", "8080", "--url", "http://a.b", "--server", svc.url, "--ca-file",
		svc.caFile, "--log-format", "json")
	cmd.Env = []string{asProcess + "=1", "HOME=" + home, agentconfig.EnvAuthtoken + "=" + goodToken}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	lines = bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"event":"online"`) {
			return cmd, lines, home
		}
	}
	t.Fatalf("the process ended before it was online: %v", cmd.Wait())
	return nil, nil, ""
}

func TestProcess_SignalUnbindsAndExits0(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, nil)
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			cmd, lines, home := startProcess(t, svc)
			for range 2 { // as it comes when a wrapper passes on what the terminal has sent to both
				if err := cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Fatal(err)
				}
			}
			var last string
			for lines.Scan() {
				last = lines.Text()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("ended with %v, want exit code 0", err)
			}
			if !strings.Contains(last, `"event":"stopped","server_told":true`) {
				t.Errorf("last line %q", last)
			}
			if entries, _ := os.ReadDir(filepath.Join(home, ".local", "state", "fairlead")); len(entries) != 2 {
				t.Errorf("the state directory holds %v, want an id and its lock", entries)
			}
		})
	}
}

func TestProcess_SecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	svc := newService(t, nil, nil)
	svc.holdGoodbye.Store(true)
	defer close(svc.release)
	cmd, _, _ := startProcess(t, svc)
	must.Succeed(t, cmd.Process.Signal(os.Interrupt))
	<-svc.unbound // the goodbye is under way, and its answer does not come
	ended := make(chan struct{})
	go func() { // impatiently: those that come too soon are taken for the first one
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-tick.C:
				_ = cmd.Process.Signal(os.Interrupt)
			case <-ended:
				tick.Stop()
				return
			}
		}
	}()
	err := cmd.Wait()
	close(ended)
	if cmd.ProcessState.ExitCode() != 128+int(syscall.SIGINT) {
		t.Errorf("ended with %v, want exit code 130", err)
	}
}
