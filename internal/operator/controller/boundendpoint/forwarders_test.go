// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package boundendpoint_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
)

var _ = Describe("Reconciler: the forwarders", func() {
	var h *harness
	BeforeEach(func(ctx SpecContext) { h = newHarness(ctx) })
	good := forwarderstatus.Report{Known: true, Forwarders: 2, Listening: 2, Sessions: 2, Settled: true}

	DescribeTable("are reported by Reachable when they fail",
		func(ctx SpecContext, change func(*forwarderstatus.Report), want, message, count string) {
			b := h.object(ctx, "api", h.Target)
			h.reconcile(ctx, b)
			Expect(b.Status.Forwarders).To(Equal("2/2"))
			change(&h.forwarders.report)
			h.account.offline = []string{"http://api." + h.Target} // the word of the account comes last
			h.reconcile(ctx, b)
			expectCondition(b, v1alpha1.ConditionReachable, want, message)
			if want != "True Online" {
				expectCondition(b, v1alpha1.ConditionReady, want, message)
			}
			Expect(b.Status.Forwarders).To(Equal(count))
			version := b.ResourceVersion
			h.Clock.Step(time.Hour)
			h.reconcile(ctx, b)
			Expect(b.ResourceVersion).To(Equal(version))
		},
		Entry("one that cannot listen", func(r *forwarderstatus.Report) {
			r.Listening, r.Failures = 1, []forwarderstatus.Failure{
				{Pod: "fwd-1", Port: 20080, Error: "address already in use"}}
		}, "False ListenerFailed", "forwarder fwd-1 does not listen on port 20080: address already in use", "1/2"),
		Entry("one that has not received the port", func(r *forwarderstatus.Report) {
			r.Listening, r.Failures = 1, []forwarderstatus.Failure{{Pod: "fwd-1", Port: 20080}}
		}, "False ListenerFailed", "forwarder fwd-1 does not listen on port 20080: it has not received", "1/2"),
		Entry("many of them", func(r *forwarderstatus.Report) {
			r.Listening, r.Failures = 0, make([]forwarderstatus.Failure, 5)
		}, "False ListenerFailed", "; and 2 more", "0/2"),
		Entry("none with a session", func(r *forwarderstatus.Report) {
			r.Sessions = 0
		}, "False ServiceUnreachable", "see EdgeReachable of KubernetesOperator fairlead", "2/2"),
		Entry("one with a session", func(r *forwarderstatus.Report) {
			r.Sessions = 1
		}, "False AgentOffline", "no agent is connected", "2/2"),
		Entry("none at all", func(r *forwarderstatus.Report) {
			*r = forwarderstatus.Report{Known: true}
		}, "False ServiceUnreachable", "no forwarder is running", "0/0"),
		Entry("none that reports its status", func(r *forwarderstatus.Report) {
			*r = forwarderstatus.Report{Known: true, Forwarders: 2, NotReporting: 2}
		}, "Unknown ServiceUnreachable", "port 8081", "0/2"),
		Entry("nothing known yet: the last status stays", func(r *forwarderstatus.Report) {
			*r = forwarderstatus.Report{}
		}, "True Online", "", "2/2"),
	)

	It("are reported though the account has not been read, whose last word stays otherwise", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		h.account.known = false // as of a manager that starts, and is refused
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
		h.forwarders.report.Sessions = 0
		h.Clock.Step(time.Hour)
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "False ServiceUnreachable", "no forwarder has a session")
		h.forwarders.report.Sessions = 2
		h.Clock.Step(time.Hour)
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "Unknown ServiceUnreachable", "the account has not been read yet")
	})

	It("change no status during a rollout that replaces them one by one", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.reconcile(ctx, b)
		version := b.ResourceVersion
		for _, n := range []int{3, 2, 3, 2} {
			h.forwarders.report = forwarderstatus.Report{Known: true, Forwarders: n, Listening: n, Sessions: n}
			h.reconcile(ctx, b)
		}
		h.forwarders.report.Settled = true
		h.reconcile(ctx, b)
		Expect(b.ResourceVersion).To(Equal(version))
		h.forwarders.report = forwarderstatus.Report{Known: true, Forwarders: 3, Listening: 3, Sessions: 3,
			Settled: true}
		h.reconcile(ctx, b)
		Expect(b.Status.Forwarders).To(Equal("3/3"))
	})

	It("listen to a spec that the status calls observed, and Ready is written when they do", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		h.forwarders.report.Listening = 0
		Expect(h.reconcile(ctx, b).RequeueAfter).To(Equal(3 * time.Second))
		h.upstream(ctx, b)
		h.target(ctx, b)
		Expect(b.Observed()).To(BeTrue())
		Expect(b.Status.Conditions).To(HaveLen(1))
		Expect(b.Status.Services).To(HaveLen(2))
		version := b.ResourceVersion
		h.forwarders.report.Listening = 1 // of two
		h.reconcile(ctx, b)
		Expect(b.ResourceVersion).To(Equal(version))
		Expect(h.forwarders.awaited).To(HaveKey(b.Name))
		h.forwarders.report = good
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
		Expect(b.Status.Forwarders).To(Equal("2/2"))
		Expect(h.forwarders.awaited).To(BeEmpty())
		Expect(h.EventNotes()).To(BeEmpty())
	})

	It("cause no status write that is based on a stale cache", func(ctx SpecContext) {
		b := h.object(ctx, "api", h.Target)
		before := b.DeepCopy()
		h.forwarders.report.Listening = 0
		h.reconcile(ctx, b)
		h.forwarders.report = good
		h.counter.cached, h.counter.statuses = before, 0
		result, err := h.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(50 * time.Millisecond))
		Expect(h.counter.statuses).To(BeZero())
		h.counter.cached = nil
		h.reconcile(ctx, b)
		Expect(h.counter.statuses).To(Equal(1))
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
	})

	DescribeTable("are waited for only for a limited time",
		func(ctx SpecContext, report forwarderstatus.Report, wait time.Duration, want string) {
			b := h.object(ctx, "api", h.Target)
			h.forwarders.report = report
			Expect(h.reconcile(ctx, b).RequeueAfter).To(Equal(wait))
			h.Clock.Step(wait - time.Second)
			Expect(h.reconcile(ctx, b).RequeueAfter).To(Equal(time.Second))
			h.Clock.Step(time.Second)
			Expect(h.reconcile(ctx, b).RequeueAfter).To(BeZero())
			expectCondition(b, v1alpha1.ConditionReady, want, "")
			Expect(h.forwarders.awaited).To(BeEmpty())
		},
		Entry("one fails", forwarderstatus.Report{Known: true, Forwarders: 2, Listening: 1, Sessions: 2,
			Failures: []forwarderstatus.Failure{{Pod: "p", Port: 1}}}, 3*time.Second, "False ListenerFailed"),
		Entry("the first one starts", forwarderstatus.Report{Known: true, Starting: true}, 10*time.Second,
			"False ServiceUnreachable"),
		Entry("none has reported", forwarderstatus.Report{}, 3*time.Second, "Unknown ServiceUnreachable"),
	)

	It("open a new port before the status is written", func(ctx SpecContext) {
		b := h.object(ctx, "db", h.Target)
		h.reconcile(ctx, b)
		h.update(ctx, b, func(s *v1alpha1.BoundEndpointSpec) {
			s.Ports = append(s.Ports, v1alpha1.BoundPort{Port: 5432, Scheme: "tcp", TargetPort: 20081})
		})
		h.forwarders.report.Listening = 0
		h.forwarders.report.Failures = []forwarderstatus.Failure{{Pod: "p", Port: 20081}}
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", "")
		h.forwarders.report = good
		h.reconcile(ctx, b)
		expectCondition(b, v1alpha1.ConditionReady, "True Ready", ":5432")
		Expect(h.EventNotes()).To(BeEmpty())
	})

	It("that fail for many hostnames cause 50 status writes a second, and none for those repaired meanwhile",
		func(ctx SpecContext) {
			objects := make([]*v1alpha1.BoundEndpoint, 4)
			for i := range objects {
				objects[i] = h.object(ctx, fmt.Sprintf("e%d", i), h.Target,
					v1alpha1.BoundPort{Port: 80, Scheme: "http", TargetPort: int32(20080 + i)})
				h.reconcile(ctx, objects[i])
			}
			at := func(b *v1alpha1.BoundEndpoint) time.Duration {
				result, err := h.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)})
				Expect(err).NotTo(HaveOccurred())
				return result.RequeueAfter
			}
			h.forwarders.report.Sessions = 0
			for i, b := range objects {
				Expect(at(b)).To(Equal(time.Duration(i) * 20 * time.Millisecond))
			}
			Expect(at(objects[2])).To(Equal(40*time.Millisecond), "its place in the queue stays")
			h.Clock.Step(20 * time.Millisecond)
			Expect(at(objects[1])).To(BeZero())
			h.forwarders.report = good
			Expect(at(objects[2])).To(BeZero())
			Expect(at(objects[3])).To(BeZero())
			for i, want := range []string{"False ServiceUnreachable", "False ServiceUnreachable", "True Ready",
				"True Ready"} {
				Expect(h.Live.Get(ctx, client.ObjectKeyFromObject(objects[i]), objects[i])).To(Succeed())
				expectCondition(objects[i], v1alpha1.ConditionReady, want, "")
			}
			Expect(at(objects[0])).To(Equal(20*time.Millisecond),
				"queue places that no object needs any more are free again")
			Expect(h.EventNotes()).To(BeEmpty(), "the KubernetesOperator says once what is every hostname's")
		})
})
