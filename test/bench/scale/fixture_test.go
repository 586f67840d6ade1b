// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/service/apiserver"
	"github.com/fairlead-dev/fairlead/internal/service/httpkit"
	"github.com/fairlead-dev/fairlead/internal/service/store"
	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

const (
	operatorNamespace = "fairlead"
	targetNamespace   = "bench-team" // no top-level domain
	anchor            = "fairlead-anchor"
	release           = "fairlead-operator"
)

// controlPlane is a control plane with the two namespaces and the chart's anchors.
type controlPlane struct {
	b    *testing.B
	env  *testenv.Env
	kube *testenv.Kube
}

func newControlPlane(b *testing.B) *controlPlane {
	b.Helper()
	env, err := testenv.New(testenv.WithServiceRange("10.0.0.0/16"),
		testenv.WithControllers("endpointslice", "garbagecollector", "namespace"))
	must.Succeed(b, err)
	b.Cleanup(func() { must.Succeed(b, env.Stop()) })
	env.Config.QPS, env.Config.Burst = -1, 0
	w := &controlPlane{b: b, env: env, kube: testenv.NewKube(b, env.Config)}
	w.kube.MustCreate(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: targetNamespace}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: anchor}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: anchor}},
	)
	return w
}

// written returns the API server's count of writes by "VERB resource[/subresource]" of the kinds
// that the operator writes.
func (w *controlPlane) written() map[string]int {
	w.b.Helper()
	httpClient, err := clientFor(w.env.Config)
	must.Succeed(w.b, err)
	resp, err := httpClient.Get(strings.TrimSuffix(w.env.Config.Host, "/") + "/metrics")
	must.Succeed(w.b, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(w.b, err)
	if resp.StatusCode != http.StatusOK {
		w.b.Fatalf("the API server's metrics: %s", resp.Status)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(body)) {
		m := requestTotal.FindStringSubmatch(line)
		if m == nil || m[3] == "GET" || m[3] == "LIST" || m[3] == "WATCH" {
			continue
		}
		n, err := strconv.ParseFloat(m[4], 64)
		must.Succeed(w.b, err)
		resource := strings.TrimSuffix(m[1]+"/"+m[2], "/")
		switch m[1] {
		case "boundendpoints", "services", "kubernetesoperators", "events", "clusterroles", "roles":
			counts[m[3]+" "+resource] += int(n)
		}
	}
	return counts
}

var requestTotal = regexp.MustCompile(
	`^apiserver_request_total\{.*resource="([^"]*)".*subresource="([^"]*)",verb="([^"]*)".*\} (\S+)`)

// difference returns what was written since before was taken.
func difference(before, now map[string]int) (total int, which map[string]int) {
	which = map[string]int{}
	for what, n := range now {
		if d := n - before[what]; d > 0 {
			which[what] = d
			total += d
		}
	}
	return total, which
}

// service is the account's API on a store of its own, and one agent session that binds what the
// benchmark asks for.
type service struct {
	b               *testing.B
	store           *store.Store
	server          *httptest.Server
	requests        atomic.Int64
	account, token  string
	session         string
	keyFile, caFile string
	hold            map[string]string // URL -> endpoint id
}

func newService(b *testing.B) *service {
	b.Helper()
	ctx := context.WithoutCancel(b.Context())
	dir := b.TempDir()
	s := &service{b: b, keyFile: filepath.Join(dir, "key"), caFile: filepath.Join(dir, "ca"), hold: map[string]string{}}
	var err error
	s.store, err = store.Open(ctx, store.Options{DataDir: filepath.Join(dir, "data"),
		Limits: store.Limits{MaxEndpoints: 1_000_000}})
	must.Succeed(b, err)
	b.Cleanup(func() { must.Succeed(b, s.store.Close()) })
	must.Succeed(b, s.store.BeginServerTerm(ctx))
	owner, err := s.store.CreateAccount(ctx, "bench")
	must.Succeed(b, err)
	s.account = owner.ID
	token, _, err := s.store.IssueAuthtoken(ctx, owner.ID, "", nil)
	must.Succeed(b, err)
	s.token = token.ID
	_, key, err := s.store.IssueAPIKey(ctx, owner.ID, "", []account.Scope{account.ScopeOperator}, nil)
	must.Succeed(b, err)
	must.Succeed(b, os.WriteFile(s.keyFile, []byte(key), 0o600))
	s.serve()
	s.session = account.NewID(account.PrefixTunnelSession, time.Now())
	must.Succeed(b, s.store.StartSession(ctx,
		account.TunnelSession{ID: s.session, AccountID: s.account, Credential: account.Ref{ID: s.token},
			IP: "127.0.0.1", AgentVersion: "1.0.0", OS: "linux", Region: "bench", Transport: "tls"}))
	return s
}

func (s *service) serve() {
	api := apiserver.New(apiserver.Options{Store: s.store, SharedOptions: httpkit.SharedOptions{
		BaseURL: "https://127.0.0.1", Logger: slog.New(slog.DiscardHandler),
		MatchSelectors: func([]string) (func(*account.Endpoint) bool, error) {
			return func(*account.Endpoint) bool { return true }, nil
		}}})
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		api.ServeHTTP(w, r)
	}))
	s.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.server.StartTLS()
	s.b.Cleanup(func() {
		s.server.CloseClientConnections()
		s.server.Close()
	})
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	must.Succeed(s.b, os.WriteFile(s.caFile, certificate, 0o600))
}

// url is the URL of the i-th endpoint.
func url(i int) string { return fmt.Sprintf("http://svc-%05d.%s", i, targetNamespace) }

// bind makes the endpoint of the URL and returns its id.
func (s *service) bind(raw string) string {
	s.b.Helper()
	u, err := account.ParseEndpointURL(raw)
	must.Succeed(s.b, err)
	e := account.NewEndpoint(account.BindingKubernetes, u)
	e.AccountID, e.EndpointSettings = s.account, account.EndpointSettings{UpstreamURL: "http://localhost:8080",
		UpstreamProtocol: "http1", HostMode: account.HostPassthrough}
	result, err := s.store.Bind(s.b.Context(),
		account.BindRequest{Endpoint: e, CredentialID: s.token, SessionID: s.session})
	must.Succeed(s.b, err)
	s.hold[raw] = result.Endpoint.ID
	return result.Endpoint.ID
}

func (s *service) unbind(raw string) {
	s.b.Helper()
	must.Succeed(s.b, s.store.Unbind(s.b.Context(), s.account, s.hold[raw], s.session))
	delete(s.hold, raw)
}

// process is the running manager.
type process struct {
	b       *testing.B
	cmd     *exec.Cmd
	log     *bytes.Buffer
	metrics string
}

// startManager runs `fairlead-operator manager` in the world, for the account of the service.
func startManager(b *testing.B, w *controlPlane, s *service, program string) *process {
	b.Helper()
	kubeconfig := filepath.Join(b.TempDir(), "kubeconfig")
	must.Succeed(b, os.WriteFile(kubeconfig, w.env.Kubeconfig, 0o600))
	metrics, err := freeaddr.Find()
	must.Succeed(b, err)
	p := &process{b: b, log: &bytes.Buffer{}, metrics: metrics}
	p.cmd = exec.CommandContext(context.WithoutCancel(b.Context()), program, "manager", "--api-url", s.server.URL,
		"--api-key-file", s.keyFile, "--ca-file", s.caFile,
		"--namespace", operatorNamespace, "--release", release, "--removal-delay", "1s", "--cluster-domain",
		"cluster.local",
		"--anchor-cluster-role", anchor, "--anchor-role", anchor, "--forwarder-instance", release, "--metrics-addr",
		p.metrics, "--health-addr", "", "--leader-elect")
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	must.Succeed(b, p.cmd.Start())
	b.Cleanup(p.stop)
	return p
}

func (p *process) stop() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	err := p.cmd.Wait()
	if err != nil || p.b.Failed() {
		p.b.Logf("the manager ended with %v; its log ends with:\n%s", err, p.log.Bytes()[max(0, p.log.Len()-4000):])
	}
}

// memory returns the resident set now and at its peak, in MiB.
func (p *process) memory() (now, peak float64) {
	p.b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	must.Succeed(p.b, err)
	read := func(field string) float64 {
		m := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(status)
		kb, err := strconv.ParseFloat(string(m[1]), 64)
		must.Succeed(p.b, err)
		return kb / 1024
	}
	return read("VmRSS"), read("VmHWM")
}

// queued returns the sum of the depths of the manager's work queues.
func (p *process) queued() int {
	p.b.Helper()
	resp, err := http.Get("http://" + p.metrics + "/metrics")
	must.Succeed(p.b, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	must.Succeed(p.b, err)
	sum := 0.0
	for _, m := range regexp.MustCompile(`(?m)^workqueue_depth\{.*\} (\S+)$`).FindAllSubmatch(body, -1) {
		depth, err := strconv.ParseFloat(string(m[1]), 64)
		must.Succeed(p.b, err)
		sum += depth
	}
	return int(sum)
}
