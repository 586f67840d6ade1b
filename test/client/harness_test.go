// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ngrok/ngrok-api-go/v7"
)

// baseURL is how clients know the service; their transport dials where it really listens.
const baseURL = "https://fairlead.test:8443"

// patience is how long a test waits for what has to come.
const patience = 2 * time.Minute

// server is a running fairlead-server. All tests share it, each with an account of its own.
var server *service

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fairlead-client-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		server, err = start(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting fairlead-server:", err)
		return 1
	}
	defer server.stop()
	code := m.Run()
	for line := range strings.Lines(server.log.String()) {
		if code != 0 && strings.Contains(line, `"level":"ERROR"`) {
			fmt.Fprint(os.Stderr, line)
		}
	}
	return code
}

// service is what is known of the running server.
type service struct {
	dir    string // the programs; data below
	cmd    *exec.Cmd
	log    output
	addr   string // of the API
	public string // of the public edge
	ca     string // a file
	pool   *x509.CertPool
}

// start builds the programs and starts the service.
func start(dir string) (*service, error) {
	// as make build does, whose cache it shares
	build := exec.Command("go", "build", "-trimpath", "-o", dir, "./cmd/fairlead-server", "./cmd/fairlead")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the programs: %w\n%s", err, out)
	}
	s := &service{dir: dir, ca: filepath.Join(dir, "ca.crt"), pool: x509.NewCertPool()}
	s.cmd = exec.Command(filepath.Join(dir, "fairlead-server"), "--data-dir", filepath.Join(dir, "data"), "--addr",
		"127.0.0.1:0", "--metrics-addr", "",
		"--base-url", baseURL, "--tls-san", "127.0.0.1", "--public-http-addr", "127.0.0.1:0", "--version-header",
		"Ngrok-Version", "--log-format", "json")
	s.cmd.Env = environment(dir)
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := s.log.wait("fairlead-server is up", 1)
	if err == nil {
		var up struct {
			Addr   string `json:"addr"`
			Public string `json:"public_http_addr"`
		}
		err = json.Unmarshal([]byte(line), &up)
		s.addr, s.public = up.Addr, up.Public
	}
	if err == nil {
		err = s.readCA()
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *service) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(patience, func() { _ = s.cmd.Process.Kill() })
	defer kill.Stop()
	_ = s.cmd.Wait()
}

func (s *service) readCA() error {
	pem, err := s.admin(context.Background(), "ca")
	if err != nil {
		return err
	}
	if !s.pool.AppendCertsFromPEM([]byte(pem)) {
		return errors.New("no certificate in the answer of fairlead-server ca")
	}
	return os.WriteFile(s.ca, []byte(pem), 0o600)
}

// admin runs a command of the server's program beside the running one.
func (s *service) admin(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.cmd.Path, append(args, "--data-dir", filepath.Join(s.dir, "data"))...)
	cmd.Env = environment(s.dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("fairlead-server %s: %w\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// environment is that of a program whose home is the directory: nothing of who runs the tests.
func environment(home string) []string {
	return []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.Getenv("TMPDIR")}
}

// output is what a program prints, line by line.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed at the next write; nil while no goroutine waits
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed != nil {
		close(o.changed)
		o.changed = nil
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// wait returns the nth whole line that contains the text.
func (o *output) wait(text string, nth int) (string, error) {
	timeout := time.After(patience)
	for {
		line, changed := o.find(text, nth)
		if changed == nil {
			return line, nil
		}
		select {
		case <-changed:
		case <-timeout:
			return "", fmt.Errorf("%q was not printed %d times within %s, but:\n%s", text, nth, patience, o)
		}
	}
}

// find returns the nth whole line that contains the text, or what is closed when there is more to
// look at.
func (o *output) find(text string, nth int) (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range strings.Lines(o.text.String()) {
		if strings.HasSuffix(line, "\n") && strings.Contains(line, text) {
			if nth--; nth == 0 {
				return line, nil
			}
		}
	}
	if o.changed == nil {
		o.changed = make(chan struct{})
	}
	return "", o.changed
}

// tenant is an account of the server and how the client reaches it.
type tenant struct {
	*testing.T
	ctx    context.Context
	name   string
	config *ngrok.ClientConfig
}

// tenants counts them, for their names.
var tenants atomic.Int32

// newTenant makes an account with an API key of its own, so that tests see nothing of each other,
// and no limit of another key.
func newTenant(t *testing.T) *tenant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	a := &tenant{T: t, ctx: ctx, name: fmt.Sprint("tenant-", tenants.Add(1))}
	if _, err := server.admin(ctx, "account", "create", a.name); err != nil {
		t.Fatal(err)
	}
	key, err := server.admin(ctx, "api-key", "create", "--account", a.name)
	if err != nil {
		t.Fatal(err)
	}
	a.config = a.configWith(key)
	return a
}

// configWith is the client's configuration with an API key: it trusts the service's authority and
// nothing else.
func (a *tenant) configWith(key string) *ngrok.ClientConfig {
	var d net.Dialer
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: server.pool, MinVersion: tls.VersionTLS13},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return d.DialContext(ctx, network, server.addr)
		},
	}
	a.Cleanup(transport.CloseIdleConnections)
	return ngrok.NewClientConfig(key, ngrok.WithBaseURL(baseURL),
		ngrok.WithHTTPClient(&http.Client{Transport: transport}))
}

// raw is the answer to a GET as it came.
func (a *tenant) raw(path string) map[string]any {
	a.Helper()
	at, err := url.Parse(path)
	if err != nil {
		a.Fatal(err)
	}
	var fields map[string]any
	if err := ngrok.NewBaseClient(a.config).Do(a.ctx, http.MethodGet, at, nil, &fields); err != nil {
		a.Fatalf("GET %s: %v", path, err)
	}
	return fields
}

// agent is a running agent.
type agent struct {
	output
	ended chan struct{} // closed when the program has ended
	code  int           // its exit code, then
}

// agent starts the agent's program with the authtoken. It runs until the test ends.
func (a *tenant) agent(authtoken string, args ...string) *agent {
	a.Helper()
	cmd := exec.Command(filepath.Join(server.dir, "fairlead"), append(args, "--log-format", "json")...)
	cmd.Env = append(environment(a.TempDir()), "FAIRLEAD_SERVER_URL=https://"+server.addr,
		"FAIRLEAD_CA_FILE="+server.ca,
		"FAIRLEAD_AUTHTOKEN="+authtoken)
	started := &agent{ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &started.output, &started.output
	if err := cmd.Start(); err != nil {
		a.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // its code says it all
		started.code = cmd.ProcessState.ExitCode()
		close(started.ended)
	}()
	a.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-started.ended
	})
	return started
}

// call asks the public edge and returns the answer's status and text.
func (a *tenant) call(host string) string {
	a.Helper()
	r, err := http.NewRequestWithContext(a.ctx, http.MethodGet, "http://"+server.public+"/", nil)
	if err != nil {
		a.Fatal(err)
	}
	r.Host = host
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		a.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.Fatal(err)
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, text)
}
