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
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/selector"
	"github.com/fairlead-dev/fairlead/test/support/fixture"
)

// harness is a fixture with a restartable reconciler and an account.
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
	h := &harness{Fixture: fixture.New(ctx, config), ports: endpointsync.PortRange{First: 10000, Last: 32767}}
	h.belonging = endpointsync.SourceIdentity{AccountID: "ac-1", StoreID: "st-1"}
	h.restart("")
	h.list()
	return h
}

// restart makes a new reconciler that knows only what is in the cluster. Nothing has been listed.
func (h *harness) restart(expression string) {
	GinkgoHelper()
	s, err := selector.Compile(expression)
	Expect(err).NotTo(HaveOccurred())
	h.set = endpointsync.NewSet(endpointsync.SetOptions{Selector: s, Clusterset: true,
		RemovalDelay: 30 * time.Second, AcceptAccount: h.accept, Clock: h.Clock})
	h.set.SetRecordedSource(h.recorded)
	h.reconciler = &endpointsync.Reconciler{
		Client: h.Client, Anchors: h.Anchors, Set: h.set, Clock: h.Clock,
		Ports:     endpointsync.NewPorts(h.ports, time.Minute, h.Clock),
		Delays:    endpointsync.Delays{Removal: 30 * time.Second, Rest: time.Minute},
		Report:    endpointsync.NewReporter(context.Background(), h.Events, h.Client, h.Installation),
		Approvals: &endpointsync.Approvals{},
	}
	h.observe()
}

// observe writes into each object's status what boundendpoint writes after observing the spec.
func (h *harness) observe() {
	GinkgoHelper()
	var list v1alpha1.BoundEndpointList
	Expect(h.Live.List(context.Background(), &list, client.InNamespace(h.Installation.Namespace))).To(Succeed())
	for i := range list.Items {
		b := &list.Items[i]
		if b.Observed() {
			continue
		}
		meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionServicesReady,
			Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonProjected, ObservedGeneration: b.Generation})
		Expect(h.Client.Status().Update(context.Background(), b)).To(Succeed())
	}
}

func (h *harness) endpoint(id, url string) account.Endpoint {
	h.seq++
	return account.Endpoint{
		ID: id, URL: url, Type: account.TypeAgent, Status: account.StatusOnline,
		Bindings: []string{account.BindingKubernetes}, ProjectionID: id,
		CreatedAt: h.Clock.Now(), ResourceVersion: account.ResourceVersion{Epoch: 1, Seq: h.seq},
	}
}

// list applies a complete list and returns the hostnames that it names.
func (h *harness) list(endpoints ...account.Endpoint) []string {
	from := h.belonging
	return h.set.Replace(endpointsync.Snapshot{Endpoints: endpoints, AccountID: from.AccountID, StoreID: from.StoreID},
		h.Clock.Now()).Hostnames
}

func (h *harness) event(typ account.EventType, e account.Endpoint) {
	h.seq++
	h.set.Apply(account.EndpointEvent{Type: typ, ResourceVersion: account.ResourceVersion{Epoch: 1, Seq: h.seq},
		Endpoint: &e})
}

func (h *harness) reconcile(ctx context.Context, hostname string) ctrl.Result {
	GinkgoHelper()
	result, err := h.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: h.key(hostname)})
	Expect(err).NotTo(HaveOccurred())
	return result
}

func (h *harness) key(hostname string) client.ObjectKey {
	return client.ObjectKey{Namespace: h.Installation.Namespace, Name: hostname}
}

func (h *harness) object(ctx context.Context, hostname string) *v1alpha1.BoundEndpoint {
	GinkgoHelper()
	b := &v1alpha1.BoundEndpoint{}
	Expect(h.Live.Get(ctx, h.key(hostname), b)).To(Succeed())
	return b
}

func (h *harness) expectGone(ctx context.Context, hostname string) {
	GinkgoHelper()
	Expect(apierrors.IsNotFound(h.Live.Get(ctx, h.key(hostname), &v1alpha1.BoundEndpoint{}))).To(BeTrue())
}

var _ = Describe("Reconciler: the BoundEndpoint of a hostname", func() {
	var h *harness
	BeforeEach(func(ctx SpecContext) { h = newHarness(ctx) })

	It("is created with port, projection id, labels and owner, and then left alone", func(ctx SpecContext) {
		h.event(account.Added, h.endpoint("ep-1", "http://api.demo"))
		h.reconcile(ctx, "api.demo")
		b := h.object(ctx, "api.demo")
		Expect(b.Spec.Service).To(Equal("api"))
		Expect(b.Spec.Namespace).To(Equal("demo"))
		Expect(b.Spec.ProjectionID).To(Equal("ep-1"))
		Expect(b.Spec.State).To(Equal(v1alpha1.StateBound))
		Expect(b.Spec.Endpoints).To(Equal([]v1alpha1.EndpointRef{{ID: "ep-1", URL: "http://api.demo"}}))
		Expect(b.Spec.Ports).To(HaveLen(1))
		Expect(b.Spec.Ports[0].TargetPort).To(And(BeNumerically(">=", 10000), BeNumerically("<=", 32767)))
		Expect(h.Installation.Owns(b)).To(BeTrue())
		owners, err := h.Anchors.Owners(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.OwnerReferences).To(Equal(owners.Local))

		h.reconcile(ctx, "api.demo")
		Expect(h.object(ctx, "api.demo").ResourceVersion).To(Equal(b.ResourceVersion),
			"nothing differs, nothing is written")
	})

	It("holds the ports of several URLs; one of them comes and goes without moving the others", func(ctx SpecContext) {
		web, db := h.endpoint("ep-1", "http://db.prod"), h.endpoint("ep-2", "tcp://db.prod:5432")
		db.ProjectionID = "ep-1"
		h.event(account.Added, web)
		h.reconcile(ctx, "db.prod")
		before := h.object(ctx, "db.prod").Spec.Ports[0]
		h.event(account.Added, db)
		h.reconcile(ctx, "db.prod")
		both := h.object(ctx, "db.prod")
		Expect(both.Spec.Ports).To(HaveLen(2))
		Expect(both.Spec.Ports[0]).To(Equal(before))
		Expect(both.Spec.Ports[1].Scheme).To(Equal("tcp"))

		h.event(account.Deleted, web)
		h.reconcile(ctx, "db.prod")
		b := h.object(ctx, "db.prod")
		Expect(b.Spec.Ports[0].RemoveAfter.Time).To(BeTemporally("==", h.Clock.Now().Add(30*time.Second)))
		Expect(b.Spec.RemoveAfter).To(BeNil(), "the object itself stays")
		h.Clock.Step(30 * time.Second)
		h.reconcile(ctx, "db.prod")
		b = h.object(ctx, "db.prod")
		Expect(b.Spec.Ports[0].State).To(Equal(v1alpha1.StateReleased))
		Expect(b.Spec.State).To(Equal(v1alpha1.StateBound))
		h.Clock.Step(time.Minute)
		h.reconcile(ctx, "db.prod")
		b = h.object(ctx, "db.prod")
		Expect(b.Spec.Ports).To(Equal(both.Spec.Ports[1:]))
		Expect(b.Spec.ProjectionID).To(Equal("ep-1"), "the upstream Service keeps its name")
	})

	It("is deleted at once when another client made it, and repaired when another client changed it",
		func(ctx SpecContext) {
			forged := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: h.Installation.Namespace,
				Name: "forged.demo"}}
			forged.Spec = v1alpha1.BoundEndpointSpec{Service: "forged", Namespace: "demo", ProjectionID: "ep-forged",
				Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: 12345}}}
			h.Installation.Mark(forged)
			Expect(h.Client.Create(ctx, forged)).To(Succeed())
			Expect(h.reconciler.Approvals.Approved(forged)).To(BeFalse())
			h.reconcile(ctx, "forged.demo")
			h.expectGone(ctx, "forged.demo")

			h.event(account.Added, h.endpoint("ep-1", "http://api.demo"))
			h.reconcile(ctx, "api.demo")
			good := h.object(ctx, "api.demo")
			Expect(h.reconciler.Approvals.Approved(good)).To(BeTrue())
			h.observe()
			changed := h.object(ctx, "api.demo")
			changed.Spec.Ports[0].TargetPort = 12345
			changed.Spec.Ports = append(changed.Spec.Ports,
				v1alpha1.BoundPort{Port: 81, Scheme: "http", TargetPort: 12346})
			Expect(h.Client.Update(ctx, changed)).To(Succeed())
			Expect(h.reconciler.Approvals.Approved(changed)).To(BeFalse())
			h.reconcile(ctx, "api.demo")
			after := h.object(ctx, "api.demo")
			Expect(after.Spec).To(Equal(good.Spec))
			Expect(h.reconciler.Approvals.Approved(after)).To(BeTrue())
		})

	It("outlives an agent that comes back within the removal delay", func(ctx SpecContext) {
		e := h.endpoint("ep-1", "http://api.demo")
		h.event(account.Added, e)
		h.reconcile(ctx, "api.demo")
		before := h.object(ctx, "api.demo")
		h.event(account.Deleted, e)
		Expect(h.reconcile(ctx, "api.demo").RequeueAfter).To(Equal(30 * time.Second))
		Expect(h.object(ctx, "api.demo").Spec.RemoveAfter).NotTo(BeNil())
		h.Clock.Step(29 * time.Second)
		h.reconcile(ctx, "api.demo")
		h.event(account.Added, e)
		Expect(h.reconcile(ctx, "api.demo").RequeueAfter).To(BeZero())
		after := h.object(ctx, "api.demo")
		Expect(after.UID).To(Equal(before.UID))
		Expect(after.Spec).To(Equal(before.Spec))
	})

	It("is released at the deadline and deleted a minute later, across restarts", func(ctx SpecContext) {
		e := h.endpoint("ep-1", "http://api.demo")
		h.event(account.Added, e)
		h.reconcile(ctx, "api.demo")
		h.event(account.Deleted, e)
		h.reconcile(ctx, "api.demo")

		h.restart("")
		h.Clock.Step(time.Hour)
		h.reconcile(ctx, "api.demo")
		Expect(h.object(ctx, "api.demo").Spec.State).To(Equal(v1alpha1.StateBound),
			"nothing is removed before the first complete list")
		h.list()
		Expect(h.reconcile(ctx, "api.demo").RequeueAfter).To(Equal(time.Minute))
		Expect(h.object(ctx, "api.demo").Spec.State).To(Equal(v1alpha1.StateReleased))

		h.restart("")
		h.list()
		h.Clock.Step(59 * time.Second)
		Expect(h.reconcile(ctx, "api.demo").RequeueAfter).To(Equal(time.Second))
		h.Clock.Step(time.Second)
		h.reconcile(ctx, "api.demo")
		h.expectGone(ctx, "api.demo")
	})

	It("waits for an agent that was deleted while the manager was away, from the first list on", func(ctx SpecContext) {
		h.event(account.Added, h.endpoint("ep-1", "http://api.demo"))
		h.reconcile(ctx, "api.demo")
		h.restart("")
		h.list()
		h.reconcile(ctx, "api.demo")
		b := h.object(ctx, "api.demo")
		Expect(b.Spec.State).To(Equal(v1alpha1.StateBound))
		Expect(b.Spec.RemoveAfter.Time).To(BeTemporally("==", h.Clock.Now().Add(30*time.Second)))
	})

	DescribeTable("is released at once when there is nothing to wait for",
		func(ctx SpecContext, gone func(account.Endpoint)) {
			e := h.endpoint("ep-1", "http://api.demo")
			e.Type = account.TypeCloud
			h.event(account.Added, e)
			h.reconcile(ctx, "api.demo")
			gone(e)
			h.reconcile(ctx, "api.demo")
			Expect(h.object(ctx, "api.demo").Spec.State).To(Equal(v1alpha1.StateReleased))
		},
		Entry("an endpoint deleted at the API", func(e account.Endpoint) { h.event(account.Deleted, e) }),
		Entry("a selector that no longer admits it", func(e account.Endpoint) {
			h.restart("ep.id != 'ep-1'")
			h.list(e)
		}),
		Entry("binding.enabled=false", func(account.Endpoint) { h.restart(""); h.set.Disable() }),
	)

	It("takes its target port back when an endpoint comes while it rests", func(ctx SpecContext) {
		e := h.endpoint("ep-1", "http://api.demo")
		e.Type = account.TypeCloud
		h.event(account.Added, e)
		h.reconcile(ctx, "api.demo")
		before := h.object(ctx, "api.demo").Spec
		h.event(account.Deleted, e)
		h.reconcile(ctx, "api.demo")
		h.event(account.Added, e)
		h.reconcile(ctx, "api.demo")
		Expect(h.object(ctx, "api.demo").Spec).To(Equal(before))
	})

	It("is rebuilt with the same target port when a user deletes it", func(ctx SpecContext) {
		h.event(account.Added, h.endpoint("ep-1", "http://api.demo"))
		h.reconcile(ctx, "api.demo")
		before := h.object(ctx, "api.demo")
		Expect(h.Client.Delete(ctx, before)).To(Succeed())
		h.reconcile(ctx, "api.demo")
		Expect(h.object(ctx, "api.demo").Spec).To(Equal(before.Spec))
	})

	It("is rebuilt from the upstream Service when all objects were lost with the manager", func(ctx SpecContext) {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: h.Installation.Namespace, Name: "ep-1",
			Annotations: map[string]string{installation.AnnotationHostname: "api.demo"}}}
		h.Installation.Mark(s)
		s.Spec.Ports = []corev1.ServicePort{{Name: "http-80", Port: 80, TargetPort: intstr.FromInt32(23456)}}
		Expect(h.Client.Create(ctx, s)).To(Succeed())
		h.event(account.Added, h.endpoint("ep-1", "http://api.demo"))
		h.reconcile(ctx, "api.demo")
		Expect(h.object(ctx, "api.demo").Spec.Ports[0].TargetPort).To(BeEquivalentTo(23456))
	})

	It("leaves a foreign object of the same name alone, reports it, and continues with the others",
		func(ctx SpecContext) {
			foreign := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: h.Installation.Namespace,
				Name: "api.demo"},
				Spec: v1alpha1.BoundEndpointSpec{Service: "api", Namespace: "demo", ProjectionID: "x",
					Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: 10000}}}}
			Expect(h.Client.Create(ctx, foreign)).To(Succeed())
			h.event(account.Added, h.endpoint("ep-1", "http://api.demo"))
			h.event(account.Added, h.endpoint("ep-2", "http://web.demo"))
			h.reconcile(ctx, "api.demo")
			h.reconcile(ctx, "api.demo")
			Expect(h.object(ctx, "api.demo").ResourceVersion).To(Equal(foreign.ResourceVersion))
			Expect(h.EventNotes()).To(ConsistOf(ContainSubstring("Conflict")))
			h.reconcile(ctx, "web.demo")
			h.object(ctx, "web.demo")
		})

	It("gets its labels and annotations back, as it belongs to our anchor", func(ctx SpecContext) {
		h.event(account.Added, h.endpoint("ep-1", "http://api.demo"))
		h.reconcile(ctx, "api.demo")
		b := h.object(ctx, "api.demo")
		before := b.DeepCopy()
		b.Labels, b.Annotations = nil, nil
		Expect(h.Client.Update(ctx, b)).To(Succeed())
		h.restart("")
		h.list(h.endpoint("ep-1", "http://api.demo"))
		h.reconcile(ctx, "api.demo")
		after := h.object(ctx, "api.demo")
		Expect(h.Installation.Owns(after)).To(BeTrue())
		Expect(after.Spec).To(Equal(before.Spec))
	})

	It("is one of many in a namespace named like a top-level domain: one warning for all", func(ctx SpecContext) {
		for _, name := range []string{"example", "web", "api"} {
			h.event(account.Added, h.endpoint("ep-"+name, "http://"+name+".com"))
			h.reconcile(ctx, name+".com")
			h.object(ctx, name+".com")
		}
		Expect(h.EventNotes()).To(ConsistOf(ContainSubstring("Warning TopLevelDomain")))
	})

	It("is made in a namespace named like a top-level domain, too, with a warning once", func(ctx SpecContext) {
		e := h.endpoint("ep-1", "http://example.com")
		for range 2 {
			h.restart("")
			h.list(e)
			h.reconcile(ctx, "example.com")
			h.reconcile(ctx, "example.com")
		}
		h.object(ctx, "example.com")
		Expect(h.EventNotes()).
			To(ConsistOf(And(ContainSubstring("Warning TopLevelDomain"), ContainSubstring("example.com. with a dot"))))
	})

	It("gives the younger of two objects with one target port another", func(ctx SpecContext) {
		h.event(account.Added, h.endpoint("ep-1", "http://api.demo"))
		h.reconcile(ctx, "api.demo")
		taken := h.object(ctx, "api.demo").Spec.Ports[0].TargetPort
		odd := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: h.Installation.Namespace,
			Name: "odd.demo"},
			Spec: v1alpha1.BoundEndpointSpec{Service: "odd", Namespace: "demo", ProjectionID: "x",
				Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: taken}}}}
		h.Installation.Mark(odd)
		Expect(h.Client.Create(ctx, odd)).To(Succeed())
		h.event(account.Added, h.endpoint("ep-2", "http://odd.demo"))
		h.reconcile(ctx, "odd.demo")
		h.reconcile(ctx, "api.demo")
		Expect(h.object(ctx, "api.demo").Spec.Ports[0].TargetPort).To(Equal(taken))
		Expect(h.object(ctx, "odd.demo").Spec.Ports[0].TargetPort).NotTo(Equal(taken))
	})

	It("reports once that no target port is free, and retries", func(ctx SpecContext) {
		h.ports = endpointsync.PortRange{First: 10000, Last: 10000}
		h.restart("")
		h.list(h.endpoint("ep-1", "http://a.demo"), h.endpoint("ep-2", "http://b.demo"))
		h.reconcile(ctx, "a.demo")
		Expect(h.reconcile(ctx, "b.demo").RequeueAfter).To(Equal(30 * time.Second))
		h.reconcile(ctx, "b.demo")
		Expect(h.EventNotes()).To(ConsistOf(ContainSubstring("PortsExhausted")))
		h.expectGone(ctx, "b.demo")
	})
})
