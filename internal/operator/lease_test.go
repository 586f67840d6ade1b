// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"log/slog"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
)

var _ = Describe("the manager's objects", func() {
	It("have owners: the Lease goes with the release, cluster-wide rights go with the namespace",
		func(ctx SpecContext) {
			r := newRelease(ctx)
			stop := run(r.options())
			defer stop()
			lease := &coordinationv1.Lease{}
			Eventually(ctx, func(g Gomega) {
				g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "fairlead-operator"}, lease)).
					To(Succeed())
				g.Expect(lease.OwnerReferences).To(HaveLen(2))
			}).WithTimeout(time.Minute).Should(Succeed())
			Expect(lease.OwnerReferences[0].Kind).To(Equal("Role"))
			Expect(lease.OwnerReferences[0].Name).To(Equal(anchor))
			Expect(lease.Annotations).To(HaveKeyWithValue("bindings.fairlead.dev/installed-by",
				r.namespace+"/fairlead"))
			for o, name := range map[client.Object]string{&rbacv1.ClusterRole{}: r.anchor(),
				&rbacv1.ClusterRole{}:        r.user(),
				&rbacv1.ClusterRoleBinding{}: r.user()} {
				Eventually(ctx, func(g Gomega) {
					g.Expect(kube.Get(ctx, client.ObjectKey{Name: name}, o)).To(Succeed())
					g.Expect(o.GetOwnerReferences()).To(HaveLen(1))
					g.Expect(o.GetOwnerReferences()[0].Kind + "/" + o.GetOwnerReferences()[0].Name).
						To(Equal("Namespace/" + r.namespace))
				}).WithTimeout(time.Minute).Should(Succeed())
			}
		})

	It("own the ClusterRoles of exporters and their users, which need no binding", func(ctx SpecContext) {
		r := newReleaseOf(ctx, exporting)
		o := r.options()
		for _, suffix := range []string{"exporter", "exports-edit", "exports-view", "of-a-newer-chart"} {
			o.Roles.ExporterRights = append(o.Roles.ExporterRights, r.namespace+".fairlead-operator-"+suffix)
		}
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: o.Roles.ExporterRights[0]}}
		run(o)
		objects := []client.Object{binding}
		for _, name := range o.Roles.ExporterRights[:3] {
			objects = append(objects, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		for _, o := range objects {
			Eventually(ctx, func(g Gomega) {
				g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
				g.Expect(o.GetOwnerReferences()).To(ConsistOf(HaveField("Name", r.namespace)))
			}).WithTimeout(time.Minute).Should(Succeed())
		}
	})

	DescribeTable("stay while an anchor is deleted and made again, and get it back as an owner",
		func(ctx SpecContext, rendered string, place func(r *release) (namespace, name string)) {
			r := newReleaseOf(ctx, rendered)
			o := r.options()
			if rendered == listedNamespaces {
				o = r.listedOptions()
			}
			run(o)
			r.account.Put(endpoint("ep-1", "http://api."+r.target))
			Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("True Ready"))
			uids := func() []types.UID {
				var upstream, target corev1.Service
				Expect(kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "ep-1"}, &upstream)).To(Succeed())
				Expect(kube.Get(ctx, client.ObjectKey{Namespace: r.target, Name: "api"}, &target)).To(Succeed())
				return []types.UID{upstream.UID, target.UID, r.bep(ctx, "api."+r.target).UID}
			}
			before := uids()
			namespace, name := place(r)
			for _, anchor := range anchors(namespace, name) {
				Expect(kube.Get(ctx, client.ObjectKeyFromObject(anchor), anchor)).To(Succeed())
				gone := anchor.GetUID()
				Expect(kube.Delete(ctx, anchor)).To(Succeed())
				anchor.SetResourceVersion("")
				Expect(kube.Create(ctx, anchor)).To(Succeed())
				owned := []client.Object{&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: r.target,
					Name: "api"}}}
				if namespace == r.namespace {
					owned = []client.Object{&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
						Name: "ep-1"}}, r.bep(ctx, "api."+r.target)}
				}
				for _, o := range owned {
					Eventually(func(g Gomega) {
						g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
						g.Expect(o.GetOwnerReferences()).To(HaveLen(2))
						g.Expect(o.GetOwnerReferences()).To(ContainElement(HaveField("UID", anchor.GetUID())))
						g.Expect(o.GetOwnerReferences()).NotTo(ContainElement(HaveField("UID", gone)))
					}).WithTimeout(time.Minute).Should(Succeed())
				}
				Expect(uids()).To(Equal(before))
			}
			Expect(r.ready(ctx, "api."+r.target)()).To(Equal("True Ready"))
		},
		Entry("of the cluster", clusterWide, func(r *release) (string, string) { return "", r.anchor() }),
		Entry("of the operator's namespace", clusterWide, func(r *release) (string, string) {
			return r.namespace, anchor
		}),
		Entry("of a listed namespace", listedNamespaces, func(r *release) (string, string) {
			return r.target, r.anchor()
		}),
	)

	It("get their owners back after a restore that left them out", func(ctx SpecContext) {
		r := newRelease(ctx)
		stop := run(r.options())
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		upstream, target := r.services(ctx, "ep-1", "api")
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("True Ready"))
		stop()
		objects := []client.Object{upstream, target, r.bep(ctx, "api."+r.target)}
		for _, o := range objects {
			o.SetOwnerReferences(nil)
			Expect(kube.Update(ctx, o)).To(Succeed())
		}
		o := r.options()
		o.Metrics = prometheus.NewRegistry()
		run(o)
		for _, o := range objects {
			uid := o.GetUID()
			Eventually(func() ([]metav1.OwnerReference, error) {
				return o.GetOwnerReferences(), kube.Get(ctx, client.ObjectKeyFromObject(o), o)
			}).Should(HaveLen(2))
			Expect(o.GetUID()).To(Equal(uid))
		}
	})

	It("are not made while another release runs in the namespace, which is reported once, until that one is removed",
		func(ctx SpecContext) {
			r := newRelease(ctx)
			stop := run(r.options())
			r.account.Put(endpoint("ep-1", "http://api."+r.target))
			r.services(ctx, "ep-1", "api")
			second := r.options()
			second.Release = "second"
			var logs logbuffer.Buffer
			second.Logger = slog.New(slog.NewTextHandler(&logs, nil))
			run(second)
			runs := "release " + r.namespace + "/fairlead runs in this namespace"
			Eventually(r.secondReleaseEvents(ctx)).Should(ConsistOf(
				And(ContainSubstring("release second is inactive"), ContainSubstring(runs))))
			registered := func() *metav1.Condition {
				k := &v1alpha1.KubernetesOperator{}
				if err := kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "second"}, k); err != nil {
					return nil
				}
				return meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionRegistered)
			}
			Eventually(registered).Should(And(HaveField("Reason", v1alpha1.ReasonSecondRelease),
				HaveField("Message", ContainSubstring(runs))))
			Eventually(logs.String).Should(ContainSubstring("Another release runs in this namespace"))
			Consistently(func() int {
				return strings.Count(logs.String(), "Another release runs")
			}).WithTimeout(5 * time.Second).Should(Equal(1))
			Expect(r.secondReleaseEvents(ctx)()).To(HaveLen(1))
			stop()
			Eventually(registered).Should(HaveField("Reason", v1alpha1.ReasonRegistered))
		})
})

// secondReleaseEvents returns the notes of the events about a second release.
func (r *release) secondReleaseEvents(ctx context.Context) func() []string {
	return func() (notes []string) {
		var list eventsv1.EventList
		Expect(kube.List(ctx, &list, client.InNamespace(r.namespace))).To(Succeed())
		for _, e := range list.Items {
			if e.Reason == v1alpha1.ReasonSecondRelease {
				notes = append(notes, e.Note)
			}
		}
		return notes
	}
}
