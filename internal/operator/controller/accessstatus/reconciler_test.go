// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accessstatus

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// fakeForwarders answer for every namespace.
type fakeForwarders struct {
	enforcement forwarderstatus.Enforcement
	denied      []forwarderstatus.DeniedCalls
	sealed      announced
}

func (f *fakeForwarders) Enforcement(string, string) forwarderstatus.Enforcement {
	return f.enforcement
}
func (f *fakeForwarders) Denied(string) []forwarderstatus.DeniedCalls { return f.denied }

// fakePolicies answer for every object.
type fakePolicies struct {
	applied bool
	err     error
}

func (p *fakePolicies) Problem(_ types.UID, _ int64, match func(string) bool) (bool, error) {
	if !match("api.demo") || match("web.demo") || match("api.other") {
		return true, errors.New("matches other hostnames than api.demo")
	}
	return p.applied, p.err
}

// harness is a Reconciler of one EndpointAccess, demo/api, with a clock of its own.
type harness struct {
	*Reconciler
	t          *testing.T
	forwarders *fakeForwarders
	policies   *fakePolicies
	clock      *clocktesting.FakePassiveClock
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	o := &v1alpha1.EndpointAccess{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "api", UID: "1", Generation: 1},
		Spec: v1alpha1.EndpointAccessSpec{
			EndpointSelection: v1alpha1.EndpointSelection{Endpoints: []string{"api"}, Ports: []int32{80}}},
	}
	h := &harness{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)),
		policies:   &fakePolicies{applied: true},
		forwarders: &fakeForwarders{enforcement: forwarderstatus.Enforcement{Known: true, Forwarders: 2, Enforcing: 2}}}
	h.Reconciler = &Reconciler{Forwarders: h.forwarders, NetworkPolicies: h.policies,
		Clock: h.clock, Client: fake.NewClientBuilder().WithScheme(scheme).
			WithObjects(o).WithStatusSubresource(o).Build()}
	return h
}

var key = types.NamespacedName{Namespace: "demo", Name: "api"}

// reconcile reconciles the object and returns it, and when it is due again.
func (h *harness) reconcile() (*v1alpha1.EndpointAccess, time.Duration) {
	h.t.Helper()
	result, err := h.Reconcile(h.t.Context(), ctrl.Request{NamespacedName: key})
	must.Succeed(h.t, err)
	o := &v1alpha1.EndpointAccess{}
	must.Succeed(h.t, h.Client.Get(h.t.Context(), key, o))
	return o, result.RequeueAfter
}

// conditions returns the object's conditions as "STATUS REASON", in their order.
func conditions(o *v1alpha1.EndpointAccess) string {
	var all []string
	for _, c := range o.Status.Conditions {
		all = append(all, string(c.Status)+" "+c.Reason)
	}
	return strings.Join(all, ", ")
}

func TestReconciler_Conditions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*harness)
		want   string
	}{
		"enforced": {func(*harness) {}, "True Accepted, True Enforced, True Written"},
		"no network policies": {func(h *harness) { h.NetworkPolicies = nil },
			"True Accepted, True Enforced, False Disabled"},
		"policies not applied yet": {func(h *harness) { h.policies.applied = false }, "True Accepted, True Enforced"},
		"policies refused": {func(h *harness) { h.policies.err = errors.New("quota") },
			"True Accepted, True Enforced, False NotWritten"},
		"no pod identity": {func(h *harness) { h.forwarders.enforcement.WithoutPodIdentity = 2 },
			"True Accepted, False PodIdentityDisabled, True Written"},
		"left to NetworkPolicies": {func(h *harness) { h.forwarders.enforcement.LeftToNetwork = 2 },
			"True Accepted, False NetworkPoliciesDecide, True Written"},
		"a forwarder behind": {func(h *harness) { h.forwarders.enforcement.Behind = "forwarder-1" },
			"True Accepted, True Written, False ForwardersBehind"},
		"no forwarder": {func(h *harness) { h.forwarders.enforcement = forwarderstatus.Enforcement{Known: true} },
			"True Accepted, Unknown ForwardersUnknown, True Written"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			tt.change(h)
			h.reconcile()
			h.clock.SetTime(h.clock.Now().Add(settleTime))
			o, _ := h.reconcile()
			if got := conditions(o); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			for _, c := range o.Status.Conditions {
				if c.ObservedGeneration != 1 {
					t.Errorf("%s is of generation %d", c.Type, c.ObservedGeneration)
				}
			}
			version := o.ResourceVersion
			if o, _ := h.reconcile(); o.ResourceVersion != version {
				t.Error("written again without a difference")
			}
		})
	}
}

// TestReconciler_WaitsForForwarders checks that forwarders have a moment to read a changed object
// before the status says that they have not.
func TestReconciler_WaitsForForwarders(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.forwarders.enforcement.Behind = "forwarder-1"
	o, wait := h.reconcile()
	if got := conditions(o); got != "True Accepted, True Written" || wait == 0 {
		t.Errorf("%s, again in %v", got, wait)
	}
	h.forwarders.enforcement.Behind = ""
	if o, _ = h.reconcile(); conditions(o) != "True Accepted, True Written, True Enforced" {
		t.Error(conditions(o))
	}
}

func TestReconciler_InvalidSelector(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	o, _ := h.reconcile()
	o.Spec.From = []v1alpha1.EndpointAccessPeer{{PodSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{"no name": "x"}}}}
	must.Succeed(t, h.Client.Update(t.Context(), o))
	o, _ = h.reconcile()
	if c := o.Status.Conditions[0]; c.Reason != v1alpha1.ReasonInvalidSelector ||
		!strings.Contains(c.Message, "spec.from[0].podSelector") {
		t.Errorf("%+v", c)
	}
}

// TestReconciler_DeniedCallersThrottled checks which denied callers are listed, how many, and that
// they alone are written at most once in deniedInterval.
func TestReconciler_DeniedCallersThrottled(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.reconcile()
	for i := range 12 {
		h.forwarders.denied = append(h.forwarders.denied, forwarderstatus.DeniedCalls{Hostname: "api.demo", Port: 80,
			Caller: "shop/" + string(rune('a'+i)), Count: 2,
			LastTime: h.clock.Now().Add(-time.Duration(i) * time.Second)},
			forwarderstatus.DeniedCalls{Hostname: "api.demo", Port: 81, Caller: "shop/other-port", Count: 1},
			forwarderstatus.DeniedCalls{Hostname: "web.demo", Port: 80, Caller: "shop/other-endpoint", Count: 1})
	}
	o, wait := h.reconcile()
	if len(o.Status.Denied) > 0 || wait != deniedInterval {
		t.Errorf("%v, again in %v", o.Status.Denied, wait)
	}
	h.clock.SetTime(h.clock.Now().Add(wait))
	o, _ = h.reconcile()
	if len(o.Status.Denied) != maxDenied || o.Status.DeniedCalls != 2*maxDenied ||
		o.Status.Denied[0].Caller != "shop/a" {
		t.Errorf("%d calls: %+v", o.Status.DeniedCalls, o.Status.Denied)
	}
	h.forwarders.denied[0].Count++
	if o, wait = h.reconcile(); o.Status.DeniedCalls != 2*maxDenied || wait != deniedInterval {
		t.Errorf("%d calls, again in %v", o.Status.DeniedCalls, wait)
	}
}
