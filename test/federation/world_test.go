// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

const (
	release = "fairlead-operator"
	baseURL = "https://127.0.0.1:8443"
	node    = "node"
	podIP   = "10.1.0.5"
)

// config is an administrator's of the cluster that the tests share, apart by namespace.
var config *rest.Config

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	env, err := startCluster()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	config = env.Config
	code := m.Run()
	if err := env.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// world is a cluster, a service that trusts it, and the tokens that a kubelet would write.
type world struct {
	*testing.T
	clients   *kubernetes.Clientset
	kube      client.Client
	log       *logbuffer.Buffer
	service   *servicetest.Server
	tenant    *servicetest.Tenant
	cluster   *account.Cluster
	namespace string                   // of the operator
	target    string                   // of what is exported and projected
	tokens    string                   // folder of the token files, named like the roles
	next      *accounttest.TokenSigner // signs with nextKey
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, log: &logbuffer.Buffer{}, tokens: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the operator's log:\n%s", w.log)
		}
	})
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if w.kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if w.clients, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	w.namespace, w.target = w.newNamespace("fairlead-"), w.newNamespace("team-")
	w.service = servicetest.Start(t, func(o *service.Options) { o.BaseURL = baseURL })
	w.tenant = w.service.Tenant()
	for _, role := range account.SubjectRoles() {
		w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace,
			Name: accountOf(role)}})
	}
	w.trustCluster()
	return w
}

// accountOf returns the name of the chart's ServiceAccount for a role.
func accountOf(role account.SubjectRole) string {
	if role == account.RoleOperator {
		return release + "-manager"
	}
	return release + "-" + string(role)
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

// raw is `kubectl get --raw`.
func (w *world) raw(path string) []byte {
	w.Helper()
	b, err := w.clients.RESTClient().Get().AbsPath(path).DoRaw(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return b
}

// trustCluster makes the account trust the cluster's keys, and the ServiceAccounts of the chart.
func (w *world) trustCluster() {
	w.Helper()
	var discovery struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(w.raw("/.well-known/openid-configuration"), &discovery); err != nil {
		w.Fatal(err)
	}
	keys, err := account.ParseKeySet(w.raw("/openid/v1/jwks"))
	if err != nil || len(keys.Keys) != 2 {
		w.Fatalf("the API server publishes %d keys: %v", len(keys.Keys), err)
	}
	w.next = accounttest.SignerOf(nextKeyID, "ES256", nextKey)
	keys.Keys = slices.DeleteFunc(keys.Keys, func(k account.ClusterKey) bool { return k.KeyID == nextKeyID })
	var subjects []account.SubjectPatch
	for _, role := range account.SubjectRoles() {
		subjects = append(subjects, account.SubjectPatch{Namespace: w.namespace, ServiceAccount: accountOf(role),
			Role: role})
	}
	w.cluster, err = w.tenant.Store.CreateCluster(w.Context(), w.tenant.Caller(), account.ClusterPatch{
		Name: ptr.To("prod"), Issuer: &discovery.Issuer, JWKS: &keys, Subjects: &subjects})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) patchCluster(p account.ClusterPatch) {
	w.Helper()
	if _, err := w.tenant.Store.PatchCluster(w.Context(), w.tenant.Caller(), w.cluster.ID, p); err != nil {
		w.Fatal(err)
	}
}

func (w *world) audience() string { return account.TokenAudience(baseURL, w.tenant.Account) }

func (w *world) tokenFile(role account.SubjectRole) string {
	return filepath.Join(w.tokens, string(role))
}

// writeToken replaces a token file at once, as the kubelet does.
func (w *world) writeToken(role account.SubjectRole, token string) {
	w.Helper()
	next := w.tokenFile(role) + ".next"
	if err := os.WriteFile(next, []byte(token), 0o600); err != nil {
		w.Fatal(err)
	}
	if err := os.Rename(next, w.tokenFile(role)); err != nil {
		w.Fatal(err)
	}
}

// requestTokens writes a token of the API server for every role, for an hour as the chart asks.
func (w *world) requestTokens() {
	w.Helper()
	for _, role := range account.SubjectRoles() {
		w.writeToken(role, w.requestToken(role))
	}
}

func (w *world) requestToken(role account.SubjectRole) string {
	w.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{w.audience()}, ExpirationSeconds: ptr.To[int64](3600)}}
	answer, err := w.clients.CoreV1().ServiceAccounts(w.namespace).CreateToken(w.Context(), accountOf(role), request,
		metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return answer.Status.Token
}

// serviceAccountUID returns the UID of a role's ServiceAccount.
func (w *world) serviceAccountUID(role account.SubjectRole) string {
	w.Helper()
	var sa corev1.ServiceAccount
	key := client.ObjectKey{Namespace: w.namespace, Name: accountOf(role)}
	if err := w.kube.Get(w.Context(), key, &sa); err != nil {
		w.Fatal(err)
	}
	return string(sa.UID)
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

func (w *world) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func (w *world) ca() string { return filepath.Join(w.service.Options.DataDir, "ca.crt") }

func (w *world) apiURL() string { return "https://" + w.service.Addrs.Service.String() }

func (w *world) startManager() {
	w.Helper()
	anchor := "fairlead-operator-anchor"
	w.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "." + anchor}})
	w.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: anchor}})
	o := operator.ManagerOptions{
		API: options.API{APIURL: w.apiURL(),
			Credentials: options.Credentials{ServiceAccountTokenFile: w.tokenFile(account.RoleOperator),
				CAFile: w.ca()}, VersionHeader: "Service-Version"},
		Installation:           installation.Installation{Namespace: w.namespace, Release: release},
		KubernetesOperatorSpec: v1alpha1.KubernetesOperatorSpec{BindingEnabled: true},
		ProjectionOptions: operator.ProjectionOptions{RemovalDelay: 30 * time.Second, PortRange: "10000-32767",
			ClusterDomain: "cluster.local", Projection: v1alpha1.ProjectionExternalName,
			TakeoverDelay: time.Minute},
		Roles: installation.Roles{ClusterRole: w.namespace + "." + anchor, Role: anchor},
		ForwarderPods: installation.ForwarderPods{ForwarderName: "fairlead-forwarder",
			ForwarderInstance: release}, LeaderElect: true,
		Substitutes: operator.Substitutes{Metrics: prometheus.NewRegistry()},
		Process:     options.Process{Kubernetes: config, Logger: w.logger()},
	}
	w.run(func(ctx context.Context) error { return operator.RunManager(ctx, o) })
}

func (w *world) startForwarder() {
	w.Helper()
	o := operator.ForwarderOptions{
		Session: options.Session{EdgeAddress: w.service.Addrs.Service.String(), PodName: "forwarder-1"},
		Credentials: options.Credentials{ServiceAccountTokenFile: w.tokenFile(account.RoleForwarder),
			CAFile: w.ca()},
		Installation: installation.Installation{Namespace: w.namespace, Release: release},
		PodIPs:       "10.1.0.9", Process: options.Process{Kubernetes: config, Logger: w.logger()},
	}
	w.run(func(ctx context.Context) error { return operator.RunForwarder(ctx, o) })
}

// startExporter exports a Service that answers with what is written to it.
func (w *world) startExporter() {
	w.Helper()
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.target, Name: "echo",
		Labels: map[string]string{"app": "echo"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "x", Image: "x"}}}}
	w.create(pod)
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: podIP, PodIPs: []corev1.PodIP{{IP: podIP}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if err := w.kube.Status().Update(w.Context(), pod); err != nil {
		w.Fatal(err)
	}
	w.create(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.target, Name: "echo"},
		Spec: corev1.ServiceSpec{Selector: pod.Labels, Ports: []corev1.ServicePort{{Port: 5432}}}})
	w.create(&v1alpha1.AgentEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.target, Name: "echo"},
		Spec: v1alpha1.AgentEndpointSpec{URL: "tcp://echo." + w.target + ":5432",
			Upstream: v1alpha1.Upstream{URL: "tcp://echo:5432"}}})
	echo := servicetest.ServeTCP(w.T, servicetest.Echo)
	o := exporter.Options{
		API: options.API{APIURL: w.apiURL(),
			Credentials: options.Credentials{ServiceAccountTokenFile: w.tokenFile(account.RoleExporter),
				CAFile: w.ca()}, VersionHeader: "Service-Version"},
		Session: options.Session{EdgeAddress: w.service.Addrs.Service.String(), PodName: "exporter-1",
			DrainTimeout: time.Second},
		Installation: installation.Installation{Namespace: w.namespace, Release: release},
		Deployment:   "exporter", ClusterDomain: "cluster.local",
		Process: options.Process{Kubernetes: config, Logger: w.logger()}, Metrics: prometheus.NewRegistry(),
		DialUpstream: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, echo)
		},
	}
	w.run(func(ctx context.Context) error { return exporter.Run(ctx, o) })
}

// dial connects with the exported Service as a pod does, through the forwarder.
func (w *world) dial() (net.Conn, error) {
	var b v1alpha1.BoundEndpoint
	key := client.ObjectKey{Namespace: w.namespace, Name: "echo." + w.target}
	if err := w.kube.Get(w.Context(), key, &b); err != nil {
		return nil, err
	}
	if len(b.Spec.Ports) == 0 {
		return nil, fmt.Errorf("%s has no port", b.Name)
	}
	conn, err := new(net.Dialer).DialContext(w.Context(), "tcp",
		fmt.Sprintf("127.0.0.1:%d", b.Spec.Ports[0].TargetPort))
	if err != nil {
		return nil, err
	}
	if err := echoes(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// echoes sends a byte and waits for it to come back.
func echoes(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "x"); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

// waitConn waits until a pod's connection is answered, and returns it.
func (w *world) waitConn() (conn net.Conn) {
	w.Helper()
	wait.Until(w, "the exported Service answering through the forwarder", func() bool {
		var err error
		conn, err = w.dial()
		return err == nil
	})
	w.Cleanup(func() { _ = conn.Close() })
	return conn
}

// condition returns a condition of the KubernetesOperator as "Status Reason" and message.
func (w *world) condition(typ string) (statusAndReason, message string) {
	var o v1alpha1.KubernetesOperator
	key := client.ObjectKey{Namespace: w.namespace, Name: release}
	if err := w.kube.Get(w.Context(), key, &o); err != nil {
		return "", ""
	}
	c := meta.FindStatusCondition(o.Status.Conditions, typ)
	if c == nil {
		return "", ""
	}
	return string(c.Status) + " " + c.Reason, c.Message
}

// apiStatus calls the account's API with a token.
func (w *world) apiStatus(token string) int {
	w.Helper()
	request := w.service.NewAPIRequest(http.MethodGet, "/endpoints", nil)
	request.Header.Set("Authorization", "Bearer "+token)
	res, err := w.service.NewAPITransport().RoundTrip(request)
	if err != nil {
		w.Fatal(err)
	}
	_ = res.Body.Close()
	return res.StatusCode
}
