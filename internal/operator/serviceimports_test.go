// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/serviceimport"
)

// multiclusterCRDs are those of sigs.k8s.io/mcs-api.
const multiclusterCRDs = "../clusterset/testdata/mcs-api-v0.5.2"

func installMulticlusterCRDs() {
	GinkgoHelper()
	_, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{multiclusterCRDs}})
	Expect(err).NotTo(HaveOccurred())
}

// importingOptions are those of a release that imports Services.
func (r *release) importingOptions() operator.ManagerOptions {
	o := r.options()
	o.Clusterset, o.ServeRetry = true, 100*time.Millisecond
	return o
}

// tcp, udp are ports of a Service.
func tcp(name string, port int32) account.ServiceExportPort {
	return account.ServiceExportPort{Name: name, Protocol: "TCP", Port: port}
}

func udp(name string, port int32) account.ServiceExportPort {
	return account.ServiceExportPort{Name: name, Protocol: "UDP", Port: port}
}

// exportedAt is when clusters export, in their order.
var exportedAt = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// record is the export of Service hello of a namespace by a cluster: a, b and so on, the oldest
// first.
func record(namespace, cluster string, ports ...account.ServiceExportPort) account.Endpoint {
	return account.Endpoint{
		ID: "ep-" + cluster + "-" + namespace, URL: account.ServiceExportURL("hello", namespace, cluster).String(),
		Type: account.TypeCloud, Bindings: []string{account.BindingClusterset}, Status: account.StatusOnline,
		CreatedAt: exportedAt.Add(time.Duration(cluster[0]) * time.Second),
		Owner: &account.Owner{Cluster: "uid-" + cluster, Kind: account.KindServiceExport, Namespace: namespace,
			Name: "hello", UID: "u-" + cluster},
		ServiceExport: &account.ServiceExport{Type: account.ExportClusterSetIP, Ports: ports, Ready: true,
			SessionAffinity: "ClientIP", SessionAffinitySeconds: ptr.To[int32](10), InternalTrafficPolicy: "Local",
			TrafficDistribution: "PreferClose", IPFamilies: []string{"IPv4"},
			Labels:      map[string]string{"team": cluster, "bad key": "x", "bindings.fairlead.dev/installation": "x"},
			Annotations: map[string]string{"note": "of " + cluster}},
	}
}

// port is a port of an exported Service that a cluster carries.
func port(namespace, cluster string, number int) account.Endpoint {
	r := record(namespace, cluster)
	return account.Endpoint{
		ID:  fmt.Sprintf("ep-%s-%s-%d", cluster, namespace, number),
		URL: account.ExportedPortURL("hello", namespace, cluster, number).String(), Type: account.TypeAgent,
		Bindings: r.Bindings, Status: account.StatusOnline, CreatedAt: r.CreatedAt, Owner: r.Owner,
	}
}

// imported returns ServiceImport hello of a namespace, nil if there is none.
func imported(ctx context.Context, namespace string) func() (*mcsv1beta1.ServiceImport, error) {
	return func() (*mcsv1beta1.ServiceImport, error) {
		s := &mcsv1beta1.ServiceImport{}
		err := kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "hello"}, s)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return s, err
	}
}

// addressed returns the ServiceImport once it has addresses.
func addressed(ctx context.Context, namespace string) *mcsv1beta1.ServiceImport {
	GinkgoHelper()
	var s *mcsv1beta1.ServiceImport
	Eventually(func(g Gomega) {
		var err error
		s, err = imported(ctx, namespace)()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(s).NotTo(BeNil())
		g.Expect(s.Spec.IPs).NotTo(BeEmpty())
		g.Expect(meta.IsStatusConditionTrue(s.Status.Conditions, "Ready")).To(BeTrue())
	}).Should(Succeed())
	return s
}

// derived returns the derived Service of a ServiceImport.
func derived(ctx context.Context, s *mcsv1beta1.ServiceImport) *corev1.Service {
	GinkgoHelper()
	found, err := service(ctx, s.Namespace, s.Annotations["multicluster.kubernetes.io/derived-service"])()
	Expect(err).NotTo(HaveOccurred())
	Expect(found).NotTo(BeNil())
	return found
}

// carried returns what the slices of ServiceImport hello lead to, by source cluster, such as
// "tcp=hello.demo.a:42 10.9.0.1": ports, and the ready addresses. It names target ports by the
// BoundEndpoints that have them.
func (r *release) carried(ctx context.Context, namespace string) func() (map[string]string, error) {
	return func() (map[string]string, error) {
		targets := r.targets(ctx)
		var list discoveryv1.EndpointSliceList
		if err := kube.List(ctx, &list, client.InNamespace(namespace),
			client.MatchingLabels{mcsv1beta1.LabelServiceName: "hello"}); err != nil {
			return nil, err
		}
		all := map[string]string{}
		for _, s := range list.Items {
			text := ""
			for _, p := range s.Ports {
				text += *p.Name + "=" + targets[*p.Port] + " "
			}
			for _, e := range s.Endpoints {
				if *e.Conditions.Ready {
					text += e.Addresses[0] + " "
				}
			}
			all[s.Labels[mcsv1beta1.LabelSourceCluster]] = text
		}
		return all, nil
	}
}

// targets returns the ports of clusters, such as "a:42", by the target ports that lead to them.
func (r *release) targets(ctx context.Context) map[int32]string {
	GinkgoHelper()
	var bound v1alpha1.BoundEndpointList
	Expect(kube.List(ctx, &bound, client.InNamespace(r.namespace))).To(Succeed())
	targets := map[int32]string{}
	for _, b := range bound.Items {
		for _, p := range b.Spec.Ports {
			targets[p.TargetPort] = fmt.Sprintf("%s:%d", b.Spec.Cluster, p.Port)
		}
	}
	return targets
}

// importsCondition returns the condition ServiceImportsReady with its message.
func (r *release) importsCondition(ctx context.Context) func() string {
	return func() string {
		var o v1alpha1.KubernetesOperator
		if err := kube.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "fairlead"}, &o); err != nil {
			return ""
		}
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionServiceImportsReady)
		if c == nil {
			return ""
		}
		return string(c.Status) + " " + c.Reason + " " + c.Message
	}
}

var _ = Describe("the manager that imports Services", func() {
	var r *release
	BeforeEach(func(ctx SpecContext) {
		installMulticlusterCRDs()
		r = newReleaseOf(ctx, importing)
		r.setForwarders(ctx, "10.9.0.1", "10.9.0.2")
	})

	It("imports what two clusters export, and follows them", func(ctx SpecContext) {
		run(r.importingOptions())
		r.account.Put(record(r.target, "a", tcp("tcp", 42), udp("udp", 42)), port(r.target, "a", 42))
		s := addressed(ctx, r.target)
		r.expectImport(ctx, s)
		both := "10.9.0.1 10.9.0.2 "
		Eventually(r.carried(ctx, r.target)).Should(Equal(map[string]string{"a": "tcp=a:42 " + both}))
		Expect(r.recorded(ctx)()).To(Equal([]string{"10.9.0.1", "10.9.0.2"}))

		By("merging the ports of another cluster, of which one is in conflict")
		r.account.Put(record(r.target, "b", tcp("tcp", 43), tcp("tcp2", 4242)), port(r.target, "b", 43),
			port(r.target, "b", 4242))
		Eventually(r.carried(ctx, r.target)).Should(Equal(map[string]string{"a": "tcp=a:42 " + both,
			"b": "tcp2=b:4242 " + both}))
		Eventually(imported(ctx, r.target)).Should(And(HaveField("Spec.Ports", HaveLen(3)),
			HaveField("Status.Clusters", Equal([]mcsv1beta1.ClusterStatus{{Cluster: "a"}, {Cluster: "b"}}))))
		Eventually(func() []corev1.ServicePort { return derived(ctx, s).Spec.Ports }).Should(HaveLen(3))

		By("passing on to the younger export, with the same object and addresses")
		r.account.Delete("ep-a-"+r.target, fmt.Sprintf("ep-a-%s-42", r.target))
		Eventually(r.carried(ctx, r.target)).Should(Equal(map[string]string{"b": "tcp=b:43 tcp2=b:4242 " + both}))
		Eventually(imported(ctx, r.target)).Should(And(HaveField("Labels", HaveKeyWithValue("team", "b")),
			HaveField("Status.Clusters", HaveLen(1)))) // written after the slices
		now, err := imported(ctx, r.target)()
		Expect(err).NotTo(HaveOccurred())
		Expect(now.UID).To(Equal(s.UID))
		Expect(now.Spec.IPs).To(Equal(s.Spec.IPs))
		Eventually(func() []corev1.ServicePort { return derived(ctx, s).Spec.Ports }).Should(HaveLen(2))

		By("removing it at once with the last export")
		r.account.Delete("ep-b-" + r.target)
		Eventually(imported(ctx, r.target)).Should(BeNil())
		Eventually(service(ctx, r.target, derivedName(s))).Should(BeNil())
		Eventually(r.carried(ctx, r.target)).Should(BeEmpty())
		Eventually(r.recorded(ctx)).Should(BeEmpty())
	})

	It("keeps the addresses in slices current while the account is away", func(ctx SpecContext) {
		o := r.importingOptions()
		stop := run(o)
		r.account.Put(record(r.target, "a", tcp("tcp", 42)), port(r.target, "a", 42))
		addressed(ctx, r.target)
		Eventually(r.carried(ctx, r.target)).Should(Equal(map[string]string{"a": "tcp=a:42 10.9.0.1 10.9.0.2 "}))
		stop()
		r.account.Fail(errDown)
		o.Metrics = prometheus.NewRegistry()
		run(o)
		r.setForwarders(ctx, "10.9.0.2", "10.9.0.3")
		Eventually(r.carried(ctx, r.target)).Should(Equal(map[string]string{"a": "tcp=a:42 10.9.0.2 10.9.0.3 "}))
		Eventually(r.recorded(ctx)).Should(Equal([]string{"10.9.0.2", "10.9.0.3"}))
	})

	It("lets another cluster answer while one cannot", func(ctx SpecContext) {
		run(r.importingOptions())
		a, b := record(r.target, "a", tcp("tcp", 42)), record(r.target, "b", tcp("tcp", 42))
		atA, atB := port(r.target, "a", 42), port(r.target, "b", 42)
		r.account.Put(a, b, atA, atB)
		both := func(a, b string) map[string]string {
			return map[string]string{"a": "tcp=a:42 " + a, "b": "tcp=b:42 " + b}
		}
		const ready = "10.9.0.1 10.9.0.2 "
		Eventually(r.carried(ctx, r.target)).Should(Equal(both(ready, ready)))
		atA.Status = account.StatusOffline
		r.account.Put(atA)
		Eventually(r.carried(ctx, r.target)).Should(Equal(both("", ready)))

		By("leaving all as they are when none can")
		b.ServiceExport.Ready = false
		r.account.Put(b)
		Eventually(r.carried(ctx, r.target)).Should(Equal(both(ready, ready)))
		atA.Status = account.StatusOnline
		r.account.Put(atA)
		Eventually(r.carried(ctx, r.target)).Should(Equal(both(ready, "")))
	})

	It("takes a port that goes from the derived Service last", func(ctx SpecContext) {
		o := r.importingOptions()
		var asked requests
		o.Kubernetes.Wrap(asked.wrap)
		run(o)
		r.account.Put(record(r.target, "a", tcp("tcp", 42), tcp("web", 80)), port(r.target, "a", 42),
			port(r.target, "a", 80))
		s := addressed(ctx, r.target)
		Eventually(r.carried(ctx, r.target)).Should(HaveKeyWithValue("a", HavePrefix("tcp=a:42 web=a:80 ")))
		before := len(asked.all())
		r.account.Put(record(r.target, "a", tcp("tcp", 42)))
		Eventually(func() []corev1.ServicePort { return derived(ctx, s).Spec.Ports }).Should(HaveLen(1))
		var updated []string
		for _, path := range asked.all()[before:] {
			_, path, found := strings.Cut(path, "PUT ")
			inTarget := found && strings.Contains(path, "/"+r.target+"/")
			if of := resource(path); inTarget && !strings.Contains(of, "status") {
				updated = append(updated, of)
			}
		}
		// what is refused, as the cache was older, is written again
		Expect(slices.Compact(updated)).To(Equal([]string{"serviceimports", "endpointslices", "services"}))
	})

	It("imports a headless Service without pods, and changes its type in place", func(ctx SpecContext) {
		run(r.importingOptions())
		headless := record(r.target, "a", tcp("tcp", 42))
		headless.ServiceExport.Type = account.ExportHeadless
		r.account.Put(headless, port(r.target, "a", 42))
		Eventually(imported(ctx, r.target)).Should(HaveField("Status.EndpointSliceObjects",
			mcsv1beta1.EndpointSliceObjectsPresent))
		s, err := imported(ctx, r.target)()
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Spec.Type).To(Equal(mcsv1beta1.Headless))
		Expect(s.Spec.IPs).To(BeEmpty())
		Eventually(imported(ctx, r.target)).Should(HaveField("Status.Conditions",
			ContainElement(HaveField("Message", ContainSubstring("no cluster exports a pod")))))
		Consistently(service(ctx, r.target, derivedName(s)), "300ms").Should(BeNil())

		r.account.Put(record(r.target, "a", tcp("tcp", 42)))
		now := addressed(ctx, r.target)
		Expect(now.UID).To(Equal(s.UID))
		Eventually(r.carried(ctx, r.target)).Should(HaveKey("a"))
		r.account.Put(headless)
		Eventually(imported(ctx, r.target)).Should(And(HaveField("Spec.IPs", BeEmpty()),
			HaveField("Spec.Type", mcsv1beta1.Headless)))
		Eventually(service(ctx, r.target, derivedName(s))).Should(BeNil())
		Eventually(r.carried(ctx, r.target)).Should(BeEmpty())
	})
})

// derivedName returns the name that the derived Service of a ServiceImport has or would have.
func derivedName(s *mcsv1beta1.ServiceImport) string {
	return serviceimport.DerivedName(client.ObjectKeyFromObject(s))
}

// expectImport expects ServiceImport, derived Service and slices of the first export.
func (r *release) expectImport(ctx context.Context, s *mcsv1beta1.ServiceImport) {
	GinkgoHelper()
	d := derived(ctx, s)
	Expect(s.Spec.Type).To(Equal(mcsv1beta1.ClusterSetIP))
	Expect(s.Spec.IPs).To(Equal(d.Spec.ClusterIPs))
	Expect(s.Spec.IPFamilies).To(Equal(d.Spec.IPFamilies))
	Expect(s.Spec.Ports).To(Equal([]mcsv1beta1.ServicePort{{Name: "tcp", Protocol: "TCP", Port: 42},
		{Name: "udp", Protocol: "UDP", Port: 42}}))
	Expect(s.Spec.SessionAffinity).To(Equal(corev1.ServiceAffinityClientIP))
	Expect(*s.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds).To(BeEquivalentTo(10))
	Expect(*s.Spec.InternalTrafficPolicy).To(Equal(corev1.ServiceInternalTrafficPolicyLocal))
	Expect(*s.Spec.TrafficDistribution).To(Equal("PreferClose"))
	Expect(s.Labels).To(And(HaveKeyWithValue("team", "a"), HaveLen(3)), "with our marks")
	Expect(s.Annotations).To(HaveKeyWithValue("note", "of a"))
	Expect(s.OwnerReferences).To(ConsistOf(HaveField("Kind", "ClusterRole"), HaveField("Kind", "ClusterRoleBinding")))
	Expect(s.OwnerReferences).To(HaveEach(HaveField("Name", r.anchor())))
	Expect(s.Status.EndpointSliceObjects).To(Equal(mcsv1beta1.EndpointSliceObjectsPresent))
	Expect(s.Status.Clusters).To(Equal([]mcsv1beta1.ClusterStatus{{Cluster: "a"}}))

	Expect(d.Name).To(Equal(derivedName(s)))
	Expect(d.Spec.Selector).To(BeEmpty())
	Expect(d.Spec.Type).To(Equal(corev1.ServiceTypeClusterIP))
	Expect(*d.Spec.InternalTrafficPolicy).To(Equal(corev1.ServiceInternalTrafficPolicyCluster), "Local would drop")
	Expect(*d.Spec.IPFamilyPolicy).To(Equal(corev1.IPFamilyPolicyPreferDualStack))
	Expect(*d.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds).To(BeEquivalentTo(10))
	Expect(d.Spec.Ports).To(HaveLen(2))
	Expect(metav1.GetControllerOf(d)).To(BeNil())
	Expect(d.OwnerReferences).To(HaveLen(1))
	Expect(d.OwnerReferences[0].UID).To(Equal(s.UID))
	slice := &discoveryv1.EndpointSlice{}
	Eventually(func() error {
		return kube.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: d.Name + "-a-ipv4"}, slice)
	}).Should(Succeed())
	Expect(slice.OwnerReferences).To(HaveLen(1))
	Expect(slice.OwnerReferences[0].UID).To(Equal(d.UID))
	Expect(slice.Labels).To(And(HaveKeyWithValue(discoveryv1.LabelServiceName, d.Name),
		HaveKeyWithValue(discoveryv1.LabelManagedBy, "fairlead-operator"),
		HaveKeyWithValue(mcsv1beta1.LabelServiceName, "hello"), HaveKeyWithValue(mcsv1beta1.LabelSourceCluster, "a")))
}
