// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package registration_test

import (
	"context"
	"sync/atomic"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
	"github.com/fairlead-dev/fairlead/test/support/fixture"
)

// laggingClient reads a KubernetesOperator as it was at first, as a cache does that has not seen
// later writes.
type laggingClient struct {
	client.Client
	first atomic.Pointer[v1alpha1.KubernetesOperator]
}

func (c *laggingClient) Get(
	ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption,
) error {
	object, ok := into.(*v1alpha1.KubernetesOperator)
	if !ok {
		return c.Client.Get(ctx, key, into, opts...)
	}
	if first := c.first.Load(); first != nil {
		first.DeepCopyInto(object)
		return nil
	}
	err := c.Client.Get(ctx, key, object, opts...)
	if err == nil {
		c.first.Store(object.DeepCopy())
	}
	return err
}

var _ = Describe("Registration: the forwarders that EndpointSlices list", func() {
	It("are written beside heartbeats although the cache lags behind, and read live", func(ctx SpecContext) {
		f := fixture.New(ctx, config)
		r := &registration.Registration{
			Live: f.Live, Account: &fakeAccount{id: "op-1"}, Anchors: f.Anchors, Endpoints: &endpoints{},
			Recorder: f.Events, Clock: f.Clock, Log: logr.Discard(),
		}
		r.Client = f.Client
		Expect(r.RecordedProjectedForwarders(ctx)).To(BeEmpty())
		Expect(r.Refresh(ctx)).To(Succeed())
		r.Client = &laggingClient{Client: f.Client}
		recorded := func() []string {
			GinkgoHelper()
			all, err := r.RecordedProjectedForwarders(ctx)
			Expect(err).NotTo(HaveOccurred())
			return all
		}
		for _, addresses := range [][]string{{"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}, {"10.0.0.2"}} {
			Expect(r.RecordProjectedForwarders(ctx, addresses)).To(Succeed())
			Expect(recorded()).To(Equal(addresses))
			_, err := r.Heartbeat(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(recorded()).To(Equal(addresses))
		}

		By("taking over from another manager, whose record stays until there is another one")
		r = &registration.Registration{
			Client: f.Client, Live: f.Live, Account: r.Account, Anchors: r.Anchors, Endpoints: r.Endpoints,
			Recorder: r.Recorder, Clock: r.Clock, Log: r.Log,
		}
		_, err := r.Heartbeat(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(recorded()).To(Equal([]string{"10.0.0.2"}))
		Expect(r.RecordProjectedForwarders(ctx, nil)).To(Succeed())
		Expect(recorded()).To(BeEmpty())
	})
})
