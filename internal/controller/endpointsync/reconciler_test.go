// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/controller/fixture"
	"github.com/fairlead-dev/fairlead/internal/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/selector"
)

// harness is a fixture with a reconciler that can be restarted, and an account.
type harness struct {
	*fixture.Fixture
	set        *endpointsync.Set
	reconciler *endpointsync.Reconciler
	ports      endpointsync.PortRange
	seq        int64
	belonging  endpointsync.SourceIdentity // of lists
	recorded   endpointsync.SourceIdentity // what a restarted reconciler finds in the KubernetesOperator's status
	accept     string
}

func newHarness(ctx context.Context) *harness {
	GinkgoHelper()
	w := &harness{Fixture: fixture.New(ctx, config), ports: endpointsync.PortRange{First: 10000, Last: 32767}}
	w.belonging = endpointsync.SourceIdentity{AccountID: "ac-1", StoreID: "st-1"}
	w.restart("")
	w.list()
	return w
}

// restart makes a new reconciler that knows only what is in the cluster. Nothing has been listed.
func (w *harness) restart(expression string) {
	GinkgoHelper()
	s, err := selector.Compile(expression)
	Expect(err).NotTo(HaveOccurred())
	w.set = endpointsync.NewSet(endpointsync.SetOptions{Selector: s, RemovalDelay: 30 * time.Second,
		AcceptAccount: w.accept, Now: w.Clock.Now})
	w.set.SetRecordedSource(w.recorded)
	about := &v1alpha1.KubernetesOperator{ObjectMeta: metav1.ObjectMeta{Namespace: w.Installation.Namespace,
		Name: "fairlead"}}
	w.reconciler = &endpointsync.Reconciler{
		Client: w.Client, Installation: w.Installation, Owners: w.Anchors.Owners, Set: w.set, Now: w.Clock.Now,
		Ports:     endpointsync.NewPorts(w.ports, time.Minute, w.Clock.Now),
		Delays:    endpointsync.Delays{Removal: 30 * time.Second, Rest: time.Minute},
		Report:    endpointsync.NewReporter(w.Events, func() runtime.Object { return about }),
		Approvals: &endpointsync.Approvals{},
	}
	w.observe()
}

// observe writes into each object's status what boundendpoint does when it has seen the spec.
func (w *harness) observe() {
	GinkgoHelper()
	var list v1alpha1.BoundEndpointList
	Expect(w.Live.List(context.Background(), &list, client.InNamespace(w.Installation.Namespace))).To(Succeed())
	for i := range list.Items {
		b := &list.Items[i]
		if b.Observed() {
			continue
		}
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionServicesReady,
			Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonProjected, ObservedGeneration: b.Generation})
		Expect(w.Client.Status().Update(context.Background(), b)).To(Succeed())
	}
}

func (w *harness) endpoint(id, url string) account.Endpoint {
	w.seq++
	return account.Endpoint{
		ID: id, URL: url, Type: account.TypeAgent, Status: account.StatusOnline,
		Bindings: []string{account.BindingKubernetes}, ProjectionID: id,
		CreatedAt: w.Clock.Now(), ResourceVersion: account.ResourceVersion{Epoch: 1, Seq: w.seq},
	}
}

// list applies a complete list and returns the hostnames that it names.
func (w *harness) list(endpoints ...account.Endpoint) []string {
	from := w.belonging
	return w.set.Replace(endpointsync.Snapshot{Endpoints: endpoints, AccountID: from.AccountID, StoreID: from.StoreID},
		w.Clock.Now()).Hostnames
}

func (w *harness) event(typ account.EventType, e account.Endpoint) {
	w.seq++
	w.set.Apply(account.EndpointEvent{Type: typ, ResourceVersion: account.ResourceVersion{Epoch: 1, Seq: w.seq},
		Endpoint: &e})
}

func (w *harness) reconcile(ctx context.Context, hostname string) ctrl.Result {
	GinkgoHelper()
	result, err := w.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: w.key(hostname)})
	Expect(err).NotTo(HaveOccurred())
	return result
}

func (w *harness) key(hostname string) client.ObjectKey {
	return client.ObjectKey{Namespace: w.Installation.Namespace, Name: hostname}
}

func (w *harness) object(ctx context.Context, hostname string) *v1alpha1.BoundEndpoint {
	GinkgoHelper()
	b := &v1alpha1.BoundEndpoint{}
	Expect(w.Live.Get(ctx, w.key(hostname), b)).To(Succeed())
	return b
}

func (w *harness) expectGone(ctx context.Context, hostname string) {
	GinkgoHelper()
	Expect(apierrors.IsNotFound(w.Live.Get(ctx, w.key(hostname), &v1alpha1.BoundEndpoint{}))).To(BeTrue())
}

var _ = Describe("Reconciler: the BoundEndpoint of a hostname", func() {
	var w *harness
	BeforeEach(func(ctx SpecContext) { w = newHarness(ctx) })

	It("is created with port, projection id, labels and owner, and then left alone", func(ctx SpecContext) {
		w.event(account.Added, w.endpoint("ep-1", "http://api.demo"))
		w.reconcile(ctx, "api.demo")
		b := w.object(ctx, "api.demo")
		Expect(b.Spec.Service).To(Equal("api"))
		Expect(b.Spec.Namespace).To(Equal("demo"))
		Expect(b.Spec.ProjectionID).To(Equal("ep-1"))
		Expect(b.Spec.State).To(Equal(v1alpha1.StateBound))
		Expect(b.Spec.Endpoints).To(Equal([]v1alpha1.EndpointRef{{ID: "ep-1", URL: "http://api.demo"}}))
		Expect(b.Spec.Ports).To(HaveLen(1))
		Expect(b.Spec.Ports[0].TargetPort).To(And(BeNumerically(">=", 10000), BeNumerically("<=", 32767)))
		Expect(w.Installation.Owns(b)).To(BeTrue())
		owners, err := w.Anchors.Owners(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.OwnerReferences).To(Equal([]metav1.OwnerReference{owners.Local}))

		w.reconcile(ctx, "api.demo")
		Expect(w.object(ctx, "api.demo").ResourceVersion).To(Equal(b.ResourceVersion), "nothing differs, nothing is written")
	})

	It("holds the ports of several URLs; one of them comes and goes without moving the others", func(ctx SpecContext) {
		web, db := w.endpoint("ep-1", "http://db.prod"), w.endpoint("ep-2", "tcp://db.prod:5432")
		db.ProjectionID = "ep-1"
		w.event(account.Added, web)
		w.reconcile(ctx, "db.prod")
		before := w.object(ctx, "db.prod").Spec.Ports[0]
		w.event(account.Added, db)
		w.reconcile(ctx, "db.prod")
		both := w.object(ctx, "db.prod")
		Expect(both.Spec.Ports).To(HaveLen(2))
		Expect(both.Spec.Ports[0]).To(Equal(before))
		Expect(both.Spec.Ports[1].Scheme).To(Equal("tcp"))

		w.event(account.Deleted, web)
		w.reconcile(ctx, "db.prod")
		b := w.object(ctx, "db.prod")
		Expect(b.Spec.Ports[0].RemoveAfter.Time).To(BeTemporally("==", w.Clock.Now().Add(30*time.Second)))
		Expect(b.Spec.RemoveAfter).To(BeNil(), "the object itself stays")
		w.Clock.Step(30 * time.Second)
		w.reconcile(ctx, "db.prod")
		b = w.object(ctx, "db.prod")
		Expect(b.Spec.Ports[0].State).To(Equal(v1alpha1.StateReleased))
		Expect(b.Spec.State).To(Equal(v1alpha1.StateBound))
		w.Clock.Step(time.Minute)
		w.reconcile(ctx, "db.prod")
		b = w.object(ctx, "db.prod")
		Expect(b.Spec.Ports).To(Equal(both.Spec.Ports[1:]))
		Expect(b.Spec.ProjectionID).To(Equal("ep-1"), "the upstream Service keeps its name")
	})

	It("is deleted at once when another client made it, and repaired when another client changed it",
		func(ctx SpecContext) {
			forged := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.Installation.Namespace,
				Name: "forged.demo"}}
			forged.Spec = v1alpha1.BoundEndpointSpec{Service: "forged", Namespace: "demo", ProjectionID: "ep-forged",
				Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: 12345}}}
			w.Installation.Mark(forged)
			Expect(w.Client.Create(ctx, forged)).To(Succeed())
			Expect(w.reconciler.Approvals.Approved(forged)).To(BeFalse())
			w.reconcile(ctx, "forged.demo")
			w.expectGone(ctx, "forged.demo")

			w.event(account.Added, w.endpoint("ep-1", "http://api.demo"))
			w.reconcile(ctx, "api.demo")
			good := w.object(ctx, "api.demo")
			Expect(w.reconciler.Approvals.Approved(good)).To(BeTrue())
			w.observe()
			changed := w.object(ctx, "api.demo")
			changed.Spec.Ports[0].TargetPort = 12345
			changed.Spec.Ports = append(changed.Spec.Ports, v1alpha1.BoundPort{Port: 81, Scheme: "http", TargetPort: 12346})
			Expect(w.Client.Update(ctx, changed)).To(Succeed())
			Expect(w.reconciler.Approvals.Approved(changed)).To(BeFalse())
			w.reconcile(ctx, "api.demo")
			after := w.object(ctx, "api.demo")
			Expect(after.Spec).To(Equal(good.Spec))
			Expect(w.reconciler.Approvals.Approved(after)).To(BeTrue())
		})

	It("outlives an agent that comes back within the removal delay", func(ctx SpecContext) {
		e := w.endpoint("ep-1", "http://api.demo")
		w.event(account.Added, e)
		w.reconcile(ctx, "api.demo")
		before := w.object(ctx, "api.demo")
		w.event(account.Deleted, e)
		Expect(w.reconcile(ctx, "api.demo").RequeueAfter).To(Equal(30 * time.Second))
		Expect(w.object(ctx, "api.demo").Spec.RemoveAfter).NotTo(BeNil())
		w.Clock.Step(29 * time.Second)
		w.reconcile(ctx, "api.demo")
		w.event(account.Added, e)
		Expect(w.reconcile(ctx, "api.demo").RequeueAfter).To(BeZero())
		after := w.object(ctx, "api.demo")
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Spec).To(Equal(before.Spec))
	})

	It("is released at the deadline and deleted a minute later, across restarts", func(ctx SpecContext) {
		e := w.endpoint("ep-1", "http://api.demo")
		w.event(account.Added, e)
		w.reconcile(ctx, "api.demo")
		w.event(account.Deleted, e)
		w.reconcile(ctx, "api.demo")

		w.restart("")
		w.Clock.Step(time.Hour)
		w.reconcile(ctx, "api.demo")
		Expect(w.object(ctx, "api.demo").Spec.State).To(Equal(v1alpha1.StateBound),
			"nothing is removed before the first complete list")
		w.list()
		Expect(w.reconcile(ctx, "api.demo").RequeueAfter).To(Equal(time.Minute))
		Expect(w.object(ctx, "api.demo").Spec.State).To(Equal(v1alpha1.StateReleased))

		w.restart("")
		w.list()
		w.Clock.Step(59 * time.Second)
		Expect(w.reconcile(ctx, "api.demo").RequeueAfter).To(Equal(time.Second))
		w.Clock.Step(time.Second)
		w.reconcile(ctx, "api.demo")
		w.expectGone(ctx, "api.demo")
	})

	It("waits for an agent that was deleted while the manager was away, from the first list on", func(ctx SpecContext) {
		w.event(account.Added, w.endpoint("ep-1", "http://api.demo"))
		w.reconcile(ctx, "api.demo")
		w.restart("")
		w.list()
		w.reconcile(ctx, "api.demo")
		b := w.object(ctx, "api.demo")
		Expect(b.Spec.State).To(Equal(v1alpha1.StateBound))
		Expect(b.Spec.RemoveAfter.Time).To(BeTemporally("==", w.Clock.Now().Add(30*time.Second)))
	})

	DescribeTable("is released at once when there is nothing to wait for",
		func(ctx SpecContext, gone func(account.Endpoint)) {
			e := w.endpoint("ep-1", "http://api.demo")
			e.Type = account.TypeCloud
			w.event(account.Added, e)
			w.reconcile(ctx, "api.demo")
			gone(e)
			w.reconcile(ctx, "api.demo")
			Expect(w.object(ctx, "api.demo").Spec.State).To(Equal(v1alpha1.StateReleased))
		},
		Entry("an endpoint deleted at the API", func(e account.Endpoint) { w.event(account.Deleted, e) }),
		Entry("a selector that no longer admits it", func(e account.Endpoint) { w.restart("ep.id != 'ep-1'"); w.list(e) }),
		Entry("binding.enabled=false", func(account.Endpoint) { w.restart(""); w.set.Disable() }),
	)

	It("takes its target port back when an endpoint comes while it rests", func(ctx SpecContext) {
		e := w.endpoint("ep-1", "http://api.demo")
		e.Type = account.TypeCloud
		w.event(account.Added, e)
		w.reconcile(ctx, "api.demo")
		before := w.object(ctx, "api.demo").Spec
		w.event(account.Deleted, e)
		w.reconcile(ctx, "api.demo")
		w.event(account.Added, e)
		w.reconcile(ctx, "api.demo")
		Expect(w.object(ctx, "api.demo").Spec).To(Equal(before))
	})

	It("is rebuilt with the same target port when a user deletes it", func(ctx SpecContext) {
		w.event(account.Added, w.endpoint("ep-1", "http://api.demo"))
		w.reconcile(ctx, "api.demo")
		before := w.object(ctx, "api.demo")
		Expect(w.Client.Delete(ctx, before)).To(Succeed())
		w.reconcile(ctx, "api.demo")
		Expect(w.object(ctx, "api.demo").Spec).To(Equal(before.Spec))
	})

	It("is rebuilt from the upstream Service when all objects were lost with the manager", func(ctx SpecContext) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.Installation.Namespace, Name: "ep-1",
			Annotations: map[string]string{installation.AnnotationHostname: "api.demo"}}}
		w.Installation.Mark(s)
		s.Spec.Ports = []corev1.ServicePort{{Name: "http-80", Port: 80, TargetPort: intstr.FromInt32(23456)}}
		Expect(w.Client.Create(ctx, s)).To(Succeed())
		w.event(account.Added, w.endpoint("ep-1", "http://api.demo"))
		w.reconcile(ctx, "api.demo")
		Expect(w.object(ctx, "api.demo").Spec.Ports[0].TargetPort).To(BeEquivalentTo(23456))
	})

	It("leaves a foreign object of the same name alone, reports it, and continues with the others",
		func(ctx SpecContext) {
			foreign := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.Installation.Namespace,
				Name: "api.demo"},
				Spec: v1alpha1.BoundEndpointSpec{Service: "api", Namespace: "demo", ProjectionID: "x",
					Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: 10000}}}}
			Expect(w.Client.Create(ctx, foreign)).To(Succeed())
			w.event(account.Added, w.endpoint("ep-1", "http://api.demo"))
			w.event(account.Added, w.endpoint("ep-2", "http://web.demo"))
			w.reconcile(ctx, "api.demo")
			w.reconcile(ctx, "api.demo")
			Expect(w.object(ctx, "api.demo").ResourceVersion).To(Equal(foreign.ResourceVersion))
			Expect(w.EventNotes()).To(ConsistOf(ContainSubstring("Conflict")))
			w.reconcile(ctx, "web.demo")
			w.object(ctx, "web.demo")
		})

	It("gets its labels and annotations back, as it belongs to our anchor", func(ctx SpecContext) {
		w.event(account.Added, w.endpoint("ep-1", "http://api.demo"))
		w.reconcile(ctx, "api.demo")
		b := w.object(ctx, "api.demo")
		before := b.DeepCopy()
		b.Labels, b.Annotations = nil, nil
		Expect(w.Client.Update(ctx, b)).To(Succeed())
		w.restart("")
		w.list(w.endpoint("ep-1", "http://api.demo"))
		w.reconcile(ctx, "api.demo")
		after := w.object(ctx, "api.demo")
		Expect(w.Installation.Owns(after)).To(BeTrue())
		Expect(after.Spec).To(Equal(before.Spec))
	})

	It("is one of many in a namespace named like a top-level domain: one warning for all", func(ctx SpecContext) {
		for _, name := range []string{"example", "web", "api"} {
			w.event(account.Added, w.endpoint("ep-"+name, "http://"+name+".com"))
			w.reconcile(ctx, name+".com")
			w.object(ctx, name+".com")
		}
		Expect(w.EventNotes()).To(ConsistOf(ContainSubstring("Warning TopLevelDomain")))
	})

	It("is made in a namespace named like a top-level domain, too, with a warning once", func(ctx SpecContext) {
		e := w.endpoint("ep-1", "http://example.com")
		for range 2 {
			w.restart("")
			w.list(e)
			w.reconcile(ctx, "example.com")
			w.reconcile(ctx, "example.com")
		}
		w.object(ctx, "example.com")
		Expect(w.EventNotes()).
			To(ConsistOf(And(ContainSubstring("Warning TopLevelDomain"), ContainSubstring("example.com. with a dot"))))
	})

	It("gives the younger of two objects with one target port another", func(ctx SpecContext) {
		w.event(account.Added, w.endpoint("ep-1", "http://api.demo"))
		w.reconcile(ctx, "api.demo")
		taken := w.object(ctx, "api.demo").Spec.Ports[0].TargetPort
		odd := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.Installation.Namespace, Name: "odd.demo"},
			Spec: v1alpha1.BoundEndpointSpec{Service: "odd", Namespace: "demo", ProjectionID: "x",
				Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: taken}}}}
		w.Installation.Mark(odd)
		Expect(w.Client.Create(ctx, odd)).To(Succeed())
		w.event(account.Added, w.endpoint("ep-2", "http://odd.demo"))
		w.reconcile(ctx, "odd.demo")
		w.reconcile(ctx, "api.demo")
		Expect(w.object(ctx, "api.demo").Spec.Ports[0].TargetPort).To(Equal(taken))
		Expect(w.object(ctx, "odd.demo").Spec.Ports[0].TargetPort).NotTo(Equal(taken))
	})

	It("reports once that no target port is free, and retries", func(ctx SpecContext) {
		w.ports = endpointsync.PortRange{First: 10000, Last: 10000}
		w.restart("")
		w.list(w.endpoint("ep-1", "http://a.demo"), w.endpoint("ep-2", "http://b.demo"))
		w.reconcile(ctx, "a.demo")
		Expect(w.reconcile(ctx, "b.demo").RequeueAfter).To(Equal(30 * time.Second))
		w.reconcile(ctx, "b.demo")
		Expect(w.EventNotes()).To(ConsistOf(ContainSubstring("PortsExhausted")))
		w.expectGone(ctx, "b.demo")
	})
})
