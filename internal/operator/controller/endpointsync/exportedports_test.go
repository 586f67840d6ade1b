// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
)

var _ = Describe("Reconciler: the ports of an exported Service", func() {
	var h *harness
	BeforeEach(func(ctx SpecContext) { h = newHarness(ctx) })
	port := func(id, url string) account.Endpoint {
		e := h.endpoint(id, url)
		e.Bindings = []string{account.BindingClusterset}
		return e
	}

	It("are an object of their own for each cluster, with a target port of their own", func(ctx SpecContext) {
		for _, cluster := range []string{"a", "b"} {
			hostname := "hello.com." + cluster // a top-level domain: pods do not look it up
			h.event(account.Added, port("ep-"+cluster+"1", "tcp://"+hostname+":42"))
			h.event(account.Added, port("ep-"+cluster+"2", "tcp://"+hostname+":42"))
			h.reconcile(ctx, hostname)
			b := h.object(ctx, hostname)
			Expect([]string{b.Spec.Service, b.Spec.Namespace, b.Spec.Cluster}).
				To(Equal([]string{"hello", "com", cluster}))
			Expect(b.Spec.Hostname()).To(Equal(b.Name))
			Expect(b.Spec.Endpoints).To(HaveLen(2))
			Expect(b.Spec.Ports).To(HaveLen(1))
			Expect(b.Spec.Ports[0].Scheme).To(Equal("tcp"))
		}
		Expect(h.EventNotes()).To(BeEmpty())
		h.event(account.Added, h.endpoint("ep-1", "tcp://hello.com:42"))
		h.reconcile(ctx, "hello.com")
		Expect(h.object(ctx, "hello.com").Spec.Cluster).To(BeEmpty())
		targets := map[int32]bool{}
		for _, hostname := range []string{"hello.com", "hello.com.a", "hello.com.b"} {
			targets[h.object(ctx, hostname).Spec.Ports[0].TargetPort] = true
		}
		Expect(targets).To(HaveLen(3))
	})

	It("are released after the removal delay, and rest", func(ctx SpecContext) {
		e := port("ep-1", "tcp://hello.demo.a:42")
		h.event(account.Added, e)
		h.reconcile(ctx, "hello.demo.a")
		h.observe()
		h.event(account.Deleted, e)
		Expect(h.reconcile(ctx, "hello.demo.a").RequeueAfter).To(Equal(30 * time.Second))
		h.restart("")
		h.list()
		h.Clock.Step(30 * time.Second)
		Expect(h.reconcile(ctx, "hello.demo.a").RequeueAfter).To(Equal(time.Minute))
		Expect(h.object(ctx, "hello.demo.a").Spec.State).To(Equal(v1alpha1.StateReleased))
		h.Clock.Step(time.Minute)
		h.reconcile(ctx, "hello.demo.a")
		h.expectGone(ctx, "hello.demo.a")
	})

	It("stay while a server does not list them", func(ctx SpecContext) {
		h.event(account.Added, port("ep-1", "tcp://hello.demo.a:42"))
		h.reconcile(ctx, "hello.demo.a")
		before := h.object(ctx, "hello.demo.a").Spec
		h.observe()
		h.restart("")
		h.set.Replace(endpointsync.Snapshot{AccountID: "ac-1", StoreID: "st-1", WithoutClusterset: true}, h.Clock.Now())
		h.reconcile(ctx, "hello.demo.a")
		h.Clock.Step(time.Hour)
		Expect(h.reconcile(ctx, "hello.demo.a").RequeueAfter).To(BeZero())
		after := h.object(ctx, "hello.demo.a").Spec
		Expect(after.State).To(Equal(v1alpha1.StateBound))
		Expect(after.Endpoints).To(Equal(before.Endpoints))
		h.list()
		h.reconcile(ctx, "hello.demo.a")
		Expect(h.object(ctx, "hello.demo.a").Spec.State).To(Equal(v1alpha1.StateReleased))
	})
})
