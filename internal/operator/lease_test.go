// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("what is left of a manager", func() {
	It("has owners: the Lease goes with the release, cluster-wide rights go with the namespace", func(ctx SpecContext) {
		r := newRelease(ctx)
		stop := run(r.options())
		defer stop()
		lease := &coordinationv1.Lease{}
		Eventually(ctx, func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "fairlead-operator"}, lease)).To(Succeed())
			g.Expect(lease.OwnerReferences).To(HaveLen(1))
		}).WithTimeout(time.Minute).Should(Succeed())
		Expect(lease.OwnerReferences[0].Kind).To(Equal("Role"))
		Expect(lease.OwnerReferences[0].Name).To(Equal(anchor))
		Expect(lease.Annotations).To(HaveKeyWithValue("bindings.fairlead.dev/installed-by", r.namespace+"/fairlead"))
		for o, name := range map[client.Object]string{&rbacv1.ClusterRole{}: r.anchor(), &rbacv1.ClusterRole{}: r.user(), &rbacv1.ClusterRoleBinding{}: r.user()} {
			Eventually(ctx, func(g Gomega) {
				g.Expect(kube.Get(ctx, client.ObjectKey{Name: name}, o)).To(Succeed())
				g.Expect(o.GetOwnerReferences()).To(HaveLen(1))
				g.Expect(o.GetOwnerReferences()[0].Kind + "/" + o.GetOwnerReferences()[0].Name).To(Equal("Namespace/" + r.namespace))
			}).WithTimeout(time.Minute).Should(Succeed())
		}
	})
})
