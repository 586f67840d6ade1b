// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"fmt"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

// gatewayCRDs are those of sigs.k8s.io/gateway-api.
const gatewayCRDs = "testdata/gateway-api-v1.7.0"

// route returns a route of the Gateway API to the target Service of a hostname.
func route(kind, namespace, service, port string) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal(fmt.Appendf(nil, `
apiVersion: gateway.networking.k8s.io/v1
kind: %s
metadata: {name: %s, namespace: %s}
spec:
  parentRefs: [{name: gateway, namespace: infra}]
  rules:
    - backendRefs: [{name: %s%s}]
`, kind, service, namespace, service, port), u)).To(Succeed())
	return u
}

var _ = Describe("routes of the Gateway API", func() {
	It("lead to target Services with EndpointSlices", func(ctx SpecContext) {
		files, err := filepath.Glob(gatewayCRDs + "/*.yaml")
		Expect(err).NotTo(HaveOccurred())
		Expect(files).To(HaveLen(2))
		_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{gatewayCRDs}})
		Expect(err).NotTo(HaveOccurred())

		r := newRelease(ctx)
		r.setForwarders(ctx, "10.9.0.1")
		o := r.options()
		o.Projection = v1alpha1.ProjectionEndpointSlice
		run(o)
		r.account.Put(endpoint("ep-1", "http://api."+r.target), endpoint("ep-2", "tcp://db."+r.target+":5432"))
		for name, kind := range map[string]string{"api": "HTTPRoute", "db": "TCPRoute"} {
			Eventually(r.ready(ctx, name+"."+r.target)).Should(Equal("True Ready"))
			s, err := service(ctx, r.target, name)()
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Spec.Type).NotTo(Equal(corev1.ServiceTypeExternalName), "which the Gateway API advises against")
			Expect(s.Spec.Ports).To(HaveLen(1))
			port := fmt.Sprintf(", port: %d", s.Spec.Ports[0].Port)
			Expect(kube.Create(ctx, route(kind, r.target, name, port), client.DryRunAll)).To(Succeed())
			err = kube.Create(ctx, route(kind, r.target, name, ""), client.DryRunAll)
			Expect(apierrors.IsInvalid(err)).To(BeTrue(), "a route that is not valid: %v", err)
		}
	})
})
