// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/boundendpoint"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderaddresses"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/namespaces"
	"github.com/fairlead-dev/fairlead/test/support/fixture"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

var config *rest.Config

func TestReconciler(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "boundendpoint")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(30 * time.Second)
	config = testenv.Start(GinkgoTB(), testenv.WithControllers("namespace"),
		testenv.WithServiceRange("10.0.0.0/16,fd00::/112"))
})

// fakeAccount answers for every hostname.
type fakeAccount struct {
	known     bool
	endpoints int
	offline   []string
	sealKeys  []string
}

func (a *fakeAccount) SealKeys(account.EndpointURL) []string { return a.sealKeys }

func (a *fakeAccount) Availability(string) (bool, int, []string) {
	return a.known, a.endpoints, slices.Clone(a.offline)
}

// fakeForwarders answer for every hostname.
type fakeForwarders struct {
	report  forwarderstatus.Report
	awaited map[string]bool
}

func newFakeForwarders() *fakeForwarders {
	return &fakeForwarders{awaited: map[string]bool{},
		report: forwarderstatus.Report{Known: true, Forwarders: 2, Listening: 2, Sessions: 2, Settled: true}}
}

func (f *fakeForwarders) Report(string, []int) forwarderstatus.Report { return f.report }
func (f *fakeForwarders) NotifyOnChange(hostname string)              { f.awaited[hostname] = true }
func (f *fakeForwarders) CancelNotify(hostname string)                { delete(f.awaited, hostname) }

// fakeAddresses are the same for every hostname.
type fakeAddresses struct {
	addresses forwarderaddresses.Addresses // nil: not known
	acquired  map[string]bool              // hostnames that are notified of changes
	held      int                          // how many acquisitions are not released
}

func (a *fakeAddresses) Acquire(hostname string) (forwarderaddresses.Addresses, func(), bool) {
	a.acquired[hostname] = true
	if a.addresses == nil {
		return nil, nil, false
	}
	a.held++
	return a.addresses, func() { a.held-- }, true
}

func (a *fakeAddresses) Forget(hostname string) { delete(a.acquired, hostname) }

// fakePolicies answer for every hostname.
type fakePolicies struct {
	missing bool
	err     error
}

func (p *fakePolicies) Written(*v1alpha1.BoundEndpoint) (bool, error) { return !p.missing, p.err }

// harness is a fixture with a reconciler, an account and forwarders.
type harness struct {
	*fixture.Fixture
	account    *fakeAccount
	forwarders *fakeForwarders
	addresses  *fakeAddresses
	policies   *fakePolicies
	trust      *fakeTrust
	projection v1alpha1.Projection
	metadata   installation.ServiceMetadata
	deny       []string // namespaces besides the default ones that get no Services
	reconciler *boundendpoint.Reconciler
	counter    *writeRecorder
	unapproved bool // endpointsync has not written the specs
}

// writeRecorder is a client that records the writes of Services and objects.
type writeRecorder struct {
	client.Client
	writes []string
	// refuse returns the API server's error for a creation; nil: none.
	refuse func(client.Object) error
	// mutate changes what is created or updated, as admission does; nil: nothing does.
	mutate func(client.Object)
	// cached is the BoundEndpoint in a stale cache; nil: the cache is up to date.
	cached *v1alpha1.BoundEndpoint
	// withoutServices means that the cache has no Service yet.
	withoutServices bool
	// statuses counts the writes of a status.
	statuses int
}

func (c *writeRecorder) Get(
	ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption,
) error {
	if b, ok := o.(*v1alpha1.BoundEndpoint); ok && c.cached != nil {
		c.cached.DeepCopyInto(b)
		return nil
	}
	if _, ok := o.(*corev1.Service); ok && c.withoutServices {
		return apierrors.NewNotFound(corev1.Resource("services"), key.Name)
	}
	return c.Client.Get(ctx, key, o, opts...)
}

func (c *writeRecorder) Status() client.SubResourceWriter {
	c.statuses++
	return c.Client.Status()
}

func (c *writeRecorder) note(verb string, o client.Object) {
	if c.mutate != nil {
		c.mutate(o)
	}
	c.writes = append(c.writes, verb+" "+o.GetNamespace()+"/"+o.GetName())
}

func (c *writeRecorder) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	c.note("create", o)
	if c.refuse != nil {
		if err := c.refuse(o); err != nil {
			return err
		}
	}
	return c.Client.Create(ctx, o, opts...)
}

func (c *writeRecorder) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	c.note("update", o)
	return c.Client.Update(ctx, o, opts...)
}

func (c *writeRecorder) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	c.note("delete", o)
	return c.Client.Delete(ctx, o, opts...)
}

// takeWrites returns the writes since the last call, in order.
func (c *writeRecorder) takeWrites() []string {
	writes := c.writes
	c.writes = nil
	return writes
}

func newHarness(ctx context.Context) *harness {
	GinkgoHelper()
	h := &harness{Fixture: fixture.New(ctx, config), account: &fakeAccount{known: true, endpoints: 1},
		forwarders: newFakeForwarders(), addresses: &fakeAddresses{acquired: map[string]bool{}},
		policies:   &fakePolicies{},
		trust:      &fakeTrust{enforcement: forwarderstatus.Enforcement{Known: true, Forwarders: 2, Enforcing: 2}},
		projection: v1alpha1.ProjectionExternalName}
	h.counter = &writeRecorder{Client: h.Client}
	h.restart()
	return h
}

// Approved implements boundendpoint.Approvals.
func (h *harness) Approved(*v1alpha1.BoundEndpoint) bool { return !h.unapproved }

func (h *harness) restart() {
	h.reconciler = boundendpoint.New(boundendpoint.Options{
		Client: h.counter, Live: h.Live, Anchors: h.Anchors, Account: h.account, Forwarders: h.forwarders,
		Addresses: h.addresses, NetworkPolicies: h.policies, Approvals: h, Trust: h.trust,
		Recorder: h.Events, Clock: h.Clock,
		Layout: boundendpoint.Layout{Installation: h.Installation, ClusterDomain: "cluster.local",
			ForwarderPods: installation.ForwarderPods{ForwarderName: "fairlead-forwarder",
				ForwarderInstance: "fairlead", ForwarderService: "fairlead-forwarders"},
			Anchors: []string{h.Anchors.ClusterRole, h.Anchors.Role}, Metadata: h.metadata},
		Target: boundendpoint.TargetOptions{Projection: h.projection, OrphanDelay: 30 * time.Second,
			Namespaces: namespaces.Policy{Own: h.Installation.Namespace,
				Deny: append([]string{namespaces.DenyDefault}, h.deny...)}}, TakeoverDelay: time.Minute,
	})
}

// object makes a BoundEndpoint in the target namespace.
func (h *harness) object(
	ctx context.Context, service, namespace string, ports ...v1alpha1.BoundPort,
) *v1alpha1.BoundEndpoint {
	GinkgoHelper()
	if len(ports) == 0 {
		ports = []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: 20080}}
	}
	b := &v1alpha1.BoundEndpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.Installation.Namespace, Name: service + "." + namespace},
		Spec: v1alpha1.BoundEndpointSpec{Service: service, Namespace: namespace, ProjectionID: "ep-" + service,
			Ports:     ports,
			Endpoints: []v1alpha1.EndpointRef{{ID: "ep-" + service, URL: "http://" + service + "." + namespace}}},
	}
	h.Installation.Mark(b)
	Expect(h.Client.Create(ctx, b)).To(Succeed())
	return b
}

// update updates the object's spec.
func (h *harness) update(ctx context.Context, b *v1alpha1.BoundEndpoint, change func(*v1alpha1.BoundEndpointSpec)) {
	GinkgoHelper()
	Expect(h.Client.Get(ctx, client.ObjectKeyFromObject(b), b)).To(Succeed())
	change(&b.Spec)
	Expect(h.Client.Update(ctx, b)).To(Succeed())
}

// reconcile calls Reconcile until it no longer requests an immediate retry, and reads the object
// again.
func (h *harness) reconcile(ctx context.Context, b *v1alpha1.BoundEndpoint) ctrl.Result {
	GinkgoHelper()
	var result ctrl.Result
	Eventually(func(g Gomega) {
		var err error
		result, err = h.reconciler.Reconcile(ctx, requestFor(b))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.RequeueAfter).To(Or(BeZero(), BeNumerically(">=", time.Second)))
	}).WithContext(ctx).Should(Succeed())
	Expect(client.IgnoreNotFound(h.Live.Get(ctx, client.ObjectKeyFromObject(b), b))).To(Succeed())
	return result
}

func requestFor(b *v1alpha1.BoundEndpoint) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)}
}

// reconcileUnowned reconciles a hostname without an object and without endpoints until its orphans
// would be gone.
func (h *harness) reconcileUnowned(ctx context.Context, hostname string) {
	GinkgoHelper()
	h.account.endpoints = 0
	key := client.ObjectKey{Namespace: h.Installation.Namespace, Name: hostname}
	for range 3 {
		_, err := h.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		Expect(err).NotTo(HaveOccurred())
		h.Clock.Step(time.Minute)
	}
	h.account.endpoints = 1
}

func (h *harness) upstream(ctx context.Context, b *v1alpha1.BoundEndpoint) *corev1.Service {
	GinkgoHelper()
	return h.service(ctx, h.Installation.Namespace, b.Spec.ProjectionID)
}

func (h *harness) target(ctx context.Context, b *v1alpha1.BoundEndpoint) *corev1.Service {
	GinkgoHelper()
	return h.service(ctx, b.Spec.Namespace, b.Spec.Service)
}

func (h *harness) service(ctx context.Context, namespace, name string) *corev1.Service {
	GinkgoHelper()
	s := &corev1.Service{}
	Expect(h.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s)).To(Succeed())
	return s
}

func (h *harness) expectNoService(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	err := h.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Service{})
	Expect(apierrors.IsNotFound(err)).To(BeTrue(), "Service %s/%s: %v", namespace, name, err)
}

// createForeign makes a Service of another owner.
func (h *harness) createForeign(ctx context.Context, namespace, name string) *corev1.Service {
	GinkgoHelper()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"},
		Annotations: map[string]string{"meta.helm.sh/release-name": "shop",
			"meta.helm.sh/release-namespace": namespace}}}
	s.Spec.Ports = []corev1.ServicePort{{Port: 8080}}
	Expect(h.Client.Create(ctx, s)).To(Succeed())
	return h.service(ctx, namespace, name)
}

func expectCondition(b *v1alpha1.BoundEndpoint, typ, statusAndReason, message string) {
	GinkgoHelper()
	fixture.ExpectCondition(b.Status.Conditions, typ, statusAndReason, message)
}
