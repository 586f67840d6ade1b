// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

var _ = Describe("a forged BoundEndpoint", func() {
	It("gets no Service and is deleted at once", func(ctx SpecContext) {
		r := newRelease(ctx)
		run(r.options())
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("True Ready"))
		forged := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace,
			Name: "forged." + r.target}}
		forged.Spec = v1alpha1.BoundEndpointSpec{Service: "forged", Namespace: r.target, ProjectionID: "ep-forged",
			Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: 12345}}}
		installation.Installation{Namespace: r.namespace, Release: "fairlead"}.Mark(forged)
		forged.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionServicesReady, ObservedGeneration: 1}}
		Expect(kube.Create(ctx, forged)).To(Succeed())
		Expect(forged.Observed()).To(BeFalse(), "the status of a new object is dropped")
		gone := func() bool {
			now := &v1alpha1.BoundEndpoint{}
			err := kube.Get(ctx, client.ObjectKeyFromObject(forged), now)
			Expect(now.Observed()).To(BeFalse())
			return apierrors.IsNotFound(err)
		}
		Eventually(gone).Should(BeTrue())
		Expect(service(ctx, r.target, "forged")()).To(BeNil())
		Expect(service(ctx, r.namespace, "ep-forged")()).To(BeNil())
	})
})
