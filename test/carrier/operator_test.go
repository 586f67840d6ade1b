// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package carrier_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/inputs"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/operatortest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

// TestCarrier_CarriesOperator checks that manager, forwarder and exporter, as processes, reach the
// service through a balancer that ends TLS: a call of a projected Service is answered by an exported one.
func TestCarrier_CarriesOperator(t *testing.T) {
	t.Parallel()
	program := buildOperator(t)
	env, err := testenv.New(testenv.WithControllers("endpointslice"))
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, env.Stop()) })
	s := servicetest.Start(t)
	w, balancer := operatortest.New(t, env.Config, s), startBalancer(t, s)
	exportService(w)
	anchor := w.Namespace + ".anchor"
	w.Kube.MustCreate(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: anchor}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "anchor"}})
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	edge := balancer.Listener.Addr().String()
	start := func(role string, args ...string) *logbuffer.Buffer {
		return startOperator(t, program, string(env.Kubeconfig), append([]string{role, "--namespace", w.Namespace,
			"--release", operatortest.Release, "--metrics-addr", "", "--health-addr", "", "--ca-file",
			operatortest.WriteFile(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
				Bytes: balancer.Certificate().Raw})))}, args...))
	}
	start("manager", "--api-url", "https://"+edge, "--api-key-file", w.Secret(s.APIKey).SecretFile,
		"--cluster-domain", "cluster.local", "--anchor-cluster-role", anchor, "--anchor-role", "anchor",
		"--forwarder-instance", operatortest.Release, "--port-range", port+"-"+port)
	sessions := map[string]*logbuffer.Buffer{
		"forwarder": start("forwarder", "--edge-address", edge, "--authtoken-file",
			w.Secret(*s.CreateAuthtoken("connect:*").Token).SecretFile),
		"exporter": start("exporter", "--edge-address", edge, "--api-url", "https://"+edge, "--api-key-file",
			w.ExporterKey().SecretFile, "--deployment", "exporter", "--cluster-domain", "cluster.local"),
	}
	servicetest.Eventually(t, "answer of the exported Service", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address, nil)
		must.Succeed(t, err)
		r.Host = "web." + w.Target
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		return err == nil && string(body) == "exported"
	})
	for role, log := range sessions {
		if !strings.Contains(log.String(), "carried by WebSockets") {
			t.Errorf("the %s does not say that WebSockets carry its session", role)
		}
	}
}

// exportService makes a Service of one pod, which is a server at this machine's own address: the
// exporter dials no loopback address.
func exportService(w *operatortest.World) {
	w.Helper()
	addresses, err := net.InterfaceAddrs()
	must.Succeed(w, err)
	for _, a := range addresses {
		ip, _, _ := net.ParseCIDR(a.String())
		if ip.To4() == nil || !ip.IsGlobalUnicast() {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
		must.Succeed(w, err)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(rw, "exported")
		}))
		_ = server.Listener.Close()
		server.Listener = l
		server.Start()
		w.Cleanup(server.Close)
		port := l.Addr().(*net.TCPAddr).Port
		w.Kube.CreatePod(w.Target, "web", ip.String())
		w.Kube.CreateService(w.Target, "web", "web", int32(port))
		w.Kube.MustCreate(&v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.Target, Name: "web"},
			Spec: v1alpha1.AgentEndpointSpec{URL: "http://web." + w.Target,
				Upstream: v1alpha1.Upstream{URL: fmt.Sprintf("http://web:%d", port)}}})
		return
	}
	w.Skip("this machine has loopback addresses only")
}

// buildOperator returns the path of the operator's program.
func buildOperator(t *testing.T) string {
	t.Helper()
	inputs.Record(t, "../../cmd", "../../internal", "../../api", "../../go.mod", "../../go.sum")
	path := filepath.Join(t.TempDir(), "fairlead-operator")
	build := exec.Command("go", "build", "-trimpath", "-o", path, "../../cmd/fairlead-operator")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the operator: %v: %s", err, out)
	}
	return path
}

// startOperator runs a role of the operator until the test ends, and returns what it logs.
func startOperator(t *testing.T, program, kubeconfig string, args []string) *logbuffer.Buffer {
	t.Helper()
	log := &logbuffer.Buffer{}
	c := exec.Command(program, args...)
	c.Env = []string{"KUBECONFIG=" + operatortest.WriteFile(t, "kubeconfig", kubeconfig), "HOME=" + t.TempDir(),
		"POD_NAME=" + args[0] + "-1", "POD_IPS=127.0.0.1"}
	c.Stdout, c.Stderr = log, log
	must.Succeed(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); err != nil || t.Failed() {
			t.Errorf("the %s: %v\n%s", args[0], err, log)
		}
	})
	return log
}
