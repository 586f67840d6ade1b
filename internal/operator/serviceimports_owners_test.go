// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/serviceimport"
)

var _ = Describe("the manager that imports Services", func() {
	var r *release
	BeforeEach(func(ctx SpecContext) {
		installMulticlusterCRDs()
		r = newReleaseOf(ctx, importing)
		r.setForwarders(ctx, "10.9.0.1")
	})
	ready := map[string]string{"a": "tcp=a:42 10.9.0.1 "}

	It("reports missing CRDs, does its other work, and picks them up", func(ctx SpecContext) {
		crds := envtest.CRDInstallOptions{Paths: []string{multiclusterCRDs}}
		Expect(envtest.UninstallCRDs(config, crds)).To(Succeed())
		Eventually(func() error { return kube.List(ctx, &mcsv1beta1.ServiceImportList{}) }).
			Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
		run(r.importingOptions())
		r.account.Put(record(r.target, "a", tcp("tcp", 42)), port(r.target, "a", 42),
			endpoint("ep-1", "http://api."+r.target))
		Eventually(r.ready(ctx, "api."+r.target)).Should(Equal("True Ready"))
		Eventually(r.importsCondition(ctx)).Should(And(HavePrefix("False CRDsMissing"),
			ContainSubstring("kubectl apply -f https://")))
		Eventually(r.condition(ctx, v1alpha1.ConditionRegistered)).Should(Equal("True Registered"))
		check := operator.CheckOptions{Installation: installation.Installation{Namespace: r.namespace,
			Release: "fairlead"}, Clusterset: true, Kubernetes: config, Timeout: time.Minute,
			Out: &bytes.Buffer{}}
		Expect(checkOnce(ctx, check)).To(MatchError(ContainSubstring("CRDsMissing")))

		installMulticlusterCRDs()
		addressed(ctx, r.target)
		Eventually(r.importsCondition(ctx)).Should(HavePrefix("True Ready"))
		Eventually(r.carried(ctx, r.target)).Should(Equal(ready))
		Expect(operator.Check(ctx, check)).To(Succeed())
	}, SpecTimeout(5*time.Minute))

	It("reports that it may not read ServiceImports", func(ctx SpecContext) {
		role := &rbacv1.ClusterRole{}
		Expect(kube.Get(ctx, client.ObjectKey{Name: r.user()}, role)).To(Succeed())
		role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, mcsv1beta1.GroupName)
		})
		Expect(kube.Update(ctx, role)).To(Succeed())
		run(r.importingOptions())
		Eventually(r.importsCondition(ctx)).Should(HavePrefix("False ImportsForbidden"))
	})

	It("leaves a ServiceImport and a Service of another owner alone, and says so", func(ctx SpecContext) {
		foreign := &mcsv1beta1.ServiceImport{ObjectMeta: metav1.ObjectMeta{Namespace: r.target, Name: "hello"},
			Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{}}}
		Expect(kube.Create(ctx, foreign)).To(Succeed())
		beside := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: r.second,
			Name: serviceimport.DerivedName(client.ObjectKey{Namespace: r.second, Name: "hello"})},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		Expect(kube.Create(ctx, beside)).To(Succeed())
		run(r.importingOptions())
		r.account.Put(record(r.target, "a", tcp("tcp", 42)), record(r.second, "a", tcp("tcp", 42)))
		Eventually(r.importsCondition(ctx)).Should(And(HavePrefix("False Conflict"),
			ContainSubstring("belongs to another owner"), ContainSubstring("and 1 more")))
		Eventually(func() ([]string, error) {
			var list eventsv1.EventList
			err := kube.List(ctx, &list, client.InNamespace(r.namespace))
			var notes []string
			for _, e := range list.Items {
				if e.Reason == v1alpha1.ReasonConflict && e.Regarding.Kind == "KubernetesOperator" {
					notes = append(notes, e.Note)
				}
			}
			return notes, err
		}).Should(ContainElements(ContainSubstring(": ServiceImport "+r.target+"/hello belongs"),
			ContainSubstring(r.second+"/hello is not imported as it should be: Service "+r.second+"/"+beside.Name)))
		now, err := imported(ctx, r.target)()
		Expect(err).NotTo(HaveOccurred())
		Expect(now.ResourceVersion).To(Equal(foreign.ResourceVersion))
		Expect(service(ctx, r.second, beside.Name)()).To(HaveField("ResourceVersion", beside.ResourceVersion))
		Expect(imported(ctx, r.second)()).To(HaveField("Status.Conditions", ContainElement(
			HaveField("Reason", v1alpha1.ReasonConflict))))

		By("being refused by the chart's policies should it try")
		manager, err := client.New(r.kubernetes, client.Options{Scheme: kube.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		for _, o := range []client.Object{foreign, beside} {
			// the API server takes a moment to read policies that are new
			Eventually(func() error { return manager.Delete(ctx, o, client.DryRunAll) }).Should(
				MatchError(ContainSubstring("is not of this Fairlead installation")))
		}

		By("importing as soon as the name is free")
		Expect(kube.Delete(ctx, foreign)).To(Succeed())
		addressed(ctx, r.target)
		r.account.Delete("ep-a-" + r.second)
		Eventually(imported(ctx, r.second)).Should(BeNil())
		Eventually(r.importsCondition(ctx)).Should(HavePrefix("True Ready"))
		Expect(service(ctx, r.second, beside.Name)()).NotTo(BeNil())
	}, SpecTimeout(5*time.Minute))

	It("imports only into namespaces that exist and are allowed", func(ctx SpecContext) {
		o := r.importingOptions()
		o.DenyNamespaces = append(o.DenyNamespaces, r.second)
		run(o)
		later := r.target + "-later"
		for _, namespace := range []string{later, r.target, r.second, r.namespace} {
			r.account.Put(record(namespace, "a", tcp("tcp", 42)), port(namespace, "a", 42))
		}
		addressed(ctx, r.target)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: later}}
		Expect(kube.Create(ctx, ns)).To(Succeed())
		addressed(ctx, later)
		for _, namespace := range []string{r.second, r.namespace} {
			Expect(imported(ctx, namespace)()).To(BeNil())
		}
		Eventually(r.importsCondition(ctx)).Should(HavePrefix("True Ready"))

		By("letting a namespace end")
		Expect(kube.Delete(ctx, ns)).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(ns), ns))
		}).Should(BeTrue())
		Consistently(r.importsCondition(ctx), "300ms").Should(HavePrefix("True Ready"))
	}, SpecTimeout(5*time.Minute))

	It("repairs and makes again what others change and delete", func(ctx SpecContext) {
		run(r.importingOptions())
		r.account.Put(record(r.target, "a", tcp("tcp", 42)), port(r.target, "a", 42))
		s := addressed(ctx, r.target)
		Eventually(r.carried(ctx, r.target)).Should(Equal(ready))
		Eventually(func() error { // the manager may write the status meanwhile
			edited, err := imported(ctx, r.target)()
			Expect(err).NotTo(HaveOccurred())
			edited.Spec.Ports, edited.Spec.IPs = edited.Spec.Ports[:0], nil
			edited.Labels = map[string]string{"theirs": "x"}
			return kube.Update(ctx, edited)
		}).Should(Succeed())
		Eventually(imported(ctx, r.target)).Should(And(HaveField("Spec", s.Spec), HaveField("Labels", s.Labels)))

		d := derived(ctx, s)
		d.Spec.Ports[0].Port, d.Spec.Selector = 43, map[string]string{"app": "theirs"}
		Expect(kube.Update(ctx, d)).To(Succeed())
		Eventually(func() int32 { return derived(ctx, s).Spec.Ports[0].Port }).Should(BeEquivalentTo(42))
		Expect(derived(ctx, s).Spec.Selector).To(BeEmpty())
		Expect(kube.Delete(ctx, d)).To(Succeed())
		Eventually(service(ctx, r.target, d.Name)).Should(And(Not(BeNil()), HaveField("UID", Not(Equal(d.UID))),
			HaveField("Spec.ClusterIPs", s.Spec.IPs)), "pods know the address")

		Expect(kube.DeleteAllOf(ctx, &discoveryv1.EndpointSlice{}, client.InNamespace(r.target))).To(Succeed())
		Eventually(r.carried(ctx, r.target)).Should(Equal(ready))
		Expect(kube.Delete(ctx, s)).To(Succeed())
		Eventually(imported(ctx, r.target)).Should(And(Not(BeNil()), HaveField("UID", Not(Equal(s.UID)))))
		now := addressed(ctx, r.target)
		// its collection with the deleted owner can come first
		Eventually(service(ctx, r.target, d.Name)).Should(HaveField("OwnerReferences",
			ConsistOf(HaveField("UID", now.UID))))
		Eventually(r.carried(ctx, r.target)).Should(Equal(ready))
	}, SpecTimeout(5*time.Minute))

	It("removes at its start what is no longer exported", func(ctx SpecContext) {
		o := r.importingOptions()
		stop := run(o)
		r.account.Put(record(r.target, "a", tcp("tcp", 42)), port(r.target, "a", 42))
		r.account.Put(record(r.second, "a", tcp("tcp", 42)), port(r.second, "a", 42))
		addressed(ctx, r.target)
		s := addressed(ctx, r.second)
		stop()
		r.account.Delete("ep-a-" + r.second)
		r.account.Fail(errDown)
		o.Metrics = prometheus.NewRegistry()
		run(o)
		Consistently(imported(ctx, r.second), "500ms").ShouldNot(BeNil(), "the account is not known")
		r.account.Fail(nil)
		Eventually(imported(ctx, r.second)).Should(BeNil())
		Eventually(service(ctx, r.second, derivedName(s))).Should(BeNil())
		Eventually(r.carried(ctx, r.second)).Should(BeEmpty())
		Expect(imported(ctx, r.target)()).NotTo(BeNil())
	})

	for name, off := range map[string]func(*operator.ManagerOptions){
		"--clusterset":            func(o *operator.ManagerOptions) { o.Clusterset = false },
		"--binding-enabled=false": func(o *operator.ManagerOptions) { o.BindingEnabled = false },
	} {
		It("removes everything when it is switched off with "+name, func(ctx SpecContext) {
			o := r.importingOptions()
			stop := run(o)
			headless := record(r.second, "a", tcp("tcp", 42))
			headless.ServiceExport.Type = "Headless"
			headless.ServiceExport.Pods = []account.ServiceExportPod{{Hostname: "pod-0", Ready: true}}
			r.account.Put(record(r.target, "a", tcp("tcp", 42)), port(r.target, "a", 42), headless,
				podPort(r.second, "pod-0"))
			s := addressed(ctx, r.target)
			Eventually(r.carried(ctx, r.target)).Should(Equal(ready))
			Eventually(r.pods(ctx, r.second)).Should(HaveLen(1))
			stop()
			off(&o)
			o.Metrics = prometheus.NewRegistry()
			run(o)
			Eventually(imported(ctx, r.target)).Should(BeNil())
			Eventually(imported(ctx, r.second)).Should(BeNil())
			Eventually(service(ctx, r.second, "clusterset-pod-0")).Should(BeNil())
			Eventually(r.pods(ctx, r.second)).Should(BeEmpty())
			Eventually(service(ctx, r.target, derivedName(s))).Should(BeNil())
			Eventually(r.carried(ctx, r.target)).Should(BeEmpty())
		})
	}
})
