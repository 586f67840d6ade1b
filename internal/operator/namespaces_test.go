// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator"
)

// listedOptions are those of a release whose chart lists the two target namespaces.
func (r *release) listedOptions() operator.ManagerOptions {
	o := r.options()
	o.AllowNamespaces, o.NamespaceRetry = []string{r.target, r.second}, 100*time.Millisecond
	return o
}

// takeRights deletes the RoleBinding of one target namespace and returns a function that restores
// it.
func (r *release) takeRights(ctx context.Context, namespace string) (give func()) {
	GinkgoHelper()
	binding := &rbacv1.RoleBinding{}
	Expect(kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: r.user()}, binding)).To(Succeed())
	Expect(kube.Delete(ctx, binding)).To(Succeed())
	return func() {
		GinkgoHelper()
		again := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: binding.Name},
			RoleRef: binding.RoleRef, Subjects: binding.Subjects}
		Expect(kube.Create(ctx, again)).To(Succeed())
	}
}

// requests records the requested paths, as "VERB path".
type requests struct {
	mu   sync.Mutex
	seen []string
}

func (q *requests) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		q.mu.Lock()
		q.seen = append(q.seen, req.Method+" "+req.URL.Path)
		q.mu.Unlock()
		return next.RoundTrip(req)
	})
}

func (q *requests) all() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]string(nil), q.seen...)
}

var _ = Describe("the manager with listed namespaces", func() {
	It("does its whole job with Roles only, and asks for nothing outside of them", func(ctx SpecContext) {
		r := newReleaseOf(ctx, listedNamespaces)
		var asked requests
		o := r.listedOptions()
		o.Kubernetes.Wrap(asked.wrap)
		o.RemovalDelay = 0
		run(o)
		Eventually(r.condition(ctx, v1alpha1.ConditionRegistered)).Should(Equal("True Registered"))
		r.account.Put(endpoint("ep-1", "http://api."+r.target), endpoint("ep-2", "http://web."+r.second),
			endpoint("ep-3", "http://api.elsewhere"))
		r.services(ctx, "ep-1", "api")
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("True Ready"))
		Eventually(r.ready(ctx, "web."+r.second)).Should(Equal("True Ready"))
		Eventually(r.ready(ctx, "api.elsewhere")).Should(Equal("False NamespaceNotAllowed"))

		By("repairing and re-creating")
		target, err := service(ctx, r.target, "api")()
		Expect(err).NotTo(HaveOccurred())
		Expect(target.OwnerReferences).To(ConsistOf(HaveField("Kind", "Role"), HaveField("Kind", "RoleBinding")))
		target.Spec.ExternalName = "example.net"
		Expect(kube.Update(ctx, target)).To(Succeed())
		Eventually(service(ctx, r.target, "api")).Should(HaveField("Spec.ExternalName", HavePrefix("ep-1.")))
		Expect(kube.Delete(ctx, target)).To(Succeed())
		Eventually(service(ctx, r.target, "api")).
			Should(And(Not(BeZero()), HaveField("ObjectMeta.UID", Not(Equal(target.UID)))))

		By("staying away from a foreign Service, and taking its name when it is free")
		foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: r.target, Name: "shop"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		Expect(kube.Create(ctx, foreign)).To(Succeed())
		r.account.Put(endpoint("ep-4", "http://shop."+r.target))
		Eventually(r.ready(ctx, "shop."+r.target)).Should(Equal("False Conflict"))

		By("removing")
		r.account.Delete("ep-2")
		Eventually(service(ctx, r.second, "web")).Should(BeZero())
		Eventually(service(ctx, r.namespace, "ep-2")).Should(BeZero())

		Expect(asked.all()).NotTo(BeEmpty())
		for _, path := range asked.all() {
			namespaced := strings.Contains(path, "/namespaces/"+r.namespace) ||
				strings.Contains(path, "/namespaces/"+r.target) || strings.Contains(path, "/namespaces/"+r.second)
			Expect(namespaced).To(BeTrue(), path)
			Expect(path).NotTo(ContainSubstring("secrets"))
		}
	})

	It("is neither blocked nor delayed by a namespace without rights, which is reported and recovers",
		func(ctx SpecContext) {
			r := newReleaseOf(ctx, listedNamespaces)
			give := r.takeRights(ctx, r.second)
			o := r.listedOptions()
			run(o)
			r.account.Put(endpoint("ep-2", "http://web."+r.second), endpoint("ep-1", "http://api."+r.target))
			r.services(ctx, "ep-1", "api")
			Eventually(r.ready(ctx, "web."+r.second)).Should(Equal("False NamespaceForbidden"))
			c := meta.FindStatusCondition(r.bep(ctx, "web."+r.second).Status.Conditions,
				v1alpha1.ConditionServicesReady)
			Expect(c.Message).To(And(ContainSubstring(r.user()), ContainSubstring(r.second),
				ContainSubstring("forbidden")))
			give()
			Eventually(service(ctx, r.second, "web")).ShouldNot(BeZero())
			Eventually(r.ready(ctx, "web."+r.second)).Should(Equal("True Ready"))
		})

	It("reports the missing Role that owns the Services of a namespace", func(ctx SpecContext) {
		r := newReleaseOf(ctx, listedNamespaces)
		deleteAnchors(ctx, r.target, r.anchor())
		run(r.listedOptions())
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("False NamespaceForbidden"))
		c := meta.FindStatusCondition(r.bep(ctx, "api."+r.target).Status.Conditions, v1alpha1.ConditionServicesReady)
		Expect(c.Message).To(ContainSubstring(r.target + "/" + r.anchor()))
		Expect(service(ctx, r.target, "api")()).To(BeZero())
	})

	It("loses what it has in a namespace when the Role there goes, and keeps the rest", func(ctx SpecContext) {
		r := newReleaseOf(ctx, listedNamespaces)
		stop := run(r.listedOptions())
		r.account.Put(endpoint("ep-1", "http://api."+r.target), endpoint("ep-2", "http://web."+r.second))
		r.services(ctx, "ep-1", "api")
		Eventually(r.ready(ctx, "web."+r.second)).Should(Equal("True Ready"))
		kept, err := service(ctx, r.second, "web")()
		Expect(err).NotTo(HaveOccurred())
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("True Ready"))
		stop()
		// as an upgrade does that takes the namespace off the list
		for _, o := range []client.Object{&rbacv1.Role{}, &rbacv1.RoleBinding{}} {
			o.SetNamespace(r.target)
			o.SetName(r.user())
			Expect(kube.Delete(ctx, o)).To(Succeed())
		}
		deleteAnchors(ctx, r.target, r.anchor())
		o := r.listedOptions()
		o.AllowNamespaces = []string{r.second}
		run(o)
		Eventually(service(ctx, r.target, "api")).Should(BeZero())
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("False NamespaceNotAllowed"))
		Eventually(service(ctx, r.namespace, "ep-1")).Should(BeZero())
		Expect(service(ctx, r.second, "web")()).To(Equal(kept))
	})

	It("removes what it has in a namespace that is off the list while the rights are still there",
		func(ctx SpecContext) {
			r := newReleaseOf(ctx, listedNamespaces)
			stop := run(r.listedOptions())
			r.account.Put(endpoint("ep-1", "http://api."+r.target))
			Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("True Ready"))
			stop()
			o := r.listedOptions()
			o.AllowNamespaces = []string{r.second}
			run(o)
			Eventually(service(ctx, r.target, "api")).Should(BeZero())
			Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("False NamespaceNotAllowed"))
		})

	It("leaves nothing when its own namespace is deleted, though nothing there can own the Services",
		func(ctx SpecContext) {
			r := newReleaseOf(ctx, listedNamespaces)
			run(r.listedOptions())
			for _, name := range []string{"a", "b", "c"} {
				r.account.Put(endpoint("ep-"+name, "http://"+name+"."+r.target),
					endpoint("ep-2"+name, "http://"+name+"."+r.second))
			}
			for _, name := range []string{"a", "b", "c"} {
				Eventually(r.ready(ctx, name+"."+r.target)).Should(Equal("True Ready"))
				Eventually(r.ready(ctx, name+"."+r.second)).Should(Equal("True Ready"))
			}
			Expect(kube.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}})).To(Succeed())
			for _, ns := range []string{r.target, r.second} {
				Eventually(func() ([]corev1.Service, error) {
					var list corev1.ServiceList
					err := kube.List(ctx, &list, client.InNamespace(ns))
					return list.Items, err
				}).Should(BeEmpty())
			}
			Eventually(func() bool {
				return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKey{Name: r.namespace}, &corev1.Namespace{}))
			}).Should(BeTrue())
		})
})

var _ = Describe("consent by label", func() {
	It("projects when it is given and removes at once when it is withdrawn", func(ctx SpecContext) {
		r := newRelease(ctx)
		o := r.options()
		o.NamespaceSelector = "fairlead=yes"
		run(o)
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("False NamespaceNotAllowed"))
		Expect(service(ctx, r.namespace, "ep-1")()).To(BeZero())
		label := func(value string) {
			ns := &corev1.Namespace{}
			Expect(kube.Get(ctx, client.ObjectKey{Name: r.target}, ns)).To(Succeed())
			ns.Labels["fairlead"] = value
			Expect(kube.Update(ctx, ns)).To(Succeed())
		}
		label("yes")
		up, _ := r.services(ctx, "ep-1", "api")
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("True Ready"))
		label("no")
		Eventually(service(ctx, r.target, "api")).Should(BeZero())
		Eventually(service(ctx, r.namespace, "ep-1")).Should(BeZero())
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("False NamespaceNotAllowed"))
		label("yes")
		now, _ := r.services(ctx, "ep-1", "api")
		Expect(now.Spec.ClusterIP).To(Equal(up.Spec.ClusterIP))
	})
})
