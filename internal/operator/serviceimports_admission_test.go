// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// kubernetesSlices writes the slice of the forwarders' Service with the mark of Kubernetes'
// controller, by which the chart's policies select it.
func (r *release) kubernetesSlices(ctx context.Context, addresses ...string) {
	GinkgoHelper()
	r.setForwarders(ctx, addresses...)
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "fairlead-forwarders"}}
	Expect(kube.Patch(ctx, s, client.RawPatch("application/merge-patch+json", []byte(
		`{"metadata":{"labels":{"`+discoveryv1.LabelManagedBy+`":"endpointslice-controller.k8s.io"}}}`)))).To(Succeed())
}

// enforceSlicePolicies makes the chart's admission policies of EndpointSlices and waits until they
// deny its manager a slice of any address.
func (r *release) enforceSlicePolicies(ctx context.Context) {
	GinkgoHelper()
	r.createPolicies(ctx, importing, func(name string) bool { return strings.Contains(name, "-slices-") })
	own := installation.Installation{Namespace: r.namespace, Release: "fairlead"}
	manager, err := client.New(r.kubernetes, client.Options{Scheme: kube.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: r.target, Name: "x",
		Labels: maps.Clone(own.SliceSelector())}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		Ports:     []discoveryv1.EndpointPort{{Port: ptr.To[int32](20000)}}}
	s.Labels[discoveryv1.LabelServiceName] = "x"
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "x", UID: "u"}}
	own.Mark(s)
	Eventually(func() error { return manager.Create(ctx, s.DeepCopy(), client.DryRunAll) }).
		Should(MatchError(ContainSubstring("no forwarder's")))
	s.Endpoints[0].Addresses[0], s.OwnerReferences[0].Kind = "10.9.0.1", "ServiceImport"
	Eventually(func() error { return manager.Create(ctx, s.DeepCopy(), client.DryRunAll) }).
		Should(MatchError(ContainSubstring("not owned by the Service")))
}

// manyImports is how many Services of three clusters are imported; FAIRLEAD_IMPORTS replaces it.
const manyImports = 30

var _ = Describe("the manager that imports Services", func() {
	It("works under the chart's admission policies", func(ctx SpecContext) {
		installMulticlusterCRDs()
		r := newReleaseOf(ctx, importing)
		r.kubernetesSlices(ctx, "10.9.0.1", "10.9.0.2")
		r.enforceSlicePolicies(ctx)
		run(r.importingOptions())
		r.account.Put(record(r.target, "a", tcp("tcp", 42)), port(r.target, "a", 42))
		Eventually(r.carried(ctx, r.target)).Should(Equal(map[string]string{"a": "tcp=a:42 10.9.0.1 10.9.0.2 "}))
		r.setForwarders(ctx, "10.9.0.2", "10.9.0.3")
		Eventually(r.carried(ctx, r.target)).Should(Equal(map[string]string{"a": "tcp=a:42 10.9.0.2 10.9.0.3 "}))
		r.account.Delete("ep-a-" + r.target)
		Eventually(r.carried(ctx, r.target)).Should(BeEmpty())
		Expect(r.importsCondition(ctx)()).NotTo(HavePrefix("False"))
	})

	It("takes an unready forwarder out of all slices soon", func(ctx SpecContext) {
		n := manyImports
		if set := os.Getenv("FAIRLEAD_IMPORTS"); set != "" {
			var err error
			n, err = strconv.Atoi(set)
			Expect(err).NotTo(HaveOccurred())
		}
		installMulticlusterCRDs()
		r := newReleaseOf(ctx, importing)
		r.kubernetesSlices(ctx, "10.9.0.1", "10.9.0.2")
		r.enforceSlicePolicies(ctx)
		began := time.Now()
		o, counted := r.importingOptions(), &writes{count: map[string]int{}}
		o.Kubernetes = counted.wrap(o.Kubernetes)
		run(o)
		for i := range n {
			for _, cluster := range []string{"a", "b", "c"} {
				r.account.Put(named(fmt.Sprintf("s%d", i), record(r.target, cluster, tcp("tcp", 42))),
					named(fmt.Sprintf("s%d", i), port(r.target, cluster, 42)))
			}
		}
		listing := func(address string) func() (int, error) {
			return func() (int, error) {
				var list discoveryv1.EndpointSliceList
				err := kube.List(ctx, &list, client.InNamespace(r.target),
					client.HasLabels{mcsv1beta1.LabelSourceCluster})
				found := 0
				for _, s := range list.Items {
					for _, e := range s.Endpoints {
						if e.Addresses[0] == address && ptr.Deref(e.Conditions.Ready, true) {
							found++
						}
					}
				}
				return found, err
			}
		}
		Eventually(listing("10.9.0.1"), "2m", "200ms").Should(Equal(3 * n))
		AddReportEntry("imports of 3 clusters", fmt.Sprintf("%d imports: made in %s", n, time.Since(began)))
		most := 4 * (time.Second + time.Duration(3*n)*time.Second/200) // four times the target
		gone := most
		for attempt := 0; gone >= most && attempt < 5; attempt++ { // the machine may be slow for some seconds
			r.setForwarders(ctx, "10.9.0.1", "10.9.0.2")
			Eventually(listing("10.9.0.1"), "2m", "200ms").Should(Equal(3 * n))
			Eventually(counted.quiet, "1m", "2s").Should(BeTrue())
			AddReportEntry("writes", fmt.Sprint(counted.take()))
			began = time.Now()
			r.setForwarders(ctx, "10.9.0.2")
			Eventually(listing("10.9.0.1"), "1m", "200ms").Should(BeZero())
			gone = time.Since(began)
			AddReportEntry("an address gone", fmt.Sprintf("in %s, with writes %v", gone, counted.take()))
		}
		Expect(gone).To(BeNumerically("<", most))
		Eventually(r.recorded(ctx)).Should(Equal([]string{"10.9.0.2"}))
	}, SpecTimeout(10*time.Minute))
})

// named returns a record or port of Service hello under another name.
func named(name string, e account.Endpoint) account.Endpoint {
	owner := *e.Owner
	owner.Name = name
	e.ID, e.URL, e.Owner = e.ID+"-"+name, strings.Replace(e.URL, "//hello.", "//"+name+".", 1), &owner
	return e
}
