// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent/agentconfig"
	fairleadserver "github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/sealtest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// runningCommand is `fairlead` while it runs with a service.
type runningCommand struct {
	t        *testing.T
	out, err *logbuffer.Buffer
	stop     context.CancelFunc // Ctrl-C
	code     chan int
}

// runWith runs a command line with the service and the authtoken until the test ends.
func runWith(t *testing.T, r *servicetest.Server, token string, args ...string) *runningCommand {
	t.Helper()
	return runAt(t, t.TempDir(), r, token, args...)
}

// runAt is runWith in a home directory.
func runAt(t *testing.T, home string, r *servicetest.Server, token string, args ...string) *runningCommand {
	t.Helper()
	c := &runningCommand{t: t, out: &logbuffer.Buffer{}, err: &logbuffer.Buffer{}, code: make(chan int, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	env := map[string]string{"HOME": home, agentconfig.EnvAuthtoken: token,
		agentconfig.EnvServerURL: "https://" + r.Addrs.Service.String(), agentconfig.EnvCASHA256: r.Addrs.CAFingerprint}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.code <- run(ctx, args, console{in: strings.NewReader(""), out: c.out, err: c.err,
			env: func(k string) string { return env[k] }})
	}()
	c.stop = cancel
	t.Cleanup(func() {
		cancel()
		<-done
		if t.Failed() {
			t.Logf("%v printed:\n%s%s", args, c.out, c.err)
		}
	})
	return c
}

// printed waits for a text in the output.
func (c *runningCommand) printed(text string) *runningCommand {
	c.t.Helper()
	wait.Until(c.t, "the line "+text, func() bool { return strings.Contains(c.out.String(), text) })
	return c
}

// address returns where the command listens for the URL.
func (c *runningCommand) address(url string) string {
	c.t.Helper()
	c.printed(" -> " + url + "\n")
	before, _, _ := strings.Cut(c.out.String(), " -> "+url+"\n")
	return before[strings.LastIndex(before, "://")+len("://"):]
}

// get requests the page at an address, and returns status, code of the service and body.
func get(t *testing.T, address string) (status int, code account.Code, body string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(servicetest.Context(t), http.MethodGet, "http://"+address+"/", nil)
	must.Succeed(t, err)
	res, err := transport.RoundTrip(req)
	must.Succeed(t, err)
	defer func() { _ = res.Body.Close() }()
	return res.StatusCode, account.Code(res.Header.Get(account.CodeHeader)), servicetest.ReadAll(t, res.Body)
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(servicetest.Context(t), "tcp", address)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = c.Close() })
	must.Succeed(t, c.SetDeadline(time.Now().Add(servicetest.MaxWait)))
	return c.(*net.TCPConn)
}

// wantReset connects to an address that resets connections, perhaps before this one is established.
func wantReset(t *testing.T, address string) {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(servicetest.Context(t), "tcp", address)
	if err == nil {
		_, err = io.ReadAll(c)
		_ = c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v", err)
	}
}

// TestConnect_CallsEndpoints calls an http and a tcp endpoint of running agents, and ends with
// Ctrl-C while a connection is open.
func TestConnect_CallsEndpoints(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "access.log")
	r := servicetest.Start(t, func(o *fairleadserver.Options) { o.AccessLog = log })
	web := servicetest.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	echo := servicetest.ServeTCP(t, servicetest.Echo)
	runWith(t, r, r.Authtoken, "http", web, "--url", "http://api.demo").printed("online")
	runWith(t, r, r.Authtoken, "tcp", echo, "--url", "tcp://db.demo:5432").printed("online")
	free, err := freeaddr.Find()
	must.Succeed(t, err)
	token := r.CreateAuthtoken("connect:http://*.demo", "connect:tcp://db.demo:5432")
	c := runWith(t, r, *token.Token, "connect", "http://api.demo", "tcp://DB.demo:5432", "--port",
		"tcp://db.demo:5432="+port(t, free)).printed("connected")

	if status, _, body := get(t, c.address("http://api.demo")); status != http.StatusOK || body != "hello" {
		t.Errorf("%d %s", status, body)
	}
	if c.address("tcp://db.demo:5432") != free {
		t.Errorf("%s is not where --port says", c.address("tcp://db.demo:5432"))
	}
	conn := dial(t, free)
	_, err = io.WriteString(conn, "half-closed")
	must.Succeed(t, err)
	must.Succeed(t, conn.CloseWrite())
	if got := servicetest.ReadAll(t, conn); got != "half-closed" {
		t.Errorf("%q came back", got)
	}

	open := dial(t, free)
	_, err = io.WriteString(open, "x")
	must.Succeed(t, err)
	_, err = io.ReadFull(open, make([]byte, 1))
	must.Succeed(t, err)
	c.stop()
	c.printed("stopping: ")
	must.Succeed(t, open.CloseWrite())
	if rest, err := io.ReadAll(open); len(rest) > 0 || err != nil {
		t.Errorf("the open connection ended with %q, %v", rest, err)
	}
	if code := wait.Receive(t, "the command's end", c.code); code != 0 || c.err.String() != "" {
		t.Errorf("exit code %d, %s", code, c.err)
	}

	wait.Until(t, "three lines of the access log that name the authtoken", func() bool {
		text, err := os.ReadFile(log)
		return err == nil && strings.Count(string(text), `"client_ip":"127.0.0.1","credential":"`+token.ID+`"`) == 3
	})
}

// TestConnect_Seals calls a sealed endpoint and, with the same trust, one whose agent does not seal and
// one without trust.
func TestConnect_Seals(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	accountID, dir := r.Tenant().Account, t.TempDir()
	owner := sealtest.NewOwner(t, accountID)
	sealtest.Write(t, dir, owner.Server(account.EndpointURL{Scheme: "tcp", Host: "db.demo", Port: 5432}))
	roots := filepath.Join(dir, "roots.pem")
	root := &pem.Block{Type: "CERTIFICATE", Bytes: owner.Root.Raw}
	must.Succeed(t, os.WriteFile(roots, pem.EncodeToMemory(root), 0o600))
	echo := servicetest.ServeTCP(t, servicetest.Echo)
	runWith(t, r, r.Authtoken, "tcp", echo, "--url", "tcp://db.demo:5432", "--sealed", dir).printed("online")
	runWith(t, r, r.Authtoken, "tcp", echo, "--url", "tcp://plain.demo:5432").printed("online")
	token := *r.CreateAuthtoken("connect:*").Token
	c := runWith(t, r, token, "connect", "tcp://db.demo:5432", "tcp://plain.demo:5432", "--seal-authority", roots,
		"--seal-account", accountID).printed("connected")

	conn := dial(t, c.address("tcp://db.demo:5432"))
	_, err := io.WriteString(conn, "half-closed")
	must.Succeed(t, err)
	must.Succeed(t, conn.CloseWrite())
	if got := servicetest.ReadAll(t, conn); got != "half-closed" {
		t.Errorf("%q came back", got)
	}
	wantReset(t, c.address("tcp://plain.demo:5432"))
	c.printed("call failed: ").printed("its agent does not seal")
	without := runWith(t, r, token, "connect", "tcp://db.demo:5432").printed("connected")
	wantReset(t, without.address("tcp://db.demo:5432"))
	without.printed("call failed: The endpoint tcp://db.demo:5432 is sealed")
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	must.Succeed(t, err)
	return port
}

// TestConnect_AnswersWhatIsNotReached calls what another account has, what is offline, and anything
// while the service restarts.
func TestConnect_AnswersWhatIsNotReached(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	web := servicetest.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
	other := r.CreateAccount()
	for _, url := range []string{"http://theirs.demo", "tcp://theirs.demo:1"} {
		a := r.StartAgentWith(other.Authtoken, tunnel.Bind{URL: url}, servicetest.RelayTo(web))
		servicetest.Receive(t, a.Bound, "bind")
	}
	offline := r.StartAgent(tunnel.Bind{URL: "http://offline.demo"}, web)
	servicetest.Receive(t, offline.Bound, "bind")
	offline.Stop()
	runWith(t, r, r.Authtoken, "http", web, "--url", "http://api.demo").printed("online")
	token := r.CreateAuthtoken("connect:*")
	c := runWith(t, r, *token.Token, "connect", "http://theirs.demo", "tcp://theirs.demo:1", "http://offline.demo",
		"http://api.demo").printed("connected")

	for url, want := range map[string]account.Code{"http://theirs.demo": account.CodeEndpointUnknown,
		"http://offline.demo": account.CodeEndpointOffline} {
		if status, code, body := get(t, c.address(url)); code != want || status != want.Status() {
			t.Errorf("%s: %d %s %s", url, status, code, body)
		}
	}
	wantReset(t, c.address("tcp://theirs.demo:1"))
	c.printed("call failed: The account of this authtoken has no endpoint tcp://theirs.demo:1 ")

	must.Succeed(t, r.StopAndWait())
	if status, code, _ := get(t, c.address("http://api.demo")); code != account.CodeNoEdge || status != 503 {
		t.Errorf("without the service: %d %s", status, code)
	}
	servicetest.Start(t, func(o *fairleadserver.Options) {
		o.DataDir, o.Addr = r.Options.DataDir, r.Addrs.Service.String()
	})
	wait.Until(t, "the endpoint's answer after the restart", func() bool {
		status, _, body := get(t, c.address("http://api.demo"))
		return status == http.StatusOK && body == "hello"
	})
	if strings.Count(c.out.String(), "connected") < 2 {
		t.Errorf("the new session is not printed:\n%s", c.out)
	}
}

func TestConnect_EndsWithoutRule(t *testing.T) {
	t.Parallel()
	r := servicetest.Start(t)
	for name, acl := range map[string][]string{"agent's": {"bind:*"}, "operator's": {"connect:op-*"},
		"another URL's": {"connect:http://*.other"}} {
		c := runWith(t, r, *r.CreateAuthtoken(acl...).Token, "connect", "http://api.demo")
		if code := wait.Receive(t, name, c.code); code != exitCredentials ||
			!strings.Contains(c.err.String(), "the authtoken may not call http://api.demo: ") ||
			!strings.Contains(c.err.String(), "`fairlead-server authtoken create --connect http://api.demo`") {
			t.Errorf("%s authtoken: exit code %d, %s", name, code, c.err)
		}
	}

	token := r.CreateAuthtoken("connect:http://api.demo", "bind:*")
	live := runWith(t, r, *token.Token, "connect", "http://api.demo").printed("connected")
	r.RequireStatus(http.MethodPatch, "/credentials/"+token.ID, map[string]any{"acl": []string{"bind:*"}}, 200)
	if code := wait.Receive(t, "the end", live.code); code != exitCredentials {
		t.Errorf("without its rule: exit code %d, %s", code, live.err)
	}
}

// TestConnect_OldServer: servers that know no forwarder without an operator refuse the hello.
func TestConnect_OldServer(t *testing.T) {
	t.Parallel()
	svc := newService(t,
		&tunnel.Error{Code: tunnel.CodeInvalid, Errors: []tunnel.FieldError{{Field: "operator_id"}}}, nil)
	r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken, agentconfig.EnvServerURL: svc.url,
		agentconfig.EnvCAFile: svc.caFile}, "", "connect", "http://api.demo")
	if r.code != exitStopped || !strings.Contains(r.err, "does not know `fairlead connect`: update the server") {
		t.Errorf("%+v", r)
	}
	if h := <-svc.hellos; h.Role != tunnel.RoleForwarder || strings.Join(h.URLs, " ") != "http://api.demo" {
		t.Errorf("hello %+v", h)
	}
}

func TestConnect_PortInUse(t *testing.T) {
	t.Parallel()
	taken := port(t, servicetest.ServeTCP(t, servicetest.Echo))
	r := fairlead(t, map[string]string{agentconfig.EnvAuthtoken: goodToken, agentconfig.EnvServerURL: "https://s"}, "",
		"connect", "http://api.demo", "--port", taken)
	if r.code != exitOther || !strings.Contains(r.err, "choose another port with --port") {
		t.Errorf("%+v", r)
	}
}
