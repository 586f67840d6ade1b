// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
)

// relying are forwarders that leave the decision to NetworkPolicies while it is set.
type relying struct {
	listening
	atomic.Bool
}

func (r *relying) NetworkPoliciesReliedOn() bool { return r.Load() }

// written returns the digest of the target namespace's objects that the NetworkPolicies are written
// of, "none" where nothing is recorded.
func (r *release) written(ctx context.Context) func() string {
	return func() string {
		if w := r.object(ctx).Status.NetworkPolicies; w != nil {
			return w.Namespaces[r.target]
		}
		return "none"
	}
}

func digestOf(o *v1alpha1.EndpointAccess) string {
	policy := accesspolicy.Of(o)
	return endpointaccess.Digest([]*endpointaccess.Policy{&policy})
}

var _ = Describe("the record of NetworkPolicies", func() {
	It("has the objects that the policies are written of, and none that could not be written", func(ctx SpecContext) {
		r := newRelease(ctx)
		var policies refusal
		o := r.policyOptions()
		o.Kubernetes.Wrap(policies.wrap)
		run(o)
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(r.condition(ctx, v1alpha1.ConditionNetworkPoliciesWritten)).Should(Equal("True Written"))
		// any write of the status publishes the condition, the record's among them
		Eventually(func() *v1alpha1.WrittenNetworkPolicies { return r.object(ctx).Status.NetworkPolicies }).
			Should(And(Not(BeNil()), HaveField("DefaultAccess", "allow")))
		// the record is of EndpointAccess objects: it can be ahead of a port that is not bound yet
		Eventually(service(ctx, r.target, "api")).ShouldNot(BeNil())
		access := r.restrict(ctx)
		Eventually(r.written(ctx)).Should(Equal(digestOf(access)))
		Expect(r.policy(ctx, portPolicy)()).To(Equal(shopOnly))

		By("refusing the policy of a changed object")
		policies.set("networkpolicies")
		allowData := client.RawPatch(types.MergePatchType,
			[]byte(`{"spec":{"from":[{"namespaceSelector":{"matchLabels":{"team":"data"}}}]}}`))
		Expect(kube.Patch(ctx, access, allowData)).To(Succeed())
		Eventually(r.written(ctx)).Should(Equal(v1alpha1.NetworkPoliciesNotWritten))
		Consistently(r.written(ctx), time.Second).Should(Equal(v1alpha1.NetworkPoliciesNotWritten))

		By("refusing the base policy of a new object")
		Expect(kube.Delete(ctx, access)).To(Succeed())
		Eventually(r.written(ctx)).Should(Equal("none"))
		Expect(r.condition(ctx, v1alpha1.ConditionNetworkPoliciesWritten)()).To(Equal("False NotWritten"))
		policies.set("")
		access = r.restrict(ctx)
		Eventually(r.written(ctx)).Should(Equal(digestOf(access)))
		Expect(r.policy(ctx, portPolicy)()).To(Equal(shopOnly))
	})

	It("goes before the policies go, and those wait for forwarders that rely on them", func(ctx SpecContext) {
		r := newRelease(ctx)
		r.restrict(ctx)
		o := r.policyOptions()
		stop := run(o)
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(r.policy(ctx, portPolicy)).Should(Equal(shopOnly))
		Eventually(r.written(ctx)).ShouldNot(Equal("none"))
		stop()

		forwarders := &relying{}
		forwarders.Store(true)
		o = r.policyOptions()
		o.NetworkPolicies, o.Forwarders = false, forwarders
		run(o)
		Eventually(r.written(ctx)).Should(Equal("none"))
		Eventually(r.condition(ctx, v1alpha1.ConditionNetworkPoliciesWritten)).Should(BeEmpty())
		Consistently(r.policy(ctx, portPolicy), time.Second).Should(Equal(shopOnly))
		forwarders.Store(false)
		Eventually(r.policy(ctx, portPolicy)).Should(Equal("none"))
		Eventually(r.policy(ctx, basePolicy)).Should(Equal("none"))
	})

	It("survives a manager that starts again, and is closed for objects that changed meanwhile", func(ctx SpecContext) {
		r := newRelease(ctx)
		access := r.restrict(ctx)
		stop := run(r.policyOptions())
		Eventually(r.written(ctx)).Should(Equal(digestOf(access)))
		stop()
		before := r.object(ctx).Status.NetworkPolicies
		Expect(before).NotTo(BeNil())

		changed := access.DeepCopy()
		Expect(kube.Patch(ctx, changed, noPod)).To(Succeed())
		Expect(r.object(ctx).Status.NetworkPolicies).To(Equal(before), "no manager runs")
		Expect(r.written(ctx)()).NotTo(Equal(digestOf(changed)))
		run(r.policyOptions())
		Eventually(r.written(ctx)).Should(Equal(digestOf(changed)))
	})
})
