// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
)

const many = 12

// projectMany makes many endpoints and their objects.
func (h *harness) projectMany(ctx context.Context) []account.Endpoint {
	GinkgoHelper()
	var endpoints []account.Endpoint
	for i := range many {
		endpoints = append(endpoints, h.endpoint(fmt.Sprintf("ep-%02d", i), "http://"+hostname(i)))
	}
	h.list(endpoints...)
	h.reconcileAll(ctx)
	h.observe()
	return endpoints
}

func hostname(i int) string { return fmt.Sprintf("h%02d.demo", i) }

func (h *harness) reconcileAll(ctx context.Context) {
	GinkgoHelper()
	for i := range many {
		h.reconcile(ctx, hostname(i))
	}
}

// states returns the states of all objects.
func (h *harness) states(ctx context.Context) (states []v1alpha1.BoundEndpointState) {
	GinkgoHelper()
	for i := range many {
		states = append(states, h.object(ctx, hostname(i)).Spec.State)
	}
	return states
}

// versions returns their resource versions.
func (h *harness) versions(ctx context.Context) (versions []string) {
	GinkgoHelper()
	for i := range many {
		versions = append(versions, h.object(ctx, hostname(i)).ResourceVersion)
	}
	return versions
}

var _ = Describe("Reconciler: a mass removal", func() {
	var h *harness
	BeforeEach(func(ctx SpecContext) { h = newHarness(ctx) })
	bound, released := HaveEach(v1alpha1.StateBound), HaveEach(v1alpha1.StateReleased)

	It("is held, through a restart, with the endpoints that calls go to, until a second list", func(ctx SpecContext) {
		endpoints := h.projectMany(ctx)
		h.restart("")
		h.list()
		h.reconcileAll(ctx)
		h.Clock.Step(45 * time.Second)
		h.list()
		h.reconcileAll(ctx)
		Expect(h.states(ctx)).To(bound)
		Expect(h.object(ctx, hostname(0)).Spec.Endpoints).
			To(Equal([]v1alpha1.EndpointRef{{ID: "ep-00", URL: "http://h00.demo"}}))
		Expect(h.object(ctx, hostname(0)).Spec.RemoveAfter).NotTo(BeNil())

		h.restart("")
		h.list()
		Expect(h.reconcile(ctx, hostname(0)).RequeueAfter).To(BeZero(), "the list wakes it")
		h.Clock.Step(time.Minute)
		Expect(h.list(endpoints[:2]...)).To(ContainElements(hostname(0), hostname(2), hostname(many-1)))
		h.reconcileAll(ctx)
		states := h.states(ctx)
		Expect(states[:2]).To(bound)
		Expect(states[2:]).To(released)
		Expect(h.object(ctx, hostname(0)).Spec.RemoveAfter).To(BeNil(), "it came back")
		h.Clock.Step(time.Minute)
		h.reconcileAll(ctx)
		h.expectGone(ctx, hostname(2))
	})

	It("holds no addition, and nothing of a selector that changed, which writes what it concerns and nothing else",
		func(ctx SpecContext) {
			endpoints := h.projectMany(ctx)
			before := h.versions(ctx)
			h.restart("ep.id > 'ep-08' || ep.id == 'ep-new'")
			h.list(append(endpoints, h.endpoint("ep-new", "http://new.demo"))...)
			h.reconcileAll(ctx)
			h.reconcile(ctx, "new.demo")
			states, after := h.states(ctx), h.versions(ctx)
			Expect(states[:9]).To(released)
			Expect(after[9:]).To(Equal(before[9:]))
			h.object(ctx, "new.demo")

			h.restart("")
			h.list(endpoints...)
			h.reconcileAll(ctx)
			Expect(h.states(ctx)).To(bound)
			Expect(h.versions(ctx)[9:]).To(Equal(before[9:]))
		})

	It("is frozen when another account lists, through a restart, until it is accepted; a mass it is then, too",
		func(ctx SpecContext) {
			h.projectMany(ctx)
			before := h.object(ctx, hostname(0))
			h.recorded, h.belonging = h.belonging, endpointsync.SourceIdentity{AccountID: "ac-2", StoreID: "st-1"}
			cloud := h.endpoint("ep-other", "http://other.demo")
			cloud.Type = account.TypeCloud
			same := h.endpoint("ep-their", "http://h00.demo")
			for range 2 {
				h.restart("")
				h.list(cloud, same)
				h.event(account.Deleted, cloud)
				h.event(account.Added, cloud)
				h.reconcile(ctx, "other.demo")
				h.event(account.Deleted, cloud)
				h.Clock.Step(time.Hour)
				h.list(same)
				h.reconcileAll(ctx)
				h.reconcile(ctx, "other.demo")
				Expect(h.states(ctx)).To(bound)
				Expect(h.object(ctx, "other.demo").Spec.State).To(Equal(v1alpha1.StateBound))
				after := h.object(ctx, hostname(0))
				Expect(after.Spec.ProjectionID).To(Equal(before.Spec.ProjectionID),
					"the upstream Service keeps its name and address")
				Expect(after.Spec.Ports).To(Equal(before.Spec.Ports))
			}
			h.accept = "ac-2"
			h.restart("")
			h.list(same)
			h.reconcileAll(ctx)
			Expect(h.states(ctx)).To(bound)
			h.Clock.Step(time.Minute)
			h.list(same)
			h.reconcileAll(ctx)
			states := h.states(ctx)
			Expect(states[0]).To(Equal(v1alpha1.StateBound))
			Expect(states[1:]).To(released)
			Expect(h.object(ctx, hostname(0)).Spec.ProjectionID).To(Equal("ep-their"))
		})
})
