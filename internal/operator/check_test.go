// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"bytes"
	"context"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// checkOnce returns what Check has found when it begins to read again.
func checkOnce(ctx context.Context, o operator.CheckOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.Timeout, o.Kubernetes = time.Minute, rest.CopyConfig(o.Kubernetes)
	reads := 0
	o.Kubernetes.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if resource(req.URL.Path) == "kubernetesoperators" {
				if reads++; reads > 1 {
					cancel()
				}
			}
			return next.RoundTrip(req)
		})
	})
	return operator.Check(ctx, o)
}

var _ = Describe("the check", func() {
	It("passes for an installation that works, and reports the problem of one that does not", func(ctx SpecContext) {
		r := newRelease(ctx)
		var out bytes.Buffer
		check := operator.CheckOptions{
			Installation: installation.Installation{Namespace: r.namespace, Release: "fairlead"},
			Timeout:      5 * time.Second, Kubernetes: r.kubernetes, Out: &out,
		}
		Expect(operator.Check(ctx, check)).To(MatchError(ContainSubstring("not found")))
		r.account.Fail(errDown)
		run(r.options())
		Eventually(r.condition(ctx, v1alpha1.ConditionAPIReachable)).Should(Equal("False Unreachable"))
		Expect(checkOnce(ctx, check)).To(MatchError(ContainSubstring("Registered is not known yet")))
		Expect(out.String()).To(BeEmpty())
		r.account.Fail(nil)
		check.Timeout = time.Minute
		Expect(operator.Check(ctx, check)).To(Succeed())
		Expect(out.String()).To(ContainSubstring("EdgeReachable: all forwarders"))
		Expect(out.String()).To(ContainSubstring("0 hostnames are bound"))
	})

	It("waits for exporters, where there are to be any", func(ctx SpecContext) {
		r := newRelease(ctx)
		run(r.options())
		var out bytes.Buffer
		check := operator.CheckOptions{Installation: installation.Installation{Namespace: r.namespace,
			Release: "fairlead"}, Timeout: time.Minute, Exporter: true, Kubernetes: r.kubernetes, Out: &out}
		Eventually(r.condition(ctx, v1alpha1.ConditionRegistered)).Should(Equal("True Registered"))
		Expect(checkOnce(ctx, check)).To(MatchError(ContainSubstring("no exporter runs")))
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "exporter", Labels: map[string]string{
				"app.kubernetes.io/name": "fairlead-exporter", "app.kubernetes.io/instance": "fairlead"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "exporter", Image: "x"}}},
		}
		Expect(kube.Create(ctx, pod)).To(Succeed())
		Expect(checkOnce(ctx, check)).To(MatchError(ContainSubstring("exporter exporter is not ready")))
		Expect(out.String()).To(BeEmpty())
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		Expect(kube.Status().Update(ctx, pod)).To(Succeed())
		Expect(operator.Check(ctx, check)).To(Succeed())
		Expect(out.String()).To(ContainSubstring("all exporters are ready"))
	})
})
