// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/apiclient"
	"github.com/fairlead-dev/fairlead/internal/trust"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// domain is the parent of the hosts of all public endpoints.
const domain = "example.com"

// ownAddress in a flag stands for the server's own address of API and tunnels.
const ownAddress = "OWN:ADDRESS"

// rig is a service: processes on one PostgreSQL behind a balancer.
type rig struct {
	t           *testing.T
	dir         string
	databaseURL string
	balancer    *balancer
	replicas    []*replica
	flags       []string // of every server, behind the rig's own

	apiKey, authtoken string
	fingerprint       string         // of the service's authority
	roots             *x509.CertPool // of the public listeners

	operatorID string // of operator; "" before
	clients    int    // addresses given out
	clientLog  slog.Level
}

// replica is one server of the rig. It keeps its addresses over restarts.
type replica struct {
	*process // the one that runs, or was the last

	r               *rig
	index           int
	program         string // path of the fairlead-server
	addr            string // of API and tunnels
	health, metrics string
	http, https     string // of the public listeners
	relay           string // of the other replicas; "" for a server that is alone
	dir             string
	api             *apiclient.Client // of this replica, past the balancer
}

// startRig starts so many servers on a schema of the shared PostgreSQL, with further flags.
func startRig(t *testing.T, servers int, flags ...string) *rig {
	t.Helper()
	return startRigOn(t, postgres.Server(t).URL(t), servers, flags...)
}

// startRigOn starts so many servers on a database. The first is ready before the others start.
func startRigOn(t *testing.T, databaseURL string, servers int, flags ...string) *rig {
	t.Helper()
	r := newRig(t, databaseURL, servers, flags...)
	r.start()
	return r
}

// newRig is startRigOn without starting the servers. databaseURL = "": one server on SQLite.
func newRig(t *testing.T, databaseURL string, servers int, flags ...string) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, dir: dir, databaseURL: databaseURL, balancer: startBalancer(t), flags: flags,
		clientLog: slog.LevelDebug, apiKey: "flk_" + randomText(), authtoken: "flt_" + randomText(),
		roots: servicetest.IssueCertificate(t, dir, "*."+domain)}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	for name, text := range map[string]string{"secret.key": hex.EncodeToString(key), "api-key": r.apiKey,
		"authtoken": r.authtoken} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for i := range servers {
		r.replicas = append(r.replicas, r.newReplica(i, servers > 1))
	}
	return r
}

// start starts the servers, the first before the others, and waits until all are ready.
func (r *rig) start() {
	r.t.Helper()
	for i, s := range r.replicas {
		s.start()
		if i == 0 {
			s.waitReady()
			s.readFingerprint()
			r.run("domain", "grant", "default", "*."+domain)
		}
	}
	for i, s := range r.replicas {
		s.waitReady()
		r.balancer.waitUp(i, true)
		s.api = r.newAPI("https://" + s.addr)
	}
}

func randomText() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b)
	return base64.RawURLEncoding.EncodeToString(b)
}

// lastPort is the last port that freeAddr has tried. Ports of outgoing connections are higher.
var lastPort atomic.Int32

// freeAddr returns an address with a free port, which it returns once.
func freeAddr(t testing.TB, host string) string {
	t.Helper()
	lastPort.CompareAndSwap(0, 10_000+int32(os.Getpid()%1000)*20)
	for range 1000 {
		addr := net.JoinHostPort(host, strconv.Itoa(int(lastPort.Add(1))))
		if l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

func (r *rig) newReplica(i int, relay bool) *replica {
	r.t.Helper()
	host := fmt.Sprintf("127.0.0.%d", i%3+1)
	s := &replica{r: r, index: i, program: program, addr: freeAddr(r.t, host), health: freeAddr(r.t, host),
		metrics: freeAddr(r.t, host), http: freeAddr(r.t, host), https: freeAddr(r.t, host),
		dir: filepath.Join(r.dir, fmt.Sprintf("data-%d", i))}
	if relay {
		s.relay = freeAddr(r.t, host)
	}
	r.balancer.add("http://"+s.health+"/readyz", [fronts]string{s.addr, s.http, s.https})
	return s
}

// args returns the server's command line.
func (s *replica) args() []string {
	args := []string{"serve", "--addr", s.addr, "--base-url", "https://" + s.r.balancer.addrs[frontService],
		"--data-dir", s.dir, "--secret-key-file", filepath.Join(s.r.dir, "secret.key"), "--health-addr", s.health,
		"--metrics-addr", s.metrics, "--public-http-addr", s.http, "--public-https-addr", s.https,
		"--public-tls-cert", filepath.Join(s.r.dir, "tls.crt"), "--public-tls-key", filepath.Join(s.r.dir, "tls.key"),
		"--public-max-connections-per-client", "10000", "--login-allow", "127.0.0.0/8", "--log-format", "json",
		"--drain-timeout", "5s"}
	if s.r.databaseURL != "" {
		args = append(args, "--database-url", s.r.databaseURL)
	}
	if s.relay != "" {
		args = append(args, "--relay-address", s.relay, "--shutdown-delay", "500ms")
	}
	for _, flag := range s.r.flags {
		args = append(args, strings.ReplaceAll(flag, ownAddress, s.addr))
	}
	return args
}

func (r *rig) env() []string {
	return []string{"FAIRLEAD_BOOTSTRAP_API_KEY_FILE=" + filepath.Join(r.dir, "api-key"),
		"FAIRLEAD_BOOTSTRAP_AUTHTOKEN_FILE=" + filepath.Join(r.dir, "authtoken")}
}

// start starts the server and does not wait for it.
func (s *replica) start() {
	s.r.t.Helper()
	s.process = startProgram(s.r.t, s.program, fmt.Sprintf("server %d", s.index), s.r.env(), s.args()...)
}

// isReady asks for the server's readiness.
func (s *replica) isReady() bool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	res, err := client.Get("http://" + s.health + "/readyz")
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// waitReady ends the test when the server ends.
func (s *replica) waitReady() {
	s.r.t.Helper()
	wait.Until(s.r.t, "readiness of "+s.name, func() bool {
		if !s.isRunning() {
			s.r.t.Fatalf("%s has ended with code %d", s.name, s.exitCode())
		}
		return s.isReady()
	})
}

// restart ends the server in an orderly way, starts it again and waits until the balancer uses it.
func (s *replica) restart() {
	s.r.t.Helper()
	if code := s.terminate(); code != 0 {
		s.r.t.Errorf("%s has ended with code %d", s.name, code)
	}
	s.r.balancer.waitUp(s.index, false)
	s.start()
	s.waitReady()
	s.r.balancer.waitUp(s.index, true)
}

func (s *replica) readFingerprint() {
	s.r.t.Helper()
	logged, found := regexp.MustCompile(`"ca_sha256":"([0-9a-f]{64})"`), []string(nil)
	// a server is ready before it logs that it is up
	wait.Until(s.r.t, "fingerprint in the log of "+s.name, func() bool {
		found = logged.FindStringSubmatch(s.log.String())
		return found != nil
	})
	s.r.fingerprint = found[1]
}

// run runs one of the server's commands to its end and returns what it printed.
func (r *rig) run(args ...string) string {
	r.t.Helper()
	cmd := exec.Command(r.replicas[0].program, append(args, "--data-dir", r.replicas[0].dir)...)
	if r.databaseURL != "" {
		cmd.Args = append(cmd.Args, "--database-url", r.databaseURL)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("fairlead-server %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// newAPI returns a client of the API at a URL.
func (r *rig) newAPI(url string) *apiclient.Client {
	r.t.Helper()
	config, err := trust.Options{CASHA256: r.fingerprint}.ClientConfig()
	must.Succeed(r.t, err)
	c, err := apiclient.New(apiclient.Options{BaseURL: url, TLS: config,
		APIKey: func() (string, error) { return r.apiKey, nil }})
	must.Succeed(r.t, err)
	r.t.Cleanup(c.CloseIdleConnections)
	return c
}
