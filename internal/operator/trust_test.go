// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/options"
	"github.com/fairlead-dev/fairlead/test/support/fixture"
)

var _ = Describe("EndpointTrust objects", func() {
	DescribeTable("say in their conditions which others contradict them",
		func(ctx SpecContext, rendered string) {
			r := newReleaseOf(ctx, rendered)
			o := r.options()
			o.Seal = options.Seal{Sealed: "off", SealAccount: "ac-1"}
			if rendered == listedNamespaces {
				o.AllowNamespaces = []string{r.target, r.second}
			}
			run(o)
			trust := func(name, key string) *v1alpha1.EndpointTrust {
				t := &v1alpha1.EndpointTrust{ObjectMeta: metav1.ObjectMeta{Namespace: r.target, Name: name},
					Spec: v1alpha1.EndpointTrustSpec{
						EndpointSelection: v1alpha1.EndpointSelection{Endpoints: []string{"a*"}},
						Mode:              "Require", Keys: []string{key}}}
				Expect(kube.Create(ctx, t)).To(Succeed())
				return t
			}
			accepted := func(t *v1alpha1.EndpointTrust, want, message string) {
				GinkgoHelper()
				Eventually(func(g Gomega) {
					g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(t), t)).To(Succeed())
					c := t.Status.Conditions
					g.Expect(fixture.StatusAndReason(c, v1alpha1.ConditionAccepted)).To(Equal(want))
					g.Expect(fixture.StatusAndReason(c, v1alpha1.ConditionForwardersEnforce)).To(Equal("True Enforced"))
					g.Expect(c[0].Message).To(ContainSubstring(message))
				}).Should(Succeed())
			}
			url := "tcp://api." + r.target + ":5432"
			r.account.Put(endpoint("ep-1", url))
			sealed := func(column, want string) {
				GinkgoHelper()
				Eventually(func(g Gomega) {
					b := r.bep(ctx, "api."+r.target)
					g.Expect(b.Status.Sealed).To(Equal(column))
					g.Expect(fixture.StatusAndReason(b.Status.Conditions, v1alpha1.ConditionSealed)).To(Equal(want))
				}).WithTimeout(30 * time.Second).Should(Succeed())
			}
			Eventually(service(ctx, r.target, "api")).ShouldNot(BeZero())
			sealed("no", "")
			first := trust("first", "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
			accepted(first, "True Accepted", "one of these keys: 1")
			sealed("pinned", "False NotSealed")
			e := endpoint("ep-1", url)
			e.SealKey = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
			r.account.Put(e)
			sealed("pinned", "True Pinned")
			second := trust("second", "sha256/57DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
			accepted(first, "False Conflict", "EndpointTrust second selects")
			accepted(second, "False Conflict", "EndpointTrust first selects")
			sealed("refused", "False Conflict")
			Expect(kube.Delete(ctx, first)).To(Succeed())
			accepted(second, "True Accepted", "one of these keys: 1")
		},
		Entry("in all namespaces", clusterWide),
		Entry("in listed namespaces", listedNamespaces))

	It("pin the first key of an endpoint, which the service cannot replace, until a person deletes the pin",
		func(ctx SpecContext) {
			const first, second = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
				"sha256/57DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
			r := newRelease(ctx)
			o := r.options()
			o.Seal, o.RemovalDelay = options.Seal{Sealed: "off", SealAccount: "ac-1"}, time.Second
			run(o)
			t := &v1alpha1.EndpointTrust{ObjectMeta: metav1.ObjectMeta{Namespace: r.target, Name: "all"},
				Spec: v1alpha1.EndpointTrustSpec{Mode: "Require",
					EndpointSelection: v1alpha1.EndpointSelection{Endpoints: []string{"*"}}}}
			Expect(kube.Create(ctx, t)).To(Succeed())
			url := "tcp://db." + r.target + ":5432"
			announce := func(key string) {
				e := endpoint("ep-"+key[7:9], url)
				e.SealKey = key
				r.account.Put(e)
			}
			shows := func(pin, want string) {
				GinkgoHelper()
				Eventually(func(g Gomega) {
					g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(t), t)).To(Succeed())
					g.Expect(t.Status.Pins).To(Equal(map[string]string{url: pin}))
					b := r.bep(ctx, "db."+r.target)
					g.Expect(b.Status.Sealed).To(Equal("first-sight"))
					g.Expect(fixture.StatusAndReason(b.Status.Conditions, v1alpha1.ConditionSealed)).To(Equal(want))
				}).WithTimeout(40 * time.Second).Should(Succeed())
			}
			announce(first)
			Eventually(service(ctx, r.target, "db")).ShouldNot(BeZero())
			shows(first, "True FirstSight")
			r.account.Delete("ep-" + first[7:9])
			Eventually(service(ctx, r.target, "db")).Should(BeZero())
			announce(second)
			shows(first, "False KeyChanged")
			approve := client.RawPatch(types.MergePatchType, []byte(`{"status":{"pins":{"`+url+`":"`+second+`"}}}`))
			Expect(kube.Status().Patch(ctx, t, approve)).To(Succeed())
			shows(second, "True FirstSight")
		})
})
