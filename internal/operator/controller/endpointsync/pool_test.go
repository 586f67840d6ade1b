// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
)

// A pool is several endpoints of one URL: one port, which is released when the last of them is
// gone.
var _ = Describe("Reconciler: endpoints of a pool", func() {
	type step struct {
		typ account.EventType
		id  string
	}
	var h *harness
	BeforeEach(func(ctx SpecContext) { h = newHarness(ctx) })

	member := func(id string) account.Endpoint {
		e := h.endpoint(id, "http://api.demo")
		e.PoolingEnabled, e.ProjectionID = true, "ep-1"
		return e
	}

	DescribeTable("come and go without moving the port", func(ctx SpecContext, steps ...step) {
		first := member(steps[0].id)
		h.event(account.Added, first)
		h.reconcile(ctx, "api.demo")
		before := h.object(ctx, "api.demo")
		Expect(before.Spec.Ports).To(HaveLen(1))
		left := map[string]bool{first.ID: true}
		for _, s := range steps[1:] {
			e := member(s.id)
			if s.typ == account.Modified {
				e.Status = account.StatusOffline
			} else {
				left[s.id] = s.typ == account.Added
			}
			h.event(s.typ, e)
			result := h.reconcile(ctx, "api.demo")
			b := h.object(ctx, "api.demo")
			var want []string
			for _, id := range []string{"ep-1", "ep-2", "ep-3"} {
				if left[id] {
					want = append(want, id)
				}
			}
			var got []string
			for _, ref := range b.Spec.Endpoints {
				Expect(ref.URL).To(Equal("http://api.demo"))
				got = append(got, ref.ID)
			}
			Expect(got).To(Equal(want))
			Expect(b.UID).To(Equal(before.UID))
			Expect(b.Spec.ProjectionID).To(Equal("ep-1"))
			if len(want) > 0 {
				Expect(b.Spec.Ports).To(Equal(before.Spec.Ports), "after %s of %s", s.typ, s.id)
				Expect(b.Spec.RemoveAfter).To(BeNil())
				Expect(result.RequeueAfter).To(BeZero())
				continue
			}
			Expect(b.Spec.State).To(Equal(v1alpha1.StateBound))
			Expect(b.Spec.RemoveAfter.Time).To(BeTemporally("==", h.Clock.Now().Add(30*time.Second)),
				"the last one has gone")
			Expect(b.Spec.Ports[0].TargetPort).To(Equal(before.Spec.Ports[0].TargetPort))
		}
	},
		Entry("the first goes first", step{id: "ep-1"}, step{account.Added, "ep-2"}, step{account.Deleted, "ep-1"},
			step{account.Deleted, "ep-2"}),
		Entry("the first goes last", step{id: "ep-1"}, step{account.Added, "ep-2"}, step{account.Deleted, "ep-2"},
			step{account.Deleted, "ep-1"}),
		Entry("the first goes and comes back", step{id: "ep-1"}, step{account.Added, "ep-2"},
			step{account.Deleted, "ep-1"},
			step{account.Added, "ep-1"},
			step{account.Deleted, "ep-2"}, step{account.Deleted, "ep-1"}),
		Entry("the later one is listed first", step{id: "ep-2"}, step{account.Added, "ep-1"},
			step{account.Deleted, "ep-2"},
			step{account.Deleted, "ep-1"}),
		Entry("three, each replaced", step{id: "ep-1"}, step{account.Added, "ep-2"}, step{account.Deleted, "ep-1"},
			step{account.Added, "ep-3"}, step{account.Deleted, "ep-2"},
			step{account.Deleted, "ep-3"}),
		Entry("one dies, which is no departure", step{id: "ep-1"}, step{account.Added, "ep-2"},
			step{account.Modified, "ep-1"}, step{account.Deleted, "ep-2"},
			step{account.Deleted, "ep-1"}),
		Entry("the last comes back within the delay", step{id: "ep-1"}, step{account.Added, "ep-2"},
			step{account.Deleted, "ep-1"}, step{account.Deleted, "ep-2"},
			step{account.Added, "ep-2"}),
	)

	It("take HTTP/2 at once while all their upstreams speak it, on the same target port", func(ctx SpecContext) {
		event := func(typ account.EventType, id, protocol string) v1alpha1.BoundPort {
			GinkgoHelper()
			e := member(id)
			e.UpstreamProtocol = protocol
			Expect(h.set.Apply(account.EndpointEvent{Type: typ, Endpoint: &e,
				ResourceVersion: e.ResourceVersion}).Hostnames).To(ContainElement("api.demo"))
			h.reconcile(ctx, "api.demo")
			return h.object(ctx, "api.demo").Spec.Ports[0]
		}
		port := event(account.Added, "ep-1", "http2")
		Expect(port.AppProtocol).To(Equal("kubernetes.io/h2c"))
		http1 := port
		http1.AppProtocol = ""
		Expect(event(account.Added, "ep-2", "http1")).To(Equal(http1))
		Expect(event(account.Modified, "ep-2", "http2")).To(Equal(port))
		Expect(event(account.Modified, "ep-1", "http1")).To(Equal(http1))
		Expect(event(account.Deleted, "ep-1", "http1")).To(Equal(port))
		Expect(event(account.Deleted, "ep-2", "http2").AppProtocol).To(Equal("kubernetes.io/h2c"),
			"until it is removed")
	})

	It("are one URL that is online while one of them is", func() {
		one, two := member("ep-1"), member("ep-2")
		one.Status = account.StatusOffline
		h.list(one, two)
		known, endpoints, offline := h.set.Availability("api.demo")
		Expect(known).To(BeTrue())
		Expect(endpoints).To(Equal(2))
		Expect(offline).To(BeEmpty())
		two.Status = account.StatusOffline
		h.list(one, two)
		_, _, offline = h.set.Availability("api.demo")
		Expect(offline).To(Equal([]string{"http://api.demo"}))
	})
})
