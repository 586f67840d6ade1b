// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/fixture"
)

var _ = Describe("the manager", func() {
	It("makes two Services of an endpoint", func(ctx SpecContext) {
		r := newRelease(ctx)
		run(r.options())
		r.account.Put(endpoint("ep-00000000000000000000000001", "http://api."+r.target))

		upstream := service(ctx, r.namespace, "ep-00000000000000000000000001")
		Eventually(upstream).Should(HaveField("Spec.ClusterIP", Not(BeEmpty())))
		up, err := upstream()
		Expect(err).NotTo(HaveOccurred())
		Expect(up.Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
		Expect(up.Spec.Selector).To(HaveKeyWithValue("app.kubernetes.io/name", "fairlead-forwarder"))
		Expect(up.Spec.Ports).To(HaveLen(1))
		Expect(up.Spec.Ports[0].Port).To(BeEquivalentTo(80))
		Expect(up.Spec.Ports[0].TargetPort.IntVal).To(And(BeNumerically(">=", 10000), BeNumerically("<=", 32767)))
		Eventually(service(ctx, r.target, "api")).Should(And(
			HaveField("Spec.Type", corev1.ServiceTypeExternalName),
			HaveField("Spec.ExternalName", "ep-00000000000000000000000001."+r.namespace+".svc.cluster.local")))
		Eventually(func(g Gomega) {
			b := r.bep(ctx, hostnameIn(r.target, "api"))
			g.Expect(meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady)).To(BeTrue())
			g.Expect(b.Status.ClusterIP).To(Equal(up.Spec.ClusterIP))
		}).Should(Succeed())
	})

	It("makes both Services of each new endpoint, and reports how long that takes", func(ctx SpecContext) {
		r := newRelease(ctx)
		run(r.options())
		r.account.Put(endpoint("ep-warm", "http://warm."+r.target))
		Eventually(service(ctx, r.target, "warm")).ShouldNot(BeZero())
		withWatch, err := client.NewWithWatch(config, client.Options{Scheme: kube.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		w, err := withWatch.Watch(ctx, &corev1.ServiceList{}, client.InNamespace(r.target))
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()

		var took []time.Duration
		for i := range 30 {
			name := fmt.Sprintf("e%d", i)
			began := time.Now()
			r.account.Put(endpoint("ep-"+name, "http://"+name+"."+r.target))
			waitFor(ctx, w, name)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		median, longest := took[len(took)/2], took[len(took)-1]
		AddReportEntry("event to both Services", fmt.Sprintf("median %s, maximum %s of %d", median, longest, len(took)))
	}, SpecTimeout(5*time.Minute))

	It("projects into a namespace the moment it appears", func(ctx SpecContext) {
		r := newRelease(ctx)
		run(r.options())
		later := r.target + "-later"
		r.account.Put(endpoint("ep-1", "http://api."+later))
		Eventually(r.ready(ctx, "api."+later)).Should(Equal("False NamespaceNotFound"))
		Expect(kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: later}})).To(Succeed())
		Eventually(service(ctx, later, "api")).Should(HaveField("Spec.Type", corev1.ServiceTypeExternalName))
		Eventually(r.ready(ctx, "api."+later)).Should(Equal("True Ready"))
	})

	It("keeps Services and address while an agent goes and comes back, and while the account is away",
		func(ctx SpecContext) {
			r := newRelease(ctx)
			run(r.options())
			e := endpoint("ep-1", "http://api."+r.target)
			r.account.Put(e)
			up, target := r.services(ctx, "ep-1", "api")
			r.account.Delete("ep-1")
			Eventually(func() bool { return r.bep(ctx, "api."+r.target).Spec.RemoveAfter != nil }).Should(BeTrue())
			r.account.Put(e)
			Eventually(func() bool { return r.bep(ctx, "api."+r.target).Spec.RemoveAfter != nil }).Should(BeFalse())

			r.account.Fail(errDown)
			r.account.Put(endpoint("ep-2", "http://web."+r.target))
			Consistently(service(ctx, r.target, "web")).WithTimeout(time.Second).Should(BeZero())
			r.account.Fail(nil)
			Eventually(service(ctx, r.target, "web")).ShouldNot(BeZero())
			nowUp, nowTarget := r.services(ctx, "ep-1", "api")
			Expect(nowUp).To(Equal(up))
			Expect(nowTarget).To(Equal(target))
		})

	It("starts while the account is away, keeps what is projected, and catches up", func(ctx SpecContext) {
		r := newRelease(ctx)
		stop := run(r.options())
		r.account.Put(endpoint("ep-1", "http://api."+r.target), endpoint("ep-2", "http://web."+r.target))
		up, target := r.services(ctx, "ep-1", "api")
		r.services(ctx, "ep-2", "web")
		stop()
		r.account.Delete("ep-2")
		r.account.Fail(errDown)
		run(r.options())
		Eventually(r.condition(ctx, v1alpha1.ConditionAPIReachable)).Should(Equal("False Unreachable"))
		Expect(r.bep(ctx, "web."+r.target).Spec.RemoveAfter).To(BeNil())
		r.account.Fail(nil)
		Eventually(func() bool { return r.bep(ctx, "web."+r.target).Spec.RemoveAfter != nil }).Should(BeTrue())
		nowUp, nowTarget := r.services(ctx, "ep-1", "api")
		Expect(nowUp).To(Equal(up))
		Expect(nowTarget).To(Equal(target))
	})

	It("starts while the API server is away, and stops in order", func(ctx SpecContext) {
		r := newRelease(ctx)
		var away atomic.Bool
		away.Store(true)
		o := r.options()
		o.Kubernetes = rest.CopyConfig(o.Kubernetes)
		o.Kubernetes.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if away.Load() {
					return nil, errDown
				}
				return next.RoundTrip(req)
			})
		})
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		stop := run(o)
		stop() // while it waits

		o.Metrics = prometheus.NewRegistry()
		run(o)
		Consistently(service(ctx, r.target, "api")).WithTimeout(time.Second).Should(BeZero())
		away.Store(false)
		r.services(ctx, "ep-1", "api")
	})

	It("registers the installation with what the values say", func(ctx SpecContext) {
		r := newRelease(ctx)
		o := r.options()
		o.EndpointSelector = "ep.description != 'Ärger: \"it\\'s\", a' && // $(HOME) $$\n  ep.hostname.endsWith(\"." +
			r.target + "\")"
		run(o)
		Eventually(r.condition(ctx, v1alpha1.ConditionRegistered)).Should(Equal("True Registered"))
		k := r.object(ctx)
		Expect(k.Spec).
			To(Equal(v1alpha1.KubernetesOperatorSpec{Description: "a test", BindingEnabled: true,
				EndpointSelector: o.EndpointSelector}))
		Expect(k.Status.OperatorID).To(Equal("op-1"))
		ns := &corev1.Namespace{}
		Expect(kube.Get(ctx, client.ObjectKey{Name: r.namespace}, ns)).To(Succeed())
		registered := r.account.Operators()[0]
		Expect(registered.ClusterUID).To(Equal(string(ns.UID)))
		Expect(registered.Binding.EndpointSelectors).To(Equal([]string{o.EndpointSelector}))

		r.account.Put(endpoint("ep-1", "http://api."+r.target), endpoint("ep-2", "http://api.elsewhere"))
		r.services(ctx, "ep-1", "api")
		Expect(r.hostnames(ctx)).To(Equal([]string{"api." + r.target}))
	})

	It("removes everything with binding.enabled=false, and still registers", func(ctx SpecContext) {
		r := newRelease(ctx)
		stop := run(r.options())
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		r.services(ctx, "ep-1", "api")
		stop()
		o := r.options()
		o.BindingEnabled = false
		run(o)
		Eventually(service(ctx, r.target, "api")).Should(BeZero())
		Eventually(service(ctx, r.namespace, "ep-1")).Should(BeZero())
		Eventually(func() bool { return r.object(ctx).Spec.BindingEnabled }).Should(BeFalse())
		Eventually(func() []string { // the object is written before the account is told
			return r.account.Operators()[len(r.account.Operators())-1].EnabledFeatures
		}).Should(BeEmpty())
	})

	It("removes nothing while another account's endpoints are listed, and says so, until that account is accepted",
		func(ctx SpecContext) {
			r := newRelease(ctx)
			o := r.options()
			o.RemovalDelay = 0
			stop := run(o)
			r.account.Put(endpoint("ep-1", "http://api."+r.target))
			r.services(ctx, "ep-1", "api")
			Eventually(r.condition(ctx, v1alpha1.ConditionAccountChanged)).Should(Equal("False AccountRecorded"))
			r.account.SwitchTo("ac-2")
			r.account.Put(endpoint("ep-2", "http://web."+r.target))
			r.services(ctx, "ep-2", "web")
			Eventually(r.condition(ctx, v1alpha1.ConditionAccountChanged)).Should(Equal("True AccountChanged"))
			stop()
			o.Metrics = prometheus.NewRegistry()
			stop = run(o)
			r.account.Put(endpoint("ep-3", "http://more."+r.target))
			r.services(ctx, "ep-3", "more")
			Expect(r.bep(ctx, "api."+r.target).Spec.State).To(Equal(v1alpha1.StateBound))
			Expect(r.object(ctx).Status.AccountID).To(Equal("ac-1"))
			stop()

			o.AcceptAccount, o.Metrics = "ac-2", prometheus.NewRegistry()
			run(o)
			Eventually(service(ctx, r.target, "api")).Should(BeZero())
			Eventually(r.condition(ctx, v1alpha1.ConditionAccountChanged)).Should(Equal("False AccountRecorded"))
			Expect(r.object(ctx).Status.AccountID).To(Equal("ac-2"))
			r.services(ctx, "ep-2", "web")
		})

	It("rebuilds a deleted object and adopts its Services", func(ctx SpecContext) {
		r := newRelease(ctx)
		run(r.options())
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		up, target := r.services(ctx, "ep-1", "api")
		before := r.bep(ctx, "api."+r.target)
		Expect(kube.Delete(ctx, before)).To(Succeed())
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("True Ready"))
		after := r.bep(ctx, "api."+r.target)
		Expect(after.UID).NotTo(Equal(before.UID))
		Expect(after.Spec).To(Equal(before.Spec))
		nowUp, nowTarget := r.services(ctx, "ep-1", "api")
		Expect(nowUp).To(Equal(up))
		Expect(nowTarget).To(Equal(target))
	})

	It("goes on with the others when one endpoint, one object or one Service is odd", func(ctx SpecContext) {
		r := newRelease(ctx)
		run(r.options())
		foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: r.target, Name: "shop"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		Expect(kube.Create(ctx, foreign)).To(Succeed())
		odd := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "odd." + r.target},
			Spec: v1alpha1.BoundEndpointSpec{Service: "odd", Namespace: r.target, ProjectionID: "x",
				Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: 10000}}}}
		Expect(kube.Create(ctx, odd)).To(Succeed())
		r.account.Put(endpoint("ep-0", "http://shop."+r.target), endpoint("ep-1", "http://odd."+r.target),
			endpoint("ep-2", "https://bad."+r.target),
			endpoint("ep-3", "tcp://bad."+r.target+":0"), endpoint("ep-4", "http://good."+r.target))
		r.services(ctx, "ep-4", "good")
		Eventually(r.ready(ctx, "shop."+r.target)).Should(Equal("False Conflict"))
		now := &corev1.Service{}
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(foreign), now)).To(Succeed())
		Expect(now.ResourceVersion).To(Equal(foreign.ResourceVersion))
		Expect(r.bep(ctx, "odd."+r.target).ResourceVersion).To(Equal(odd.ResourceVersion))
		Eventually(func() (reasons []string) {
			var list eventsv1.EventList
			Expect(kube.List(ctx, &list, client.InNamespace(r.namespace))).To(Succeed())
			for _, e := range list.Items {
				reasons = append(reasons, e.Reason+" "+e.Note)
			}
			return reasons
		}).Should(ContainElements(ContainSubstring("https://bad."), ContainSubstring("tcp://bad."),
			ContainSubstring("odd."),
			ContainSubstring("Service "+r.target+"/shop")))
	})

	It("writes four times for an endpoint, and at rest not at all", func(ctx SpecContext) {
		r := newRelease(ctx)
		w := &writes{count: map[string]int{}}
		o := r.options()
		o.Kubernetes = w.wrap(o.Kubernetes)
		run(o)
		Eventually(r.condition(ctx, v1alpha1.ConditionRegistered)).Should(Equal("True Registered"))
		r.account.Put(endpoint("ep-0", "http://e0."+r.target))
		Eventually(r.ready(ctx, "e0."+r.target)).Should(Equal("True Ready"))
		Eventually(w.quiet).Should(BeTrue())
		w.take()
		for i := range 20 {
			r.account.Put(endpoint(fmt.Sprintf("ep-x%d", i), fmt.Sprintf("http://x%d.%s", i, r.target)))
		}
		for i := range 20 {
			Eventually(r.ready(ctx, fmt.Sprintf("x%d.%s", i, r.target))).Should(Equal("True Ready"))
		}
		Eventually(w.quiet).Should(BeTrue())
		Expect(w.take()).
			To(Equal(map[string]int{"POST boundendpoints": 20, "POST services": 40, "PUT boundendpoints/status": 20}))
		Consistently(w.take).WithTimeout(3 * time.Second).Should(BeEmpty())
	})

	It("hands over to a second manager when the first stops, and nothing changes", func(ctx SpecContext) {
		r := newRelease(ctx)
		stop := run(r.options())
		run(r.options())
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		up, _ := r.services(ctx, "ep-1", "api")
		stop()
		r.account.Put(endpoint("ep-2", "http://web."+r.target))
		r.services(ctx, "ep-2", "web")
		now, _ := r.services(ctx, "ep-1", "api")
		Expect(now).To(Equal(up))
	})

	DescribeTable("leaves nothing behind, without a finalizer, while it does not run",
		func(ctx SpecContext, uninstall func(context.Context, *release)) {
			r := newRelease(ctx)
			stop := run(r.options())
			r.account.Put(endpoint("ep-1", "http://api."+r.target))
			r.services(ctx, "ep-1", "api")
			stop()
			uninstall(ctx, r)
			Eventually(service(ctx, r.target, "api")).Should(BeZero())
			Eventually(service(ctx, r.namespace, "ep-1")).Should(BeZero())
			Eventually(func() []string { return r.hostnames(ctx) }).Should(BeEmpty())
		},
		Entry("when the chart's anchors go", func(ctx context.Context, r *release) {
			deleteAnchors(ctx, "", r.anchor())
			deleteAnchors(ctx, r.namespace, anchor)
		}),
		Entry("when the namespace goes", func(ctx context.Context, r *release) {
			Expect(kube.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}})).To(Succeed())
		}),
	)
})

// ready returns the status and reason of Ready.
func (r *release) ready(ctx context.Context, hostname string) func() string {
	return func() string {
		b := &v1alpha1.BoundEndpoint{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: hostname}, b); err != nil {
			return err.Error()
		}
		return fixture.StatusAndReason(b.Status.Conditions, v1alpha1.ConditionReady)
	}
}

func (r *release) object(ctx context.Context) *v1alpha1.KubernetesOperator {
	k := &v1alpha1.KubernetesOperator{}
	_ = kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "fairlead"}, k) // empty where there is none yet
	return k
}

// condition returns the status and reason of a condition of the KubernetesOperator.
func (r *release) condition(ctx context.Context, typ string) func() string {
	return func() string { return fixture.StatusAndReason(r.object(ctx).Status.Conditions, typ) }
}

// services waits for both Services of an endpoint in the target namespace.
func (r *release) services(ctx context.Context, id, name string) (upstream, target *corev1.Service) {
	GinkgoHelper()
	Eventually(service(ctx, r.namespace, id)).ShouldNot(BeZero())
	Eventually(service(ctx, r.target, name)).ShouldNot(BeZero())
	upstream, _ = service(ctx, r.namespace, id)()
	target, _ = service(ctx, r.target, name)()
	return upstream, target
}

func (r *release) hostnames(ctx context.Context) []string {
	GinkgoHelper()
	var list v1alpha1.BoundEndpointList
	Expect(kube.List(ctx, &list, client.InNamespace(r.namespace))).To(Succeed())
	var names []string
	for _, b := range list.Items {
		names = append(names, b.Name)
	}
	return names
}

// waitFor returns when the watch has shown the Service of that name; the target Service is the
// second of the two to be written.
func waitFor(ctx context.Context, w watch.Interface, name string) {
	GinkgoHelper()
	for {
		select {
		case <-ctx.Done():
			Fail("no Service " + name)
		case e := <-w.ResultChan():
			if s, ok := e.Object.(*corev1.Service); ok && s.Name == name && e.Type == watch.Added {
				return
			}
		}
	}
}
