// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/test/support/fixture"
)

const (
	basePolicy = "fairlead-forwarders"
	portPolicy = "fairlead-port-20000"
)

// policyOptions are those of a release with NetworkPolicies and one target port, 20000.
func (r *release) policyOptions() operator.ManagerOptions {
	o := r.options()
	o.NetworkPolicies, o.PortRange, o.RemovalDelay, o.MetricsAddr = true, "20000-20000", 0, ":0"
	return o
}

// policy returns a NetworkPolicy of the release as text: "PORTS from PEERS; …", and "none" where
// there is none.
func (r *release) policy(ctx context.Context, name string) func() (string, error) {
	return func() (string, error) {
		p := &networkingv1.NetworkPolicy{}
		err := kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: name}, p)
		if apierrors.IsNotFound(err) {
			return "none", nil
		}
		var rules []string
		for _, rule := range p.Spec.Ingress {
			var ports []string
			for _, port := range rule.Ports {
				ports = append(ports, port.Port.String())
			}
			peers, _ := json.Marshal(rule.From)
			rules = append(rules, strings.Join(ports, ",")+" from "+string(peers))
		}
		return strings.Join(rules, "; "), err
	}
}

// restrict creates an EndpointAccess in the target namespace that lets the pods of namespaces with
// the label team=shop call api.
func (r *release) restrict(ctx context.Context) *v1alpha1.EndpointAccess {
	GinkgoHelper()
	o := &v1alpha1.EndpointAccess{ObjectMeta: metav1.ObjectMeta{Namespace: r.target, Name: "api"}}
	o.Spec.Endpoints = []string{"api"}
	o.Spec.From = []v1alpha1.EndpointAccessPeer{
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}}}
	Expect(kube.Create(ctx, o)).To(Succeed())
	return o
}

const shopOnly = `20000 from [{"namespaceSelector":{"matchLabels":{"team":"shop"}}}]`

// openBase matches a base policy that opens the target port.
func openBase() OmegaMatcher { return HavePrefix("20000 from null; 8081 from [") }

// closedBase matches a base policy that does not.
func closedBase() OmegaMatcher { return HavePrefix("8081 from [") }

// refusal makes the API server refuse writes of a resource while it is on.
type refusal struct {
	mu       sync.Mutex
	resource string
	order    []string // creations and updates, as "VERB resource"
}

func (f *refusal) set(resource string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resource = resource
}

func (f *refusal) writes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.order)
}

func (f *refusal) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		what := resource(req.URL.Path)
		f.mu.Lock()
		refused := req.Method != http.MethodGet && what == f.resource
		if req.Method != http.MethodGet && !refused {
			f.order = append(f.order, req.Method+" "+what)
		}
		f.mu.Unlock()
		if !refused {
			return next.RoundTrip(req)
		}
		body := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
			`"message":"exceeded quota: no more policies"}`
		return &http.Response{StatusCode: http.StatusForbidden,
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   io.NopCloser(bytes.NewBufferString(body)), Request: req}, nil
	})
}

// noPod changes an EndpointAccess so that it lets no pod call.
var noPod = client.RawPatch(types.MergePatchType, []byte(`{"spec":{"from":null}}`))

var _ = Describe("the manager with NetworkPolicies", func() {
	It("writes a base policy, one for a restricted port, and deletes what is no longer wanted", func(ctx SpecContext) {
		r := newRelease(ctx)
		counted := &writes{count: map[string]int{}}
		o := r.policyOptions()
		o.Kubernetes = counted.wrap(o.Kubernetes)
		run(o)
		Eventually(r.policy(ctx, basePolicy)).Should(openBase())
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(service(ctx, r.target, "api")).ShouldNot(BeNil())
		Expect(r.policy(ctx, portPolicy)()).To(Equal("none"))

		By("restricting it")
		access := r.restrict(ctx)
		Eventually(r.policy(ctx, portPolicy)).Should(Equal(shopOnly))
		Eventually(r.policy(ctx, basePolicy)).Should(closedBase())
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(access), access)).To(Succeed())
			for typ, want := range map[string]string{v1alpha1.ConditionAccepted: "True Accepted",
				v1alpha1.ConditionForwardersEnforce:      "True Enforced",
				v1alpha1.ConditionNetworkPoliciesWritten: "True Written"} {
				g.Expect(fixture.StatusAndReason(access.Status.Conditions, typ)).To(Equal(want))
			}
		}).Should(Succeed())

		By("letting no pod call it")
		Expect(kube.Patch(ctx, access, noPod)).To(Succeed())
		Eventually(r.policy(ctx, portPolicy)).Should(Equal("none"))
		Expect(r.policy(ctx, basePolicy)()).To(closedBase())

		By("no longer restricting it")
		Expect(kube.Delete(ctx, access)).To(Succeed())
		Eventually(r.policy(ctx, basePolicy)).Should(openBase())

		By("restricting it again, and removing the endpoint")
		r.restrict(ctx)
		Eventually(r.policy(ctx, portPolicy)).Should(Equal(shopOnly))
		r.account.Delete("ep-1")
		Eventually(service(ctx, r.target, "api")).Should(BeNil())
		Eventually(r.policy(ctx, portPolicy)).Should(Equal("none"))
		Eventually(counted.quiet).WithPolling(time.Second).Should(BeTrue())
	})

	It("makes Services only after the policies of their ports", func(ctx SpecContext) {
		r := newRelease(ctx)
		r.restrict(ctx)
		f := &refusal{}
		o := r.policyOptions()
		o.Kubernetes.Wrap(f.wrap)
		run(o)
		Eventually(r.policy(ctx, basePolicy)).Should(openBase())
		f.set("networkpolicies")
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		hostname := hostnameIn(r.target, "api")
		Eventually(func(g Gomega) {
			b := &v1alpha1.BoundEndpoint{}
			g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: hostname}, b)).To(Succeed())
			g.Expect(fixture.StatusAndReason(b.Status.Conditions, v1alpha1.ConditionServicesReady)).
				To(Equal("False NetworkPolicyFailed"))
		}).Should(Succeed())
		Expect(f.writes()).NotTo(ContainElement("POST services"))
		f.set("")
		// an event of another object starts the next pass, which would be due in 30 s
		other := &v1alpha1.EndpointAccess{ObjectMeta: metav1.ObjectMeta{Namespace: r.second, Name: "other"},
			Spec: v1alpha1.EndpointAccessSpec{
				EndpointSelection: v1alpha1.EndpointSelection{Endpoints: []string{"other"}}}}
		Expect(kube.Create(ctx, other)).To(Succeed())
		Eventually(service(ctx, r.target, "api")).ShouldNot(BeNil())
		order := f.writes()
		Expect(slices.Index(order, "PUT networkpolicies")).To(And(BeNumerically(">=", 0),
			BeNumerically("<", slices.Index(order, "POST services"))), "%v", order)
	})

	It("leaves policies of other owners alone, and makes no Service for their ports", func(ctx SpecContext) {
		r := newRelease(ctx)
		foreign := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: portPolicy},
			Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}}
		Expect(kube.Create(ctx, foreign)).To(Succeed())
		access := r.restrict(ctx)
		run(r.policyOptions())
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(access), access)).To(Succeed())
			c := access.Status.Conditions
			g.Expect(fixture.StatusAndReason(c, v1alpha1.ConditionNetworkPoliciesWritten)).To(Equal("False NotWritten"))
			fixture.ExpectCondition(c, v1alpha1.ConditionNetworkPoliciesWritten, "False NotWritten", "another owner")
		}).Should(Succeed())
		Expect(service(ctx, r.target, "api")()).To(BeNil())
		var now networkingv1.NetworkPolicy
		Expect(kube.Get(ctx, client.ObjectKeyFromObject(foreign), &now)).To(Succeed())
		Expect(now.ResourceVersion).To(Equal(foreign.ResourceVersion))
	})

	It("opens nothing by default with --default-access=deny", func(ctx SpecContext) {
		r := newRelease(ctx)
		o := r.policyOptions()
		o.DefaultAccess = endpointaccess.Deny
		run(o)
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(service(ctx, r.target, "api")).ShouldNot(BeNil())
		Expect(r.policy(ctx, basePolicy)()).To(closedBase())
		r.restrict(ctx)
		Eventually(r.policy(ctx, portPolicy)).Should(Equal(shopOnly))
		Expect(r.policy(ctx, basePolicy)()).To(closedBase())
	})

	It("deletes them without --network-policies, and with the release", func(ctx SpecContext) {
		r := newRelease(ctx)
		r.restrict(ctx)
		stop := run(r.policyOptions())
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(r.policy(ctx, portPolicy)).Should(Equal(shopOnly))
		copied := &networkingv1.NetworkPolicy{}
		Expect(kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: portPolicy}, copied)).To(Succeed())
		copied.ObjectMeta = metav1.ObjectMeta{Namespace: r.namespace, Name: "copy", Labels: copied.Labels,
			Annotations: copied.Annotations}
		Expect(kube.Create(ctx, copied)).To(Succeed())
		stop()

		o := r.policyOptions()
		o.NetworkPolicies = false
		stop = run(o)
		Eventually(r.policy(ctx, portPolicy)).Should(Equal("none"))
		Eventually(r.policy(ctx, basePolicy)).Should(Equal("none"))
		Expect(r.policy(ctx, "copy")()).NotTo(Equal("none"))
		stop()

		stop = run(r.policyOptions())
		Eventually(r.policy(ctx, portPolicy)).Should(Equal(shopOnly))
		stop()
		deleteAnchors(ctx, r.namespace, anchor)
		Eventually(r.policy(ctx, portPolicy)).Should(Equal("none"))
		Eventually(r.policy(ctx, basePolicy)).Should(Equal("none"))
	})

	It("reads EndpointAccess objects of listed namespaces", func(ctx SpecContext) {
		r := newReleaseOf(ctx, listedNamespaces)
		o := r.listedOptions()
		o.NetworkPolicies, o.PortRange, o.RemovalDelay, o.MetricsAddr = true, "20000-20000", 0, ":0"
		access := r.restrict(ctx)
		run(o)
		r.account.Put(endpoint("ep-1", "http://api."+r.target))
		Eventually(service(ctx, r.target, "api")).ShouldNot(BeNil())
		Expect(r.policy(ctx, portPolicy)()).To(Equal(shopOnly))
		Eventually(r.condition(ctx, v1alpha1.ConditionNetworkPoliciesWritten)).Should(Equal("True Written"))
		Eventually(func(g Gomega) {
			g.Expect(kube.Get(ctx, client.ObjectKeyFromObject(access), access)).To(Succeed())
			c := access.Status.Conditions
			g.Expect(fixture.StatusAndReason(c, v1alpha1.ConditionNetworkPoliciesWritten)).To(Equal("True Written"))
			g.Expect(fixture.StatusAndReason(c, v1alpha1.ConditionForwardersEnforce)).To(Equal("True Enforced"))
		}).Should(Succeed())

		Expect(kube.Patch(ctx, access, noPod)).To(Succeed())
		Eventually(r.policy(ctx, portPolicy)).Should(Equal("none"))
		Expect(r.policy(ctx, basePolicy)()).To(closedBase())
		Expect(kube.Delete(ctx, access)).To(Succeed())
		Eventually(r.policy(ctx, basePolicy)).Should(openBase())
	})
})
