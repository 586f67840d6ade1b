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
	"github.com/fairlead-dev/fairlead/internal/controller/endpointsync"
)

const many = 12

// projectMany makes many endpoints and their objects.
func (w *harness) projectMany(ctx context.Context) []account.Endpoint {
	GinkgoHelper()
	var endpoints []account.Endpoint
	for i := range many {
		endpoints = append(endpoints, w.endpoint(fmt.Sprintf("ep-%02d", i), "http://"+hostname(i)))
	}
	w.list(endpoints...)
	w.reconcileAll(ctx)
	w.observe()
	return endpoints
}

func hostname(i int) string { return fmt.Sprintf("h%02d.demo", i) }

func (w *harness) reconcileAll(ctx context.Context) {
	GinkgoHelper()
	for i := range many {
		w.reconcile(ctx, hostname(i))
	}
}

// states returns the states of all objects.
func (w *harness) states(ctx context.Context) (states []v1alpha1.BoundEndpointState) {
	GinkgoHelper()
	for i := range many {
		states = append(states, w.object(ctx, hostname(i)).Spec.State)
	}
	return states
}

// versions returns their resource versions.
func (w *harness) versions(ctx context.Context) (versions []string) {
	GinkgoHelper()
	for i := range many {
		versions = append(versions, w.object(ctx, hostname(i)).ResourceVersion)
	}
	return versions
}

var _ = Describe("Reconciler: a mass removal", func() {
	var w *harness
	BeforeEach(func(ctx SpecContext) { w = newHarness(ctx) })
	bound, released := HaveEach(v1alpha1.StateBound), HaveEach(v1alpha1.StateReleased)

	It("is held, through a restart, with the endpoints that calls go to, until a second list", func(ctx SpecContext) {
		endpoints := w.projectMany(ctx)
		w.restart("")
		w.list()
		w.reconcileAll(ctx)
		w.Clock.Step(45 * time.Second)
		w.list()
		w.reconcileAll(ctx)
		Expect(w.states(ctx)).To(bound)
		Expect(w.object(ctx, hostname(0)).Spec.Endpoints).
			To(Equal([]v1alpha1.EndpointRef{{ID: "ep-00", URL: "http://h00.demo"}}))
		Expect(w.object(ctx, hostname(0)).Spec.RemoveAfter).NotTo(BeNil())

		w.restart("")
		w.list()
		Expect(w.reconcile(ctx, hostname(0)).RequeueAfter).To(BeZero(), "the list wakes it")
		w.Clock.Step(time.Minute)
		Expect(w.list(endpoints[:2]...)).To(ContainElements(hostname(0), hostname(2), hostname(many-1)))
		w.reconcileAll(ctx)
		states := w.states(ctx)
		Expect(states[:2]).To(bound)
		Expect(states[2:]).To(released)
		Expect(w.object(ctx, hostname(0)).Spec.RemoveAfter).To(BeNil(), "it came back")
		w.Clock.Step(time.Minute)
		w.reconcileAll(ctx)
		w.expectGone(ctx, hostname(2))
	})

	It("holds no addition, and nothing of a selector that changed, which writes what it concerns and nothing else",
		func(ctx SpecContext) {
			endpoints := w.projectMany(ctx)
			before := w.versions(ctx)
			w.restart("ep.id > 'ep-08' || ep.id == 'ep-new'")
			w.list(append(endpoints, w.endpoint("ep-new", "http://new.demo"))...)
			w.reconcileAll(ctx)
			w.reconcile(ctx, "new.demo")
			states, after := w.states(ctx), w.versions(ctx)
			Expect(states[:9]).To(released)
			Expect(after[9:]).To(Equal(before[9:]))
			w.object(ctx, "new.demo")

			w.restart("")
			w.list(endpoints...)
			w.reconcileAll(ctx)
			Expect(w.states(ctx)).To(bound)
			Expect(w.versions(ctx)[9:]).To(Equal(before[9:]))
		})

	It("is frozen when another account lists, through a restart, until it is accepted; a mass it is then, too",
		func(ctx SpecContext) {
			w.projectMany(ctx)
			before := w.object(ctx, hostname(0))
			w.recorded, w.belonging = w.belonging, endpointsync.SourceIdentity{AccountID: "ac-2", StoreID: "st-1"}
			cloud := w.endpoint("ep-other", "http://other.demo")
			cloud.Type = account.TypeCloud
			same := w.endpoint("ep-their", "http://h00.demo")
			for range 2 {
				w.restart("")
				w.list(cloud, same)
				w.event(account.Deleted, cloud)
				w.event(account.Added, cloud)
				w.reconcile(ctx, "other.demo")
				w.event(account.Deleted, cloud)
				w.Clock.Step(time.Hour)
				w.list(same)
				w.reconcileAll(ctx)
				w.reconcile(ctx, "other.demo")
				Expect(w.states(ctx)).To(bound)
				Expect(w.object(ctx, "other.demo").Spec.State).To(Equal(v1alpha1.StateBound))
				after := w.object(ctx, hostname(0))
				Expect(after.Spec.ProjectionID).To(Equal(before.Spec.ProjectionID),
					"the upstream Service keeps its name and address")
				Expect(after.Spec.Ports).To(Equal(before.Spec.Ports))
			}
			w.accept = "ac-2"
			w.restart("")
			w.list(same)
			w.reconcileAll(ctx)
			Expect(w.states(ctx)).To(bound)
			w.Clock.Step(time.Minute)
			w.list(same)
			w.reconcileAll(ctx)
			states := w.states(ctx)
			Expect(states[0]).To(Equal(v1alpha1.StateBound))
			Expect(states[1:]).To(released)
			Expect(w.object(ctx, hostname(0)).Spec.ProjectionID).To(Equal("ep-their"))
		})
})
