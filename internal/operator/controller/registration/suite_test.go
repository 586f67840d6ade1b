// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package registration_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/endpointsync"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/registration"
	"github.com/fairlead-dev/fairlead/test/support/fixture"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

var config *rest.Config

func TestRegistration(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "registration")
}

var _ = BeforeSuite(func() {
	SetDefaultEventuallyTimeout(30 * time.Second)
	config = testenv.Start(GinkgoTB())
})

// fakeAccount answers with err, or registers. One that hangs never answers.
type fakeAccount struct {
	id    string
	err   error
	hangs bool
	last  account.Operator
}

func (a *fakeAccount) UpsertOperator(ctx context.Context, o account.Operator) (*account.Operator, error) {
	if a.hangs {
		<-ctx.Done()
		return nil, &account.Error{Code: account.CodeUnreachable, Msg: "the service at s does not answer",
			Cause: ctx.Err()}
	}
	if a.err != nil {
		return nil, a.err
	}
	a.last = o
	o.ID = a.id
	return &o, nil
}

func source(accountID, storeID string) endpointsync.SourceIdentity {
	return endpointsync.SourceIdentity{AccountID: accountID, StoreID: storeID}
}

var _ = Describe("Registration", func() {
	var (
		f   *fixture.Fixture
		api *fakeAccount
		e   *endpoints
		r   *registration.Registration
	)
	BeforeEach(func(ctx SpecContext) {
		f, api = fixture.New(ctx, config), &fakeAccount{id: "op-1"}
		e = &endpoints{}
		r = &registration.Registration{
			Client: f.Client, Live: f.Live, Account: api, Anchors: f.Anchors, Endpoints: e,
			Recorder: f.Events, Clock: f.Clock, Log: logr.Discard(),
			Spec: v1alpha1.KubernetesOperatorSpec{Description: "Rotterdam", BindingEnabled: true,
				EndpointSelector: "ep.port == 80"},
			Version: "1.2.3", ClusterName: "eu-1",
		}
	})
	object := func(ctx context.Context) *v1alpha1.KubernetesOperator {
		GinkgoHelper()
		k := &v1alpha1.KubernetesOperator{}
		Expect(f.Live.Get(ctx, client.ObjectKey{Namespace: f.Installation.Namespace, Name: "fairlead"}, k)).
			To(Succeed())
		return k
	}
	beat := func(ctx context.Context, healthy bool) *v1alpha1.KubernetesOperator {
		GinkgoHelper()
		got, err := r.Heartbeat(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(got).To(Equal(healthy))
		return object(ctx)
	}
	expect := func(k *v1alpha1.KubernetesOperator, typ, want, message string) {
		GinkgoHelper()
		fixture.ExpectCondition(k.Status.Conditions, typ, want, message)
	}

	It("makes the object, registers, and then writes nothing more", func(ctx SpecContext) {
		e.removals.Recorded = source("ac-1", "st-1")
		k := beat(ctx, true)
		Expect(k.Spec).To(Equal(r.Spec))
		Expect(k.Status.OperatorID).To(Equal("op-1"))
		Expect(k.Status.AccountID).To(Equal("ac-1"))
		expect(k, v1alpha1.ConditionRegistered, "True Registered", "")
		expect(k, v1alpha1.ConditionAPIReachable, "True Online", "answers")
		Expect(f.Installation.Owns(k)).To(BeTrue())
		Expect(k.OwnerReferences).To(HaveLen(2))
		Expect(api.last.Deployment).
			To(Equal(account.OperatorDeployment{Name: "fairlead", Namespace: f.Installation.Namespace, Version: "1.2.3",
				ClusterName: "eu-1"}))
		Expect(api.last.EnabledFeatures).To(Equal([]string{"bindings"}))
		Expect(api.last.Binding.EndpointSelectors).To(Equal([]string{"ep.port == 80"}))
		Expect(api.last.ClusterUID).NotTo(BeEmpty())
		f.Clock.Step(time.Hour)
		Expect(beat(ctx, true).ResourceVersion).To(Equal(k.ResourceVersion))
	})

	It("repairs what another client changed", func(ctx SpecContext) {
		k := beat(ctx, true)
		k.Spec.Description, k.OwnerReferences = "stomped", nil
		Expect(f.Client.Update(ctx, k)).To(Succeed())
		k = beat(ctx, true)
		Expect(k.Spec.Description).To(Equal("Rotterdam"))
		Expect(k.OwnerReferences).To(HaveLen(2))
		Expect(f.Client.Delete(ctx, k)).To(Succeed())
		Expect(beat(ctx, true).Status.OperatorID).To(Equal("op-1"))
	})

	It("keeps the last state while the account is away, and does not write every different message",
		func(ctx SpecContext) {
			beat(ctx, true)
			f.EventNotes()
			api.err = &account.Error{Code: account.CodeUnreachable, Msg: "the service at s does not answer",
				Cause: errors.New("connection refused")}
			k := beat(ctx, false)
			expect(k, v1alpha1.ConditionAPIReachable, "False Unreachable", "connection refused")
			expect(k, v1alpha1.ConditionRegistered, "True Registered", "")
			Expect(k.Status.OperatorID).To(Equal("op-1"))
			Expect(f.EventNotes()).To(ConsistOf(ContainSubstring("Warning Unreachable")))
			api.err = errors.New("read tcp 10.0.0.1:49152->10.0.0.2:443: i/o timeout")
			Expect(beat(ctx, false).ResourceVersion).To(Equal(k.ResourceVersion))
			api.err = nil
			expect(beat(ctx, true), v1alpha1.ConditionAPIReachable, "True Online", "")
		})

	It("reports an account that accepts connections and never answers, and keeps on counting", func(ctx SpecContext) {
		expect(beat(ctx, true), v1alpha1.ConditionAPIReachable, "True Online", "")
		api.hangs, r.AccountTimeout = true, 100*time.Millisecond
		r.Forwarders = &forwarders{known: true}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- r.Start(running) }()
		Eventually(ctx, func(g Gomega) {
			c := meta.FindStatusCondition(object(ctx).Status.Conditions, v1alpha1.ConditionAPIReachable)
			g.Expect(string(c.Status) + " " + c.Reason).To(Equal("False Unreachable"))
			g.Expect(c.Message).To(ContainSubstring("does not answer: context deadline exceeded"))
		}).Should(Succeed())
		expect(object(ctx), v1alpha1.ConditionEdgeReachable, "True Online", "")
		expect(object(ctx), v1alpha1.ConditionRegistered, "True Registered", "")
		stop()
		Eventually(ended).Should(Receive(BeNil()))
	})

	It("reports endpoints that can be neither listed nor watched while heartbeats work", func(ctx SpecContext) {
		beat(ctx, true)
		f.EventNotes()
		e.feed.Err = errors.New("watching the account's endpoints: the service at s said nothing for 45s")
		e.feed.Since = f.Clock.Now()
		Expect(r.Refresh(ctx)).To(Succeed())
		expect(object(ctx), v1alpha1.ConditionAPIReachable, "True Online", "") // the next BOOKMARK may be on its way
		f.Clock.Step(20 * time.Second)
		Expect(r.Refresh(ctx)).To(Succeed())
		expect(object(ctx), v1alpha1.ConditionAPIReachable, "False WatchFailed",
			"API answers, but changes of endpoints do not")
		expect(object(ctx), v1alpha1.ConditionAPIReachable, "False WatchFailed", "said nothing for 45s")
		expect(object(ctx), v1alpha1.ConditionRegistered, "True Registered", "")
		Expect(f.EventNotes()).To(ConsistOf(ContainSubstring("Warning WatchFailed")))
		e.feed.Err = nil
		Expect(r.Refresh(ctx)).To(Succeed())
		expect(object(ctx), v1alpha1.ConditionAPIReachable, "True Online", "")
	})

	DescribeTable("names the condition and the reason of a failure",
		func(ctx SpecContext, err error, typ, reason string) {
			api.err = err
			expect(beat(ctx, false), typ, "False "+reason, "")
		},
		Entry("no API at this address", account.Errorf(account.CodeNoRoute, "no such route"), "APIReachable",
			"BadAnswer"),
		Entry("another program's 404", &account.Error{Code: "ERR_X_1", Status: 404, Msg: "?"}, "APIReachable",
			"BadAnswer"),
		Entry("a page", &account.Error{Code: account.CodeBadAnswer, Status: 200, Msg: "?"}, "APIReachable",
			"BadAnswer"),
		Entry("no store", account.Errorf(account.CodeUnavailable, "the store is away"), "APIReachable", "Unavailable"),
		Entry("too many requests", account.Errorf(account.CodeTooMany, "slower"), "APIReachable", "Unavailable"),
		Entry("a dead network", errors.New("i/o timeout"), "APIReachable", "Unreachable"),
		Entry("a scope", account.Errorf(account.CodeScope, "the key may not"), "Registered", "Unauthorized"),
		Entry("another program's 403", &account.Error{Code: "ERR_X_2", Status: 403, Msg: "no"}, "Registered",
			"Unauthorized"),
		Entry("too many operators", account.Errorf(account.CodeLimit, "delete some"), "Registered", "LimitReached"),
		Entry("a rule", account.Invalid("description", "x", "too long"), "Registered", "Rejected"),
	)

	It("reports that another release works in the namespace", func(ctx SpecContext) {
		expect(beat(ctx, true), v1alpha1.ConditionAPIReachable, "True Online", "")
		f.EventNotes()
		for range 2 {
			Expect(r.ReportSecondRelease(ctx, "x/first")).To(Succeed())
		}
		k := object(ctx)
		expect(k, v1alpha1.ConditionRegistered, "False SecondRelease",
			"release fairlead is inactive: release x/first runs in this namespace")
		Expect(meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionAPIReachable)).To(BeNil())
		Expect(f.EventNotes()).To(ConsistOf(ContainSubstring("Warning SecondRelease")))
		expect(beat(ctx, true), v1alpha1.ConditionRegistered, "True Registered", "")
	})

	It("reports a wrong key with the account's message", func(ctx SpecContext) {
		api.err = account.Errorf(account.CodeUnknownCredential, "unknown API key")
		k := beat(ctx, false)
		expect(k, v1alpha1.ConditionRegistered, "False Unauthorized", "unknown API key")
		expect(k, v1alpha1.ConditionAPIReachable, "True Online", "")
	})

	It("records the first account, never another one by itself, and reports what is frozen and how to accept it",
		func(ctx SpecContext) {
			e.removals = endpointsync.Removals{Known: true, Recorded: source("ac-1", "st-1"),
				Listed: source("ac-1", "st-1")}
			expect(beat(ctx, true), v1alpha1.ConditionAccountChanged, "False AccountRecorded", "")
			f.EventNotes()
			e.removals.Frozen, e.removals.Listed.AccountID = true, "ac-2"
			e.removals.Pending, e.removals.Projected = 12, 20
			Expect(r.Refresh(ctx)).To(Succeed())
			k := object(ctx)
			Expect(k.Status.AccountID).To(Equal("ac-1"))
			expect(k, v1alpha1.ConditionAccountChanged, "True AccountChanged", "account ac-2 instead of account ac-1")
			expect(k, v1alpha1.ConditionAccountChanged, "True AccountChanged", "12 of 20 hostnames")
			expect(k, v1alpha1.ConditionAccountChanged, "True AccountChanged",
				"helm upgrade fairlead CHART --namespace "+f.Installation.Namespace+
					" --reuse-values --set binding.acceptAccount=ac-2")
			Expect(f.EventNotes()).To(ConsistOf(ContainSubstring("Warning AccountChanged")))

			e.removals.Listed = source("ac-1", "st-2")
			expect(beat(ctx, true), v1alpha1.ConditionAccountChanged, "True StoreChanged",
				"store st-2 instead of store st-1")
			e.removals.Listed.StoreID = "$(reboot)"
			Expect(meta.FindStatusCondition(beat(ctx, true).Status.Conditions,
				v1alpha1.ConditionAccountChanged).Message).
				NotTo(ContainSubstring("reboot"))

			By("deleting the object, which the next manager reads at its start")
			Expect(f.Client.Delete(ctx, object(ctx))).To(Succeed())
			k = beat(ctx, true)
			Expect(k.Status.AccountID).To(Equal("ac-1"))
			expect(k, v1alpha1.ConditionAccountChanged, "True StoreChanged", "")
			Expect(object(ctx).Status.StoreID).To(Equal("st-1"))
			e.removals = endpointsync.Removals{}
			expect(beat(ctx, true), v1alpha1.ConditionAccountChanged, "True StoreChanged", "")
			r.Spec.BindingEnabled = false
			Expect(meta.FindStatusCondition(beat(ctx, true).Status.Conditions, v1alpha1.ConditionAccountChanged)).
				To(BeNil())
		})

	It("reports which removals are held, with one event at the start and one at the end", func(ctx SpecContext) {
		e.removals = endpointsync.Removals{Known: true, Recorded: source("ac-1", "")}
		Expect(meta.FindStatusCondition(beat(ctx, true).Status.Conditions, v1alpha1.ConditionRemovalsHeld)).To(BeNil())
		f.EventNotes()
		since := f.Clock.Now()
		e.removals = endpointsync.Removals{Known: true, Held: true, Since: since, ListDue: since.Add(time.Minute),
			Pending: 11, Projected: 20}
		expect(beat(ctx, true), v1alpha1.ConditionRemovalsHeld, "True MassRemoval", "11 of 20 hostnames")
		expect(beat(ctx, true), v1alpha1.ConditionRemovalsHeld, "True MassRemoval", "2026-11-20T12:01:00Z")
		e.removals.Pending = 12
		expect(beat(ctx, true), v1alpha1.ConditionRemovalsHeld, "True MassRemoval", "12 of 20")
		e.removals = endpointsync.Removals{}
		expect(beat(ctx, true), v1alpha1.ConditionRemovalsHeld, "True MassRemoval", "12 of 20")
		e.removals = endpointsync.Removals{Known: true}
		expect(beat(ctx, true), v1alpha1.ConditionRemovalsHeld, "False NothingHeld", "")
		Expect(f.EventNotes()).To(ConsistOf(ContainSubstring("Warning MassRemoval"),
			ContainSubstring("Normal NothingHeld")))
	})

	It("has the account listed again when it answers with another operator", func(ctx SpecContext) {
		beat(ctx, true)
		beat(ctx, true)
		Expect(e.requests).To(BeZero())
		api.id = "op-2"
		Expect(beat(ctx, true).Status.OperatorID).To(Equal("op-2"))
		Expect(e.requests).To(Equal(1))
	})

	It("reports that the server does not support watches", func(ctx SpecContext) {
		e.feed.Polling = true
		expect(beat(ctx, true), v1alpha1.ConditionAPIReachable, "True Online", "does not support watches")
	})

	It("reports that the server does not know what clusters export", func(ctx SpecContext) {
		beat(ctx, true)
		e.feed.WithoutClusterset = true
		expect(beat(ctx, true), v1alpha1.ConditionAPIReachable, "True ClusterSetUnknown", "update the server")
		Expect(f.EventNotes()).To(ContainElement(ContainSubstring("ClusterSetUnknown")))
	})

	It("counts the hostnames that are projected and ready, and of those only ours", func(ctx SpecContext) {
		for i, name := range []string{"a.demo", "b.demo", "c.demo", "d.demo"} {
			b := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: f.Installation.Namespace, Name: name}}
			b.Spec = v1alpha1.BoundEndpointSpec{Service: name[:1], Namespace: "demo", ProjectionID: name,
				Ports: []v1alpha1.BoundPort{{Port: 80, Scheme: "http", TargetPort: 20000}}}
			if name == "c.demo" {
				b.Spec.State = v1alpha1.StateReleased
			}
			if name != "d.demo" {
				f.Installation.Mark(b)
			}
			Expect(f.Client.Create(ctx, b)).To(Succeed())
			if i == 0 {
				meta.SetStatusCondition(&b.Status.Conditions,
					metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue,
						Reason: v1alpha1.ReasonReady})
				Expect(f.Client.Status().Update(ctx, b)).To(Succeed())
			}
		}
		k := beat(ctx, true)
		Expect(k.Status.BoundEndpoints).To(BeEquivalentTo(2))
		Expect(k.Status.ReadyEndpoints).To(BeEquivalentTo(1))

		api.last = account.Operator{}
		gone := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: f.Installation.Namespace,
			Name: "b.demo"}}
		Expect(f.Client.Delete(ctx, gone)).To(Succeed())
		Expect(r.Refresh(ctx)).To(Succeed())
		Expect(object(ctx).Status.BoundEndpoints).To(BeEquivalentTo(1))
		Expect(api.last.ClusterUID).To(BeEmpty(), "counting does not ask the account")
	})

	It("reports the forwarders' sessions with the edge, and keeps the last state", func(ctx SpecContext) {
		edge := &forwarders{}
		r.Forwarders = edge
		Expect(meta.FindStatusCondition(beat(ctx, true).Status.Conditions, v1alpha1.ConditionEdgeReachable)).To(BeNil())
		edge.known = true
		Expect(r.Refresh(ctx)).To(Succeed())
		expect(object(ctx), v1alpha1.ConditionEdgeReachable, "True Online", "all forwarders")
		f.EventNotes()
		edge.problem = "1 of 2 forwarders have a session with the edge; " +
			"forwarder a: read tcp 10.0.0.1:49152: i/o timeout"
		Expect(r.Refresh(ctx)).To(Succeed())
		k := object(ctx)
		expect(k, v1alpha1.ConditionEdgeReachable, "False Unreachable", "49152: i/o timeout")
		Expect(f.EventNotes()).To(ConsistOf(ContainSubstring("EdgeReachable: 1 of 2")))
		edge.problem = strings.ReplaceAll(edge.problem, "49152", "51000") // the same sentence
		Expect(r.Refresh(ctx)).To(Succeed())
		Expect(object(ctx).ResourceVersion).To(Equal(k.ResourceVersion))
		edge.problem = "no forwarder is running"
		Expect(r.Refresh(ctx)).To(Succeed())
		expect(object(ctx), v1alpha1.ConditionEdgeReachable, "False Unreachable", "no forwarder is running")
		edge.known = false
		expect(beat(ctx, true), v1alpha1.ConditionEdgeReachable, "False Unreachable", "no forwarder is running")
		r.Forwarders = nil
		Expect(meta.FindStatusCondition(beat(ctx, true).Status.Conditions, v1alpha1.ConditionEdgeReachable)).To(BeNil())
	})

	It("reports the replicas that the forwarders are connected to, and keeps the last state", func(ctx SpecContext) {
		edge := &forwarders{}
		r.Forwarders = edge
		Expect(beat(ctx, true).Status.Legs).To(BeEmpty())
		for _, legs := range []string{"2/3", "", "3/3"} {
			edge.legsKnown, edge.legs = true, legs
			Expect(r.Refresh(ctx)).To(Succeed())
			Expect(object(ctx).Status.Legs).To(Equal(legs))
			edge.legsKnown = false
			Expect(r.Refresh(ctx)).To(Succeed())
			Expect(object(ctx).Status.Legs).To(Equal(legs))
		}
		r.Forwarders = nil
		Expect(beat(ctx, true).Status.Legs).To(BeEmpty())
	})

	It("registers no feature and no binding with binding.enabled=false", func(ctx SpecContext) {
		r.Spec = v1alpha1.KubernetesOperatorSpec{}
		beat(ctx, true)
		Expect(api.last.EnabledFeatures).To(And(BeEmpty(), Not(BeNil())))
		Expect(api.last.Binding).To(BeNil())
	})
})
