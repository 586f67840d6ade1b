// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/closedport"
	"github.com/fairlead-dev/fairlead/test/support/freeaddr"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

const (
	release = "fairlead"
	node    = "node"
	podIP   = "10.1.0.5"
	// The ports of the two exported Services' pod: one answers, the other refuses.
	answers, refuses = 8080, 8081
)

// world is a cluster with an operator, and the service in two replicas.
type world struct {
	*testing.T
	config    *rest.Config
	kube      client.Client
	log       *logbuffer.Buffer
	service   *servicetest.Server // the first replica
	namespace string              // of the operator
	target    string              // of what is projected and exported
	ca        string              // file with the service's authority
	upstream  string              // address of an HTTP server
	metrics   []string            // addresses of /metrics
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, config: testenv.Start(t, testenv.WithControllers("endpointslice")), log: &logbuffer.Buffer{}}
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("the operator's log:\n%s", w.log)
		}
	})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.kube, err = client.New(w.config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	w.namespace, w.target = w.newNamespace("fairlead-"), w.newNamespace("team-")
	w.upstream = servicetest.ServeHTTP(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fails" {
			rw.WriteHeader(http.StatusInternalServerError)
		}
		_, _ = io.WriteString(rw, "hello")
	})
	w.startService()
	w.startManager()
	w.startForwarder()
	w.startExporter()
	return w
}

func (w *world) newNamespace(prefix string) string {
	w.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	w.create(ns)
	return ns.Name
}

func (w *world) create(o client.Object) {
	w.Helper()
	if err := w.kube.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

// startService starts two replicas. Before the second, an authtoken that expires has been used.
func (w *world) startService() {
	w.Helper()
	database, key := databases.Server(w.T).URL(w.T), w.file("secret", strings.Repeat("5a", 32))
	start := func() *servicetest.Server {
		return servicetest.Start(w.T, servicetest.AllowLoopback, func(o *service.Options) {
			o.DatabaseURL, o.SecretKeyFile, o.BaseURL = database, key, "https://127.0.0.1:8443"
			o.Replica = service.ReplicaOptions{RelayAddress: "127.0.0.1:0", Lease: service.DefaultLease}
			o.Public.HTTPAddr, o.AccessLog = "127.0.0.1:0", filepath.Join(w.TempDir(), "access.log")
		})
	}
	w.service = start()
	var made account.APIKey
	w.service.CreateObject("/api_keys", map[string]any{"scopes": []string{"admin"},
		"expires_at": time.Now().Add(30 * 24 * time.Hour).UTC().Format(time.RFC3339)}, &made)
	admin := w.service.APIKey
	w.service.APIKey = *made.Token
	w.service.RequireStatus(http.MethodGet, "/api_keys/"+made.ID, nil, http.StatusOK)
	tenant := w.service.Tenant()
	wait.Until(w, "the key's use being recorded", func() bool {
		now, err := tenant.Store.APIKey(w.Context(), tenant.Account, made.ID)
		return err == nil && now.LastUsedAt != nil
	})
	w.service.APIKey = admin
	second := start()
	w.metrics = append(w.metrics, w.service.Addrs.Metrics.String(), second.Addrs.Metrics.String())
	w.ca = w.file("ca.crt", authorityOf(w.T, w.service.Addrs.Service.String()))
}

// authorityOf returns the PEM text of the authority that a TLS server presents.
func authorityOf(t *testing.T, address string) string {
	t.Helper()
	//nolint:gosec // the test only reads the certificate
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	chain := conn.(*tls.Conn).ConnectionState().PeerCertificates
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: chain[len(chain)-1].Raw}))
}

// file writes a file and returns its path.
func (w *world) file(name, content string) string {
	w.Helper()
	path := filepath.Join(w.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		w.Fatal(err)
	}
	return path
}

// newMetrics returns an address for /metrics of a program.
func (w *world) newMetrics() string {
	w.Helper()
	address, err := freeaddr.Find()
	if err != nil {
		w.Fatal(err)
	}
	w.metrics = append(w.metrics, address)
	return address
}

// run runs a program until the end of the test.
func (w *world) run(program func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- program(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
}

func (w *world) logger() *slog.Logger { return slog.New(slog.NewTextHandler(w.log, nil)) }

func (w *world) apiURL() string { return "https://" + w.service.Addrs.Service.String() }

func (w *world) startManager() {
	w.Helper()
	anchor := "fairlead-operator-anchor"
	w.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "." + anchor}})
	w.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: anchor}})
	o := operator.ManagerOptions{
		API: options.API{APIURL: w.apiURL(),
			Credentials:   options.Credentials{SecretFile: w.file("api-key", w.service.APIKey), CAFile: w.ca},
			VersionHeader: "Service-Version"},
		Installation:           installation.Installation{Namespace: w.namespace, Release: release},
		KubernetesOperatorSpec: v1alpha1.KubernetesOperatorSpec{BindingEnabled: true},
		ProjectionOptions: operator.ProjectionOptions{RemovalDelay: 30 * time.Second, PortRange: "10000-32767",
			ClusterDomain: "cluster.local", Projection: v1alpha1.ProjectionExternalName,
			TakeoverDelay: time.Minute},
		Roles: installation.Roles{ClusterRole: w.namespace + "." + anchor, Role: anchor},
		ForwarderPods: installation.ForwarderPods{ForwarderName: "fairlead-forwarder",
			ForwarderInstance: release}, LeaderElect: true,
		Process: options.Process{MetricsAddr: w.newMetrics(),
			Kubernetes: w.config, Logger: w.logger()},
	}
	w.run(func(ctx context.Context) error { return operator.RunManager(ctx, o) })
}

func (w *world) startForwarder() {
	w.Helper()
	o := operator.ForwarderOptions{
		Session:      options.Session{EdgeAddress: w.service.Addrs.Service.String(), PodName: "forwarder-1"},
		Credentials:  options.Credentials{SecretFile: w.file("authtoken", w.service.Authtoken), CAFile: w.ca},
		Installation: installation.Installation{Namespace: w.namespace, Release: release}, PodIPs: "10.1.0.9",
		Process: options.Process{MetricsAddr: w.newMetrics(), Kubernetes: w.config, Logger: w.logger()},
	}
	w.run(func(ctx context.Context) error { return operator.RunForwarder(ctx, o) })
}

// startExporter starts an exporter and makes two Services of one pod.
func (w *world) startExporter() {
	w.Helper()
	var key account.APIKey
	w.service.CreateObject("/api_keys", map[string]any{"scopes": []string{"exporter"}}, &key)
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.target, Name: "api",
		Labels: map[string]string{"app": "api"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "x", Image: "x"}}}}
	w.create(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: podIP, PodIPs: []corev1.PodIP{{IP: podIP}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if err := w.kube.Status().Update(w.Context(), pod); err != nil {
		w.Fatal(err)
	}
	closed := closedport.Reserve(w.T)
	for name, port := range map[string]int32{"answers": answers, "refuses": refuses} {
		w.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.target, Name: name},
			Spec: corev1.ServiceSpec{Selector: pod.Labels, Ports: []corev1.ServicePort{{Port: port}}}})
		w.create(&v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.target, Name: name},
			Spec: v1alpha1.AgentEndpointSpec{URL: "http://exported-" + name + "." + w.target,
				Upstream: v1alpha1.Upstream{URL: fmt.Sprintf("http://%s:%d", name, port)}}})
	}
	o := exporter.Options{
		API: options.API{APIURL: w.apiURL(),
			Credentials:   options.Credentials{SecretFile: w.file("key", *key.Token), CAFile: w.ca},
			VersionHeader: "Service-Version"},
		Session: options.Session{EdgeAddress: w.service.Addrs.Service.String(), PodName: "exporter-1",
			DrainTimeout: time.Second},
		Installation: installation.Installation{Namespace: w.namespace, Release: release},
		Deployment:   "exporter", ClusterDomain: "cluster.local", Services: true,
		ClusterID: "one",
		Process: options.Process{MetricsAddr: w.newMetrics(), Kubernetes: w.config,
			Logger: w.logger()},
		DialUpstream: func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasSuffix(address, fmt.Sprint(refuses)) {
				return new(net.Dialer).DialContext(ctx, network, closed)
			}
			return new(net.Dialer).DialContext(ctx, network, w.upstream)
		},
	}
	w.run(func(ctx context.Context) error { return exporter.Run(ctx, o) })
}

// callEverything has traffic of every kind pass: exported and agents' endpoints through the
// forwarder, and cloud endpoints with backends.
func (w *world) callEverything() {
	w.Helper()
	echo := servicetest.ServeTCP(w.T, servicetest.Echo)
	w.service.StartAgent(tunnel.Bind{URL: "http://agent." + w.target, Binding: account.BindingKubernetes,
		UpstreamURL: "http://" + w.upstream, UpstreamProtocol: "http1"}, w.upstream)
	w.service.StartAgent(tunnel.Bind{URL: "tcp://db." + w.target + ":5432", Binding: account.BindingKubernetes,
		UpstreamURL: "tcp://" + echo}, echo)
	refused := closedport.Reserve(w.T)
	w.service.StartAgent(tunnel.Bind{URL: "tcp://refused." + w.target + ":5432", Binding: account.BindingKubernetes,
		UpstreamURL: "tcp://" + refused}, refused)
	tenant := w.service.Tenant()
	canned, closed := tenant.Answer(http.StatusOK, "hello"), tenant.Static(closedport.Reserve(w.T))
	tenant.Cloud(account.BindingKubernetes, "http://cloud."+w.target, "", tenant.Failover(closed, canned))
	tenant.Cloud(account.BindingKubernetes, "http://broken."+w.target, "", closed)
	for name, want := range map[string]string{"agent": "hello", "cloud": "hello", "broken": "",
		"exported-answers": "hello",
		"exported-refuses": ""} {
		w.waitAnswer(name, "/", want)
	}
	w.waitAnswer("agent", "/fails", "hello")
	for name, answers := range map[string]bool{"db": true, "refused": false} {
		wait.Until(w, fmt.Sprintf("%s echoing: %v", name, answers), func() bool { return w.echoes(name) == answers })
	}
}

// echoes reports whether a tcp endpoint echoes a byte through the forwarder.
func (w *world) echoes(name string) bool {
	w.Helper()
	conn, err := new(net.Dialer).DialContext(w.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", w.port(name)))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "x")
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err == nil
}

// port returns where the forwarder listens for a hostname of the target namespace.
func (w *world) port(name string) (port int32) {
	w.Helper()
	wait.Until(w, "a BoundEndpoint of "+name, func() bool {
		var b v1alpha1.BoundEndpoint
		key := client.ObjectKey{Namespace: w.namespace, Name: name + "." + w.target}
		if err := w.kube.Get(w.Context(), key, &b); err != nil || len(b.Spec.Ports) == 0 {
			return false
		}
		port = b.Spec.Ports[0].TargetPort
		return true
	})
	return port
}

// waitAnswer calls an http endpoint through the forwarder until it answers with the body; with "",
// until there is any answer.
func (w *world) waitAnswer(name, path, want string) {
	w.Helper()
	url := fmt.Sprintf("http://127.0.0.1:%d%s", w.port(name), path)
	wait.Until(w, name+" answering "+want, func() bool {
		req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, url, nil)
		if err != nil {
			w.Fatal(err)
		}
		req.Host = name + "." + w.target
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
