// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/operatortest"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

const (
	podIP = "10.1.0.5"
	// The ports of the two exported Services' pod: one answers, the other refuses.
	answers, refuses = 8080, 8081
)

// world is a cluster with an operator, and the service in two replicas.
type world struct {
	*operatortest.World
	upstream string   // address of an HTTP server
	metrics  []string // addresses of /metrics
}

func newWorld(t *testing.T) *world {
	t.Helper()
	first, second := startReplicas(t)
	w := &world{World: operatortest.New(t, testenv.Start(t, testenv.WithControllers("endpointslice")), first),
		metrics: []string{first.Addrs.Metrics.String(), second.Addrs.Metrics.String()}}
	w.CAFile = operatortest.WriteFile(t, "ca.crt", authorityOf(t, first.Addrs.Service.String()))
	w.upstream = servicetest.ServeHTTP(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fails" {
			rw.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(rw, "hello")
	})
	w.StartManager(w.Secret(w.Service.APIKey),
		func(o *operator.ManagerOptions) { o.MetricsAddr = w.newMetrics() })
	w.StartForwarder(w.Secret(*w.Service.CreateAuthtoken("connect:*").Token),
		func(o *operator.ForwarderOptions) { o.MetricsAddr = w.newMetrics() })
	w.startExporter()
	return w
}

// startReplicas starts two replicas. Before the second, an authtoken that expires has been used.
func startReplicas(t *testing.T) (first, second *servicetest.Server) {
	t.Helper()
	database, key := databases.Server(t).URL(t), operatortest.WriteFile(t, "secret", strings.Repeat("5a", 32))
	start := func() *servicetest.Server {
		return servicetest.Start(t, servicetest.AllowLoopback, func(o *service.Options) {
			o.DatabaseURL, o.SecretKeyFile, o.BaseURL = database, key, "https://127.0.0.1:8443"
			o.Replica = service.ReplicaOptions{RelayAddress: "127.0.0.1:0", Lease: service.DefaultLease}
			o.Public.HTTPAddr, o.AccessLog = "127.0.0.1:0", filepath.Join(t.TempDir(), "access.log")
		})
	}
	first = start()
	var made account.APIKey
	first.CreateObject("/api_keys", map[string]any{"scopes": []string{"admin"},
		"expires_at": time.Now().Add(30 * 24 * time.Hour).UTC().Format(time.RFC3339)}, &made)
	admin := first.APIKey
	first.APIKey = *made.Token
	first.RequireStatus(http.MethodGet, "/api_keys/"+made.ID, nil, http.StatusOK)
	tenant := first.Tenant()
	wait.Until(t, "the key's use being recorded", func() bool {
		now, err := tenant.Store.APIKey(t.Context(), tenant.Account, made.ID)
		return err == nil && now.LastUsedAt != nil
	})
	first.APIKey = admin
	return first, start()
}

// authorityOf returns the PEM text of the authority that a TLS server presents.
func authorityOf(t *testing.T, address string) string {
	t.Helper()
	//nolint:gosec // the test only reads the certificate
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", address)
	must.Succeed(t, err)
	defer func() { _ = conn.Close() }()
	chain := conn.(*tls.Conn).ConnectionState().PeerCertificates
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: chain[len(chain)-1].Raw}))
}

// newMetrics returns an address for /metrics of a program.
func (w *world) newMetrics() string {
	w.Helper()
	address, err := freeaddr.Find()
	must.Succeed(w, err)
	w.metrics = append(w.metrics, address)
	return address
}

// startExporter starts an exporter and makes two Services of one pod.
func (w *world) startExporter() {
	w.Helper()
	w.Kube.CreatePod(w.Target, "api", podIP)
	closed := closedport.Reserve(w.T)
	for name, port := range map[string]int32{"answers": answers, "refuses": refuses} {
		w.Kube.CreateService(w.Target, name, "api", port)
		w.Kube.MustCreate(&v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.Target, Name: name},
			Spec: v1alpha1.AgentEndpointSpec{URL: "http://exported-" + name + "." + w.Target,
				Upstream: v1alpha1.Upstream{URL: fmt.Sprintf("http://%s:%d", name, port)}}})
	}
	w.StartExporter(w.ExporterKey(), func(o *exporter.Options) {
		o.MetricsAddr, o.Services, o.ClusterID, o.Metrics = w.newMetrics(), true, "one", nil
		o.DialUpstream = func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasSuffix(address, fmt.Sprint(refuses)) {
				return new(net.Dialer).DialContext(ctx, network, closed)
			}
			return new(net.Dialer).DialContext(ctx, network, w.upstream)
		}
	})
}

// callEverything has traffic of every kind pass: exported and agents' endpoints through the
// forwarder, and cloud endpoints with backends.
func (w *world) callEverything() {
	w.Helper()
	echo := servicetest.ServeTCP(w.T, servicetest.Echo)
	w.Service.StartAgent(tunnel.Bind{URL: "http://agent." + w.Target, Binding: account.BindingKubernetes,
		UpstreamURL: "http://" + w.upstream, UpstreamProtocol: "http1"}, w.upstream)
	w.Service.StartAgent(tunnel.Bind{URL: "tcp://db." + w.Target + ":5432", Binding: account.BindingKubernetes,
		UpstreamURL: "tcp://" + echo}, echo)
	refused := closedport.Reserve(w.T)
	w.Service.StartAgent(tunnel.Bind{URL: "tcp://refused." + w.Target + ":5432", Binding: account.BindingKubernetes,
		UpstreamURL: "tcp://" + refused}, refused)
	tenant := w.Service.Tenant()
	canned, closed := tenant.Answer(http.StatusOK, "hello"), tenant.Static(closedport.Reserve(w.T))
	tenant.Cloud(account.BindingKubernetes, "http://cloud."+w.Target, "", tenant.Failover(closed, canned))
	tenant.Cloud(account.BindingKubernetes, "http://broken."+w.Target, "", closed)
	tenant.Cloud(account.BindingKubernetes, "tcp://static."+w.Target+":5432", "", tenant.Static(echo))
	for name, want := range map[string]string{"agent": "hello", "cloud": "hello", "broken": "",
		"exported-answers": "hello",
		"exported-refuses": ""} {
		w.waitAnswer(name, "/", want)
	}
	w.waitAnswer("agent", "/fails", "hello")
	for name, answers := range map[string]bool{"db": true, "static": true, "refused": false} {
		wait.Until(w, fmt.Sprintf("%s echoing: %v", name, answers), func() bool { return w.echoes(name) == answers })
	}
}

// echoes reports whether a tcp endpoint echoes a byte through the forwarder.
func (w *world) echoes(name string) bool {
	w.Helper()
	conn, err := new(net.Dialer).DialContext(w.Context(), "tcp", w.address(name))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "x")
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err == nil
}

// address returns where the forwarder listens for a hostname of the target namespace.
func (w *world) address(name string) (address string) {
	w.Helper()
	wait.Until(w, "a BoundEndpoint of "+name, func() bool {
		var err error
		address, err = w.ForwarderAddress(name)
		return err == nil
	})
	return address
}

// waitAnswer calls an http endpoint through the forwarder until it answers with the body; with "",
// until there is any answer.
func (w *world) waitAnswer(name, path, want string) {
	w.Helper()
	url := "http://" + w.address(name) + path
	wait.Until(w, name+" answering "+want, func() bool {
		req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, url, nil)
		must.Succeed(w, err)
		req.Host = name + "." + w.Target
		body, err := get(req)
		return err == nil && (want == "" || body == want)
	})
}

// get sends a request over a connection of its own and returns the answer's body.
func get(req *http.Request) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}
