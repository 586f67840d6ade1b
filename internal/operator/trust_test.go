// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
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

	It("record that an endpoint was sealed where a seal is preferred, which the service cannot undo",
		func(ctx SpecContext) {
			const key = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
			r := newRelease(ctx)
			s := newForwarderStatusServer(`{"pod":"f","session":{"up":true},"listeners":[]}`)
			r.forwarder(ctx, "f-1")
			o := r.options()
			o.Forwarders, o.ForwarderTransport = nil, forwarderstatus.NewTransport(s.dial)
			o.Seal, o.RemovalDelay = options.Seal{Sealed: "off", SealAccount: "ac-1"}, time.Second
			run(o)
			t := &v1alpha1.EndpointTrust{ObjectMeta: metav1.ObjectMeta{Namespace: r.target, Name: "all"},
				Spec: v1alpha1.EndpointTrustSpec{Mode: "Prefer", Keys: []string{key},
					EndpointSelection: v1alpha1.EndpointSelection{Endpoints: []string{"*"}}}}
			Expect(kube.Create(ctx, t)).To(Succeed())
			hostname := "db." + r.target
			url := "tcp://" + hostname + ":5432"
			shows := func(column string, pins map[string]string) {
				GinkgoHelper()
				Eventually(func(g Gomega) {
					g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(t), t)).To(Succeed())
					g.Expect(t.Status.Pins).To(Equal(pins))
					g.Expect(r.bep(ctx, hostname).Status.Sealed).To(Equal(column))
				}).WithTimeout(40 * time.Second).Should(Succeed())
			}
			r.account.Put(endpoint("ep-1", url))
			Eventually(service(ctx, r.target, "db")).ShouldNot(BeZero())
			shows("preferred", nil)
			port := r.bep(ctx, hostname).Spec.Ports[0].TargetPort
			s.say(fmt.Sprintf(`{"listeners":[{"port":%d,"hostname":%q,"url":%q,"listening":true,"seal_key":%q}]}`,
				port, hostname, url, key))
			shows("pinned", map[string]string{url: key})
			s.say(fmt.Sprintf(`{"gone":[%d]}`, port))
			r.account.Delete("ep-1")
			Eventually(service(ctx, r.target, "db")).Should(BeZero())
			r.account.Put(endpoint("ep-2", url))
			Eventually(service(ctx, r.target, "db")).ShouldNot(BeZero())
			shows("pinned", map[string]string{url: key})
			Eventually(func() string {
				return fixture.StatusAndReason(r.bep(ctx, hostname).Status.Conditions, v1alpha1.ConditionSealed)
			}).Should(Equal("False NotSealed"))
		})
})
