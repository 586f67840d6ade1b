// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"io"
	"log/slog"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/logbuffer"
)

// As after an upgrade with rights, or CRDs, of an earlier version.
var _ = Describe("a manager that may not read a kind", func() {
	It("tells which right is missing, and begins when it is given", func(ctx SpecContext) {
		r := newRelease(ctx)
		role := &rbacv1.ClusterRole{}
		Expect(kube.Get(ctx, client.ObjectKey{Name: r.user()}, role)).To(Succeed())
		all := role.DeepCopy().Rules
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, "endpointaccesses")
		})
		Expect(role.Rules).NotTo(HaveLen(len(all)))
		Expect(kube.Update(ctx, role)).To(Succeed())
		var logs logbuffer.Buffer
		o := r.options()
		o.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(&logs, GinkgoWriter), nil))
		run(o)
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(logs.String).Should(And(ContainSubstring("the manager does not begin without it"),
			ContainSubstring("endpointaccesses.bindings.fairlead.dev is forbidden"),
			ContainSubstring("the rights that this version's chart renders")))
		Consistently(r.holder(ctx)).WithTimeout(time.Second).Should(BeEmpty(), "an earlier manager leads meanwhile")
		role.Rules = all
		Expect(kube.Update(ctx, role)).To(Succeed())
		Eventually(r.ready(ctx, "api."+r.target)).WithTimeout(time.Minute).Should(Equal("True Ready"))
	})

	It("tells which CRD is missing, and begins when it is applied", Serial, func(ctx SpecContext) {
		r := newRelease(ctx)
		name := client.ObjectKey{Name: "endpointaccesses.bindings.fairlead.dev"}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(kube.Get(ctx, name, crd)).To(Succeed())
		Expect(kube.Delete(ctx, crd)).To(Succeed())
		again := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: crd.Name,
			Labels: crd.Labels, Annotations: crd.Annotations}, Spec: crd.Spec}
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreAlreadyExists(kube.Create(ctx, again.DeepCopy()))).To(Succeed())
		})
		Eventually(func() bool { return apierrors.IsNotFound(kube.Get(ctx, name, crd)) }).Should(BeTrue())
		var logs logbuffer.Buffer
		o := r.options()
		o.Logger = slog.New(slog.NewTextHandler(io.MultiWriter(&logs, GinkgoWriter), nil))
		run(o)
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(logs.String).Should(And(ContainSubstring("the manager does not begin without it"),
			ContainSubstring("EndpointAccess"), ContainSubstring("crds.install=true")))
		Consistently(r.holder(ctx)).WithTimeout(time.Second).Should(BeEmpty(), "an earlier manager leads meanwhile")
		Expect(kube.Create(ctx, again.DeepCopy())).To(Succeed())
		Eventually(r.ready(ctx, "api."+r.target)).WithTimeout(time.Minute).Should(Equal("True Ready"))
	})
})
