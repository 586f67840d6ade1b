// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// kubernetesManager is the mark of Kubernetes' own EndpointSlices.
const kubernetesManager = "endpointslice-controller.k8s.io"

// sliceAttempt is a slice that the manager's account writes, and the sentence that refuses it.
type sliceAttempt struct {
	name, refusal string // refusal is empty if it is admitted
	change        func(*discoveryv1.EndpointSlice)
}

func sliceAttempts() []sliceAttempt {
	label := func(name, value string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) { s.Labels[name] = value }
	}
	address := func(family discoveryv1.AddressType, ip string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) {
			s.AddressType = family
			s.Endpoints = append([]discoveryv1.Endpoint(nil), discoveryv1.Endpoint{Addresses: []string{ip}})
		}
	}
	imported := func(owner string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) {
			s.Name, s.Labels[discoveryv1.LabelServiceName] = "derived-25bmvji1c3-a-ipv4", "derived-25bmvji1c3"
			s.Labels["multicluster.kubernetes.io/service-name"] = "hello"
			s.Labels["multicluster.kubernetes.io/source-cluster"] = "a"
			s.OwnerReferences[0].Kind, s.OwnerReferences[0].Name = owner, "derived-25bmvji1c3"
			own.Mark(s)
		}
	}
	const foreign = "lists an address that is no forwarder's"
	return []sliceAttempt{
		{"forwarders of IPv4", "", func(*discoveryv1.EndpointSlice) {}},
		{"forwarders of IPv6", "", address(discoveryv1.AddressTypeIPv6, "fd00:9::1")},
		{"no forwarder", "", func(s *discoveryv1.EndpointSlice) { s.Endpoints = []discoveryv1.Endpoint{} }},
		{"of an imported Service", "", imported("Service")},
		{"of an imported Service, owned by its ServiceImport", "not owned by the Service", imported("ServiceImport")},
		{"a foreign address", foreign, address(discoveryv1.AddressTypeIPv4, "10.96.0.1")},
		{"a foreign address of IPv6", foreign, address(discoveryv1.AddressTypeIPv6, "fd00:9::2")},
		{"a foreign address beside a forwarder", foreign, func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}})
		}},
		{"a name", "lists IP addresses", address(discoveryv1.AddressTypeFQDN, "example.com")},
		{"a port of others", "is not in binding.portRange", func(s *discoveryv1.EndpointSlice) {
			s.Ports[0].Port = ptr.To[int32](6443)
		}},
		{"any port", "is not in binding.portRange", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil }},
		{"without a mark", "lacks the label", func(s *discoveryv1.EndpointSlice) {
			delete(s.Labels, installation.Label)
		}},
		{"without labels", "lacks the label", func(s *discoveryv1.EndpointSlice) { s.Labels = nil }},
		{"Kubernetes' mark", "lacks the label", label(discoveryv1.LabelManagedBy, kubernetesManager)},
		{"another's mark", "lacks the label", label(installation.Label, "0123456789abcdef0123456789abcdef")},
		{"another Service", "not owned by the Service", label(discoveryv1.LabelServiceName, "theirs")},
		{"the operator's namespace", "in its own namespace", func(s *discoveryv1.EndpointSlice) {
			s.Namespace = namespace
		}},
	}
}

// checkAdmission checks which EndpointSlices the API server lets the manager's account write.
func (c *cluster) checkAdmission() {
	c.t.Helper()
	ctx := context.Background()
	config := rest.CopyConfig(c.config)
	config.Impersonate.UserName = "system:serviceaccount:" + namespace + ":" + release + "-manager"
	manager, err := client.New(config, client.Options{Scheme: c.Scheme()})
	must.Succeed(c.t, err)
	c.awaitDenied(manager, "no params found") // there is no slice of the forwarders' Service
	copied := targetSlice()                   // as Kubernetes makes one of a Service that has our label
	copied.Labels[discoveryv1.LabelManagedBy] = kubernetesManager
	if err := c.Create(ctx, copied, client.DryRunAll); err != nil {
		c.t.Errorf("the policy hinders Kubernetes: %v", err)
	}
	for family, ip := range map[discoveryv1.AddressType]string{
		discoveryv1.AddressTypeIPv4: "10.9.0.1", discoveryv1.AddressTypeIPv6: "fd00:9::1"} {
		c.MustCreate(sourceSlice(family, ip))
	}
	c.awaitDenied(manager, "lists an address that is no forwarder's")
	for _, tt := range sliceAttempts() {
		s := targetSlice()
		tt.change(s)
		err := manager.Create(ctx, s, client.DryRunAll)
		c.expectRefusal(tt.name, tt.refusal, err)
	}

	theirs := targetSlice()
	theirs.Name, theirs.Labels = "theirs", map[string]string{discoveryv1.LabelServiceName: "theirs"}
	ours := targetSlice()
	c.MustCreate(theirs, ours)
	taken := theirs.DeepCopy()
	taken.Labels = ours.Labels
	c.expectRefusal("taking over a slice", notOurs, manager.Update(ctx, taken, client.DryRunAll))
	c.expectRefusal("deleting a slice of others", notOurs, manager.Delete(ctx, theirs, client.DryRunAll))
	moved := ours.DeepCopy()
	moved.Endpoints[0].Addresses = []string{"10.0.0.1"}
	c.expectRefusal("moving an address", "no forwarder's", manager.Update(ctx, moved, client.DryRunAll))
	c.expectRefusal("deleting its own", "", manager.Delete(ctx, ours, client.DryRunAll))
	for _, o := range []client.Object{theirs, ours} {
		if err := c.Delete(ctx, o); err != nil {
			c.t.Error(err)
		}
	}
	c.checkPodSlices(manager)
	c.checkPolicyOwner()
}

// checkPolicyOwner checks that the policies go with the release's namespace, which exists now.
func (c *cluster) checkPolicyOwner() {
	c.t.Helper()
	var list admissionregistrationv1.ValidatingAdmissionPolicyList
	c.install(release, namespace)
	if err := c.List(context.Background(), &list); err != nil || len(list.Items) != 6 {
		c.t.Fatalf("%d policies, %v", len(list.Items), err)
	}
	for _, p := range list.Items {
		if o := p.OwnerReferences; len(o) != 1 || o[0].Kind != "Namespace" || o[0].Name != namespace {
			c.t.Errorf("owners of %s: %+v", p.Name, o)
		}
	}
}

func (c *cluster) expectRefusal(what, refusal string, err error) {
	c.t.Helper()
	switch {
	case refusal == "" && err != nil:
		c.t.Errorf("%s is refused: %v", what, err)
	case refusal != "" && (!apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), refusal)):
		c.t.Errorf("%s: %v, want %q", what, err, refusal)
	}
}

// awaitDenied waits until a slice with a foreign address is refused with the sentence.
func (c *cluster) awaitDenied(manager client.Client, refusal string) {
	c.t.Helper()
	s := targetSlice()
	s.Endpoints[0].Addresses = []string{"10.0.0.1"}
	c.awaitRefusal(refusal, func() error {
		return manager.Create(context.Background(), s.DeepCopy(), client.DryRunAll)
	})
}

// awaitRefusal waits until write is refused with the sentence: the API server learns of policies
// and their parameters by watching.
func (c *cluster) awaitRefusal(refusal string, write func() error) {
	c.t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		if err = write(); err != nil && strings.Contains(err.Error(), refusal) {
			return
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-c.t.Context().Done():
		}
	}
	c.t.Fatalf("never refused with %q, but: %v", refusal, err)
}

// sourceSlice is a slice of the forwarders' Service as Kubernetes makes it.
func sourceSlice(family discoveryv1.AddressType, ip string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "source-" + strings.ToLower(string(family)),
			Labels: map[string]string{discoveryv1.LabelServiceName: release + "-forwarders",
				discoveryv1.LabelManagedBy: kubernetesManager}},
		AddressType: family, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip}}},
	}
}

// targetSlice is a slice that the manager may write.
func targetSlice() *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "api-fairlead-ipv4",
			Labels: map[string]string{discoveryv1.LabelServiceName: "api",
				discoveryv1.LabelManagedBy: installation.SliceManager},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "api",
				UID: "0a7e1c1e-8f0c-4a43-9d2f-4f6f3f0b7d11"}}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.9.0.1"}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http-80"), Port: ptr.To[int32](20080),
			Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	own.Mark(s)
	return s
}
