// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

var _ = Describe("cleanup", func() {
	var (
		own    installation.Installation
		target string
		out    *bytes.Buffer
		o      operator.CleanupOptions
	)
	BeforeEach(func(ctx SpecContext) {
		own, target, out = installation.Installation{Namespace: newNamespace(ctx, "op-"), Release: "fairlead"},
			newNamespace(ctx, "team-"), &bytes.Buffer{}
		o = operator.CleanupOptions{Installation: own, Kubernetes: config, Out: out}
	})
	create := func(ctx context.Context, o client.Object, namespace, name string,
		marks ...func(metav1.Object)) client.Object {
		GinkgoHelper()
		o.SetNamespace(namespace)
		o.SetName(name)
		for _, mark := range marks {
			mark(o)
		}
		Expect(kube.Create(ctx, o)).To(Succeed())
		return o
	}
	service := func() *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName,
			ExternalName: "example.invalid"}}
	}
	// ours makes one object of each kind, and n Services.
	ours := func(ctx context.Context, n int) (all []client.Object) {
		GinkgoHelper()
		for i := range n {
			all = append(all, create(ctx, service(), target, fmt.Sprintf("web-%d", i), own.Mark))
		}
		bep := &v1alpha1.BoundEndpoint{Spec: v1alpha1.BoundEndpointSpec{
			Service: "web-0", Namespace: target, ProjectionID: "ep-1",
			Endpoints: []v1alpha1.EndpointRef{{ID: "ep-1", URL: "http://web-0." + target}},
			Ports:     []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: 20000}},
		}}
		return append(all, create(ctx, bep, own.Namespace, "web-0."+target, own.Mark),
			create(ctx, &v1alpha1.KubernetesOperator{}, own.Namespace, own.Release, own.Mark),
			create(ctx, &coordinationv1.Lease{}, own.Namespace, "fairlead-operator", own.Mark))
	}
	there := func(ctx context.Context, o client.Object) bool {
		GinkgoHelper()
		err := kube.Get(ctx, client.ObjectKeyFromObject(o), o)
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		return err == nil
	}

	It("deletes what is ours and nothing else", func(ctx SpecContext) {
		all := ours(ctx, 700) // more than a page
		other := installation.Installation{Namespace: own.Namespace, Release: "other"}
		installMulticlusterCRDs()
		all = append(all, create(ctx, &mcsv1beta1.ServiceImport{Spec: mcsv1beta1.ServiceImportSpec{
			Type: mcsv1beta1.Headless, Ports: []mcsv1beta1.ServicePort{}}}, target, "hello", own.Mark))
		copied := service()
		create(ctx, service(), target, "original", own.Mark) // ours too
		copied.Labels = map[string]string{installation.Label: own.ID()}
		copied.Annotations = map[string]string{installation.AnnotationPlace: target + "/original"}
		theirs := []client.Object{
			create(ctx, service(), target, "by-hand"), create(ctx, service(), target, "others", other.Mark),
			create(ctx, copied, target, "copied"),
			create(ctx, service(), own.Namespace, "beside"),
		}
		o.DryRun = true
		Expect(operator.Cleanup(ctx, o)).To(Succeed())
		Expect(out.String()).To(ContainSubstring("would delete Service %s/web-699\n", target))
		Expect(out.String()).To(ContainSubstring("705 objects of %s would be deleted", own))
		Expect(there(ctx, all[0])).To(BeTrue(), "a dry run deletes nothing")

		o.DryRun = false
		out.Reset()
		Expect(operator.Cleanup(ctx, o)).To(Succeed())
		Expect(out.String()).To(ContainSubstring("left alone: Service %s/copied", target))
		Expect(out.String()).To(ContainSubstring("deleted 705 of 705 objects of %s", own))
		for _, object := range all {
			Expect(there(ctx, object)).To(BeFalse(), "%T %s", object, object.GetName())
		}
		for _, object := range theirs {
			before := object.GetResourceVersion()
			Expect(there(ctx, object)).To(BeTrue(), object.GetName())
			Expect(object.GetResourceVersion()).To(Equal(before))
		}

		out.Reset()
		Expect(operator.Cleanup(ctx, o)).To(Succeed())
		Expect(out.String()).To(ContainSubstring("nothing of %s is left", own))
		Expect(out.String()).To(ContainSubstring("%s", other), "whose objects there are instead")
	})

	It("refuses while a manager runs, unless it is forced", func(ctx SpecContext) {
		all := ours(ctx, 1)
		lease, _ := all[len(all)-1].(*coordinationv1.Lease)
		lease.Spec = coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("manager-1"), LeaseDurationSeconds: ptr.To[int32](15),
			RenewTime:   ptr.To(metav1.NowMicro()),
			AcquireTime: ptr.To(metav1.NowMicro()),
		}
		Expect(kube.Update(ctx, lease)).To(Succeed())
		err := operator.Cleanup(ctx, o)
		Expect(err).
			To(
				MatchError(And(ContainSubstring("manager-1"),
					ContainSubstring("helm uninstall fairlead --namespace "+own.Namespace),
					ContainSubstring("--force"))))
		Expect(there(ctx, all[0])).To(BeTrue())

		o.Force = true
		Expect(operator.Cleanup(ctx, o)).To(Succeed())
		Expect(out.String()).To(ContainSubstring("a manager still runs"))
		Expect(there(ctx, all[0])).To(BeFalse())
	})

	It("goes on where the Lease has run out, or is another release's", func(ctx SpecContext) {
		for i, change := range []func(*coordinationv1.Lease){
			func(l *coordinationv1.Lease) {
				l.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(-time.Hour)))
			},
			func(l *coordinationv1.Lease) {
				installation.Installation{Namespace: own.Namespace, Release: "other"}.Mark(l)
			},
		} {
			lease := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("manager-1"), LeaseDurationSeconds: ptr.To[int32](15),
				RenewTime: ptr.To(metav1.NowMicro()),
			}}
			create(ctx, lease, own.Namespace, "fairlead-operator", func(metav1.Object) { change(lease) })
			web := create(ctx, service(), target, fmt.Sprintf("late-%d", i), own.Mark)
			Expect(operator.Cleanup(ctx, o)).To(Succeed())
			Expect(there(ctx, web)).To(BeFalse())
			Expect(kube.Delete(ctx, lease)).To(Succeed(), "it is not ours to delete")
		}
	})

	It("reports wrong options", func(ctx SpecContext) {
		o.Namespace = ""
		Expect(operator.Cleanup(ctx, o)).To(MatchError(ContainSubstring("--namespace")))
	})
})
