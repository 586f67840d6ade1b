// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/testenv"
)

var (
	config *rest.Config
	kube   client.Client
)

func TestOperator(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "operator")
}

var _ = BeforeSuite(func() {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(GinkgoWriter, nil)))
	config = testenv.Start(GinkgoTB(), testenv.WithControllers("namespace", "garbagecollector"))
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	var err error
	kube, err = client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
})

// release is a namespace with what the chart puts there, and a target namespace.
type release struct {
	namespace, target string
	account           *fakeAccount
	kubernetes        *rest.Config // the manager's, with the rules of config/rbac and no more
}

func newRelease(ctx context.Context) *release {
	GinkgoHelper()
	r := &release{account: newFakeAccount()}
	r.namespace, r.target = newNamespace(ctx, "op-"), newNamespace(ctx, "team-")
	Expect(kube.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: r.anchor()}})).To(Succeed())
	Expect(kube.Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: r.anchor()}})).To(Succeed())
	r.kubernetes = r.restricted(ctx)
	return r
}

// restricted returns a configuration that may do what config/rbac/manager.yaml says and nothing else.
func (r *release) restricted(ctx context.Context) *rest.Config {
	GinkgoHelper()
	user := r.user()
	raw, err := os.ReadFile("../../config/rbac/manager.yaml")
	Expect(err).NotTo(HaveOccurred())
	for _, doc := range strings.Split(string(raw), "\n---\n") {
		doc = strings.ReplaceAll(doc, "- fairlead-operator-anchor", "- "+r.anchor())
		doc = strings.ReplaceAll(doc, "- fairlead-operator-manager", "- "+user)
		var role rbacv1.ClusterRole // has all fields of a Role that matter
		Expect(yaml.Unmarshal([]byte(doc), &role)).To(Succeed())
		subjects := []rbacv1.Subject{{Kind: "User", Name: user, APIGroup: rbacv1.GroupName}}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: user}
		if role.Kind == "ClusterRole" {
			Expect(kube.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: role.Rules})).To(Succeed())
			Expect(kube.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: ref, Subjects: subjects})).To(Succeed())
			continue
		}
		here := metav1.ObjectMeta{Namespace: r.namespace, Name: user}
		Expect(kube.Create(ctx, &rbacv1.Role{ObjectMeta: here, Rules: role.Rules})).To(Succeed())
		Expect(kube.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: here, RoleRef: ref, Subjects: subjects})).To(Succeed())
	}
	c := rest.CopyConfig(config)
	c.Impersonate = rest.ImpersonationConfig{UserName: user}
	return c
}

func (r *release) anchor() string { return r.namespace + "-anchor" }

// user is the name of the manager's user, ClusterRole and ClusterRoleBinding.
func (r *release) user() string { return "manager-of-" + r.namespace }

func newNamespace(ctx context.Context, prefix string) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	Expect(kube.Create(ctx, ns)).To(Succeed())
	return ns.Name
}

func (r *release) options() operator.ManagerOptions {
	return operator.ManagerOptions{
		Namespace: r.namespace, Release: "fairlead", Description: "a test", BindingEnabled: true, RemovalDelay: 30 * time.Second, PortRange: "10000-32767",
		ClusterDomain: "cluster.local", AnchorClusterRole: r.anchor(), AnchorRole: r.anchor(), ClusterRole: r.user(), ForwarderName: "fairlead-forwarder", ForwarderInstance: "fairlead",
		LeaderElect: true, Kubernetes: r.kubernetes, Logger: slog.New(slog.NewTextHandler(GinkgoWriter, nil)),
		Account: r.account, Registrar: r.account, Forwarders: listening{}, Metrics: prometheus.NewRegistry(),
	}
}

// listening are two forwarders without a fault.
type listening struct{}

func (listening) Start(ctx context.Context) error { <-ctx.Done(); return nil }
func (listening) Edge() (bool, string)            { return true, "" }
func (listening) Await(string)                    {}
func (listening) Forget(string)                   {}
func (listening) Hostname(string, []int) forwarderstatus.Report {
	return forwarderstatus.Report{Known: true, Forwarders: 2, Listening: 2, Sessions: 2, Settled: true}
}

// run runs a manager until the returned function is called, which waits for its end.
func run(o operator.ManagerOptions) (stop func()) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- operator.RunManager(ctx, o) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		var err error
		Eventually(done).Should(Receive(&err))
		Expect(err).NotTo(HaveOccurred())
	}
	DeferCleanup(stop)
	return stop
}

func (r *release) bep(ctx context.Context, hostname string) *v1alpha1.BoundEndpoint {
	GinkgoHelper()
	b := &v1alpha1.BoundEndpoint{}
	Expect(kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: hostname}, b)).To(Succeed())
	return b
}

// service returns a Service, nil where there is none.
func service(ctx context.Context, namespace, name string) func() (*corev1.Service, error) {
	return func() (*corev1.Service, error) {
		s := &corev1.Service{}
		err := kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return s, err
	}
}

// writes counts the writes that pass through it, by "METHOD resource".
type writes struct {
	mu    sync.Mutex
	count map[string]int
	last  int
}

func (w *writes) wrap(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if req.Method != http.MethodGet {
				w.mu.Lock()
				w.count[req.Method+" "+resource(req.URL.Path)]++
				w.mu.Unlock()
			}
			return next.RoundTrip(req)
		})
	})
	return c
}

// quiet says whether nothing was written since the last time it was asked. Asked in steps of a polling interval it is patient enough for what
// is under way.
func (w *writes) quiet() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	total := 0
	for what, n := range w.count {
		if what != "PUT leases" {
			total += n
		}
	}
	quiet := total == w.last
	w.last = total
	return quiet
}

// take returns what was counted since the last call, without the renewals of the lease.
func (w *writes) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.count
	w.count = map[string]int{}
	delete(taken, "PUT leases")
	return taken
}

// resource of /api/v1/namespaces/x/services/y or /apis/g/v/namespaces/x/rs/y/status.
func resource(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, part := range parts {
		if part == "namespaces" && len(parts) > i+2 {
			if len(parts) > i+4 {
				return parts[i+2] + "/" + parts[i+4]
			}
			return parts[i+2]
		}
	}
	return path
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// endpoint makes an online agent endpoint.
func endpoint(id, url string) account.Endpoint {
	return account.Endpoint{
		ID: id, URL: url, Type: account.TypeAgent, Bindings: []string{account.BindingKubernetes}, Status: account.StatusOnline, ProjectionID: id,
		CreatedAt: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
	}
}

func hostnameIn(namespace, name string) string { return fmt.Sprintf("%s.%s", name, namespace) }
