// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/test/support/fakeaccount"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
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
	config = testenv.Start(GinkgoTB(), testenv.WithControllers("namespace", "garbagecollector"),
		testenv.WithServiceRange("10.0.0.0/16"))
	kube = testenv.NewKube(GinkgoTB(), config)
	SetDefaultEventuallyTimeout(20 * time.Second)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
})

// release is a namespace with what the chart puts there, and two target namespaces.
type release struct {
	namespace, target, second string
	account                   *fakeaccount.Account
	kubernetes                *rest.Config // the manager's, with the chart's rights and no more
}

const (
	// clusterWide, listedNamespaces, importing and exporting are what the chart renders: with rights
	// in all namespaces, in listed ones only, to ServiceImports, and with exporters.
	clusterWide      = "minimal"
	listedNamespaces = "namespaces"
	importing        = "clusterset"
	exporting        = "exporting"
	anchor           = "fairlead-operator-anchor"
)

func newRelease(ctx context.Context) *release { return newReleaseOf(ctx, clusterWide) }

func newReleaseOf(ctx context.Context, rendered string) *release {
	GinkgoHelper()
	r := &release{account: fakeaccount.New()}
	r.namespace, r.target, r.second = newNamespace(ctx, "op-"), newNamespace(ctx, "team-"), newNamespace(ctx, "team-")
	for _, o := range r.rights(rendered) {
		Expect(kube.Create(ctx, o)).To(Succeed())
	}
	r.kubernetes = rest.CopyConfig(config)
	r.kubernetes.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + r.namespace +
		":fairlead-operator-manager"}
	r.createPolicies(ctx, rendered, func(name string) bool { return !strings.Contains(name, "-slices-") })
	return r
}

// rights are the anchors, Roles and bindings of the manager as the chart renders them, moved to the
// release's namespaces.
func (r *release) rights(rendered string) []client.Object {
	GinkgoHelper()
	raw, err := os.ReadFile("../../test/chart/testdata/" + rendered + ".out.yaml")
	Expect(err).NotTo(HaveOccurred())
	text := strings.NewReplacer(
		`"fairlead"`, `"`+r.namespace+`"`,
		"fairlead.fairlead-operator-", r.namespace+".fairlead-operator-", `"team-a"`, r.target, `"team-b"`, r.second,
	).Replace(string(raw))
	var objects []client.Object
	for doc := range strings.SplitSeq(text, "---\n") {
		var o unstructured.Unstructured
		Expect(yaml.Unmarshal([]byte(doc), &o)).To(Succeed())
		if strings.Contains(o.GetKind(), "Role") && !strings.Contains(o.GetName(), "forwarder") {
			objects = append(objects, &o)
		}
	}
	Expect(len(objects)).To(BeNumerically(">", 3))
	return objects
}

// createPolicies creates the chart's admission policies whose names are wanted, moved to the release.
func (r *release) createPolicies(ctx context.Context, rendered string, wanted func(name string) bool) {
	GinkgoHelper()
	raw, err := os.ReadFile("../../test/chart/testdata/" + rendered + ".out.yaml")
	Expect(err).NotTo(HaveOccurred())
	own := installation.Installation{Namespace: r.namespace, Release: "fairlead"}
	const instance = `"app.kubernetes.io/instance": "fairlead`
	text := strings.NewReplacer(
		installation.Installation{Namespace: "fairlead", Release: "fairlead-operator"}.ID(), own.ID(),
		instance+`-operator"`, instance+`"`, `"fairlead/fairlead-operator"`, `"`+own.String()+`"`,
		`"fairlead"`, `"`+r.namespace+`"`, "fairlead-operator-forwarders", "fairlead-forwarders",
		"fairlead.fairlead-operator-", r.namespace+".fairlead-operator-", ".fairlead.svc.", "."+r.namespace+".svc.",
		"serviceaccount:fairlead:", "serviceaccount:"+r.namespace+":").Replace(string(raw))
	for doc := range strings.SplitSeq(text, "---\n") {
		var o unstructured.Unstructured
		Expect(yaml.Unmarshal([]byte(doc), &o)).To(Succeed())
		if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") && wanted(o.GetName()) {
			Expect(kube.Create(ctx, &o)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(kube.Delete(ctx, &o)).To(Succeed()) })
		}
	}
}

// anchor is the name of what owns the target Services.
func (r *release) anchor() string { return r.namespace + "." + anchor }

// anchors are the objects of the chart that own the operator's: those of the cluster, or of a
// namespace.
func anchors(namespace, name string) []client.Object {
	if namespace == "" {
		return []client.Object{&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	at := metav1.ObjectMeta{Namespace: namespace, Name: name}
	return []client.Object{&rbacv1.Role{ObjectMeta: at}, &rbacv1.RoleBinding{ObjectMeta: at}}
}

func deleteAnchors(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	for _, o := range anchors(namespace, name) {
		Expect(kube.Delete(ctx, o)).To(Succeed())
	}
}

// user is the name of the manager's ClusterRole and ClusterRoleBinding; in listed namespaces of its
// Role and RoleBinding.
func (r *release) user() string { return r.namespace + ".fairlead-operator-manager" }

func newNamespace(ctx context.Context, prefix string) string {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix}}
	Expect(kube.Create(ctx, ns)).To(Succeed())
	return ns.Name
}

func (r *release) options() operator.ManagerOptions {
	return operator.ManagerOptions{
		Installation:           installation.Installation{Namespace: r.namespace, Release: "fairlead"},
		KubernetesOperatorSpec: v1alpha1.KubernetesOperatorSpec{Description: "a test", BindingEnabled: true},
		ProjectionOptions: operator.ProjectionOptions{RemovalDelay: 30 * time.Second, PortRange: "10000-32767",
			ClusterDomain: "cluster.local", Projection: v1alpha1.ProjectionExternalName,
			TakeoverDelay: time.Minute},
		Roles: installation.Roles{ClusterRole: r.anchor(), Role: anchor, Rights: r.user()},
		ForwarderPods: installation.ForwarderPods{ForwarderName: "fairlead-forwarder",
			ForwarderInstance: "fairlead", ForwarderService: "fairlead-forwarders"},
		Access:  options.Access{DefaultAccess: endpointaccess.Allow},
		Options: namespaces.Options{DenyNamespaces: []string{"kube-*"}}, LeaderElect: true,
		Process: options.Process{Kubernetes: r.kubernetes,
			Logger: slog.New(slog.NewTextHandler(GinkgoWriter, nil))},
		Substitutes: operator.Substitutes{Account: r.account, Registrar: r.account, Forwarders: listening{},
			Metrics: prometheus.NewRegistry()},
	}
}

// listening are two forwarders without a fault.
type listening struct{}

func (listening) Start(ctx context.Context) error { <-ctx.Done(); return nil }
func (listening) EdgeStatus() (bool, string)      { return true, "" }
func (listening) Legs() (bool, string)            { return true, "" }
func (listening) NotifyOnChange(string)           {}
func (listening) NetworkPoliciesReliedOn() bool   { return false }
func (listening) TrustEnforcement(string, string) forwarderstatus.Enforcement {
	return forwarderstatus.Enforcement{Known: true, Forwarders: 2, Enforcing: 2}
}
func (listening) Enforcement(string, string) forwarderstatus.Enforcement {
	return forwarderstatus.Enforcement{Known: true, Forwarders: 2, Enforcing: 2}
}
func (listening) SealedKeys(string) map[account.EndpointURL]string { return nil }
func (listening) Denied(string) []forwarderstatus.DeniedCalls      { return nil }
func (listening) CancelNotify(string)                              {}
func (listening) Report(string, []int) forwarderstatus.Report {
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
	last  int       // last is how many quiet has counted,
	since time.Time // and since when.
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

// quiet reports whether nothing was written since its last call, a second ago or more. Call it until
// it does.
func (w *writes) quiet() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	total := 0
	for what, n := range w.count {
		if !periodic[what] {
			total += n
		}
	}
	if total != w.last || w.since.IsZero() {
		w.last, w.since = total, time.Now()
		return false
	}
	if time.Since(w.since) < time.Second {
		return false
	}
	w.since = time.Time{}
	return true
}

// take returns what was counted since the last call, without what is written every some seconds.
func (w *writes) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.count
	w.count = map[string]int{}
	maps.DeleteFunc(taken, func(what string, _ int) bool { return periodic[what] })
	return taken
}

// periodic are the writes of the lease and of the counts of BoundEndpoints.
var periodic = map[string]bool{"PUT leases": true, "PUT kubernetesoperators/status": true}

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
		ID: id, URL: url, Type: account.TypeAgent, Bindings: []string{account.BindingKubernetes},
		Status: account.StatusOnline, ProjectionID: id,
		CreatedAt: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC),
	}
}

func hostnameIn(namespace, name string) string { return fmt.Sprintf("%s.%s", name, namespace) }

var errDown = errors.New("dial tcp 10.99.0.2:8443: connect: connection refused")
