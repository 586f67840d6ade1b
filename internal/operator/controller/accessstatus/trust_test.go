// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accessstatus

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/endpointtrust"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/forwarderstatus"
	"github.com/fairlead-dev/fairlead/internal/sealed"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	keyA = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	keyB = "sha256/57DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
)

// trustObject returns one of namespace demo that selects the endpoint.
func trustObject(name, endpoint string, keys ...string) *v1alpha1.EndpointTrust {
	return &v1alpha1.EndpointTrust{
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name, UID: types.UID(name), Generation: 1},
		Spec: v1alpha1.EndpointTrustSpec{
			EndpointSelection: v1alpha1.EndpointSelection{Endpoints: []string{endpoint}},
			Mode:              "Require", Keys: keys}}
}

// fakeTrustObjects read the objects from the API server, and their rules from them.
type fakeTrustObjects struct {
	client.Client
	t         *testing.T
	byDefault endpointtrust.Default
}

func (f fakeTrustObjects) Object(key types.NamespacedName) *v1alpha1.EndpointTrust {
	o := &v1alpha1.EndpointTrust{}
	if f.Get(f.t.Context(), key, o) != nil {
		return nil
	}
	return o
}

func (f fakeTrustObjects) Snapshot() *endpointtrust.Rules {
	var list v1alpha1.EndpointTrustList
	must.Succeed(f.t, f.List(f.t.Context(), &list))
	var policies []endpointtrust.Policy
	for _, o := range list.Items {
		policies = append(policies, accesspolicy.OfTrust(&o))
	}
	return endpointtrust.Compile(policies, f.byDefault, endpointaccess.Listed{"": true})
}

func (f *fakeForwarders) SealedKeys(namespace string) map[account.EndpointURL]string {
	keys := map[account.EndpointURL]string{}
	for url, all := range f.sealed.SealKeysIn(namespace) {
		keys[url] = all[0]
	}
	return keys
}

func (f *fakeForwarders) TrustEnforcement(string, string) forwarderstatus.Enforcement {
	return f.enforcement
}

// announced has the keys of the URLs of namespace demo.
type announced map[string][]string

func (a announced) SealKeysIn(namespace string) map[account.EndpointURL][]string {
	all := map[account.EndpointURL][]string{}
	for url, keys := range a {
		if u, err := account.ParseEndpointURL(url); err == nil && namespace == "demo" {
			all[u] = keys
		}
	}
	return all
}

// trustHarness is a TrustReconciler of some objects.
type trustHarness struct {
	*TrustReconciler
	t       *testing.T
	objects fakeTrustObjects
}

func newTrustHarness(
	t *testing.T, byDefault endpointtrust.Default, e forwarderstatus.Enforcement, objects ...*v1alpha1.EndpointTrust,
) *trustHarness {
	t.Helper()
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	build := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.EndpointTrust{})
	for _, o := range objects {
		build = build.WithObjects(o)
	}
	from := fakeTrustObjects{build.Build(), t, byDefault}
	return &trustHarness{t: t, objects: from, TrustReconciler: &TrustReconciler{Client: from.Client, Objects: from,
		Forwarders: &fakeForwarders{enforcement: e}, Announced: announced{},
		Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))}}
}

// reconcile reconciles an object and returns it, and when it is due again.
func (h *trustHarness) reconcile(name string) (*v1alpha1.EndpointTrust, time.Duration) {
	h.t.Helper()
	key := types.NamespacedName{Namespace: "demo", Name: name}
	result, err := h.Reconcile(h.t.Context(), ctrl.Request{NamespacedName: key})
	must.Succeed(h.t, err)
	return h.objects.Object(key), result.RequeueAfter
}

func TestTrustReconciler_Conditions(t *testing.T) {
	t.Parallel()
	off := endpointtrust.Default{Mode: sealed.Off, Account: "ac-1"}
	enforced := forwarderstatus.Enforcement{Known: true, Forwarders: 2, Enforcing: 2}
	unreadable := trustObject("p", "api")
	unreadable.Spec.Authorities = []string{"x"}
	for name, tt := range map[string]struct {
		byDefault endpointtrust.Default
		objects   []*v1alpha1.EndpointTrust
		want      map[string]string // by object: reason, and part of the message of Accepted
	}{
		"alone": {off, []*v1alpha1.EndpointTrust{trustObject("p", "api", keyA)},
			map[string]string{"p": "Accepted: agents need one of these keys: 1"}},
		"nothing to trust": {off, []*v1alpha1.EndpointTrust{trustObject("p", "api")},
			map[string]string{"p": "Accepted: the key that is seen first is trusted, and the service chooses it"}},
		"conflicting": {off, []*v1alpha1.EndpointTrust{trustObject("p", "api-*", keyA), trustObject("q", "*-x", keyB),
			trustObject("r", "web", keyB)},
			map[string]string{"p": "Conflict: connections are refused: endpoints that EndpointTrust q selects",
				"q": "Conflict: connections are refused: endpoints that EndpointTrust p selects",
				"r": "Accepted: agents"}},
		"of equal trust": {off, []*v1alpha1.EndpointTrust{trustObject("p", "api", keyA, keyB),
			trustObject("q", "*", keyB, keyA)}, map[string]string{"p": "Accepted: agents", "q": "Accepted: agents"}},
		"unreadable": {off, []*v1alpha1.EndpointTrust{unreadable},
			map[string]string{"p": "InvalidAuthority: connections are refused: EndpointTrust demo/p: " +
				"spec.authorities[0]: "}},
		"for no account": {endpointtrust.Default{Mode: sealed.Off},
			[]*v1alpha1.EndpointTrust{trustObject("p", "api", keyA)}, map[string]string{"p": "AccountMissing: "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newTrustHarness(t, tt.byDefault, enforced, tt.objects...)
			for name, want := range tt.want {
				o, _ := h.reconcile(name)
				if len(o.Status.Conditions) != 2 {
					t.Fatalf("%s: %+v", name, o.Status.Conditions)
				}
				c := o.Status.Conditions[0]
				if got := c.Reason + ": " + c.Message; !strings.HasPrefix(got, want) ||
					(c.Status == metav1.ConditionTrue) != (c.Reason == v1alpha1.ReasonAccepted) {
					t.Errorf("%s is %s: %s, want %s", name, c.Status, got, want)
				}
				if c := o.Status.Conditions[1]; c.Reason != v1alpha1.ReasonEnforced || c.ObservedGeneration != 1 {
					t.Errorf("%s: %+v", name, c)
				}
				if again, _ := h.reconcile(name); again.ResourceVersion != o.ResourceVersion {
					t.Errorf("%s is written again without a difference", name)
				}
			}
		})
	}
}

// TestTrustReconciler_EndOfConflict checks that the condition follows when the other object goes.
func TestTrustReconciler_EndOfConflict(t *testing.T) {
	t.Parallel()
	h := newTrustHarness(t, endpointtrust.Default{Mode: sealed.Off, Account: "ac-1"}, forwarderstatus.Enforcement{},
		trustObject("p", "api", keyA), trustObject("q", "api", keyB))
	if o, again := h.reconcile("p"); o.Status.Conditions[0].Reason != v1alpha1.ReasonConflict || again != settleTime ||
		len(o.Status.Conditions) != 1 {
		t.Errorf("%+v, again in %v", o.Status.Conditions, again)
	}
	must.Succeed(t, h.Client.Delete(t.Context(), trustObject("q", "api")))
	h.Clock.(*clocktesting.FakePassiveClock).SetTime(h.Clock.Now().Add(settleTime))
	o, _ := h.reconcile("p")
	var reasons []string
	for _, c := range o.Status.Conditions {
		reasons = append(reasons, c.Reason)
	}
	if want := []string{v1alpha1.ReasonAccepted, v1alpha1.ReasonForwardersUnknown}; !slices.Equal(reasons, want) {
		t.Errorf("%v", reasons)
	}
	h.reconcile("q")
}

// TestTrustReconciler_PinsFirstKeys holds that the first key of an endpoint is pinned, that no later
// announcement replaces it, and that a pin which is deleted is made anew.
func TestTrustReconciler_PinsFirstKeys(t *testing.T) {
	t.Parallel()
	h := newTrustHarness(t, endpointtrust.Default{Mode: sealed.Off, Account: "ac-1"},
		forwarderstatus.Enforcement{Known: true, Forwarders: 1, Enforcing: 1}, trustObject("p", "a*"))
	const url = "http://api.demo"
	check := func(now announced, want map[string]string, message string) *v1alpha1.EndpointTrust {
		t.Helper()
		h.Announced = now
		o, _ := h.reconcile("p")
		if diff := cmp.Diff(want, o.Status.Pins); diff != "" {
			t.Errorf("%v: (-want +got):\n%s", now, diff)
		}
		if c := o.Status.Conditions[0]; c.Status != metav1.ConditionTrue || !strings.HasSuffix(c.Message, message) {
			t.Errorf("%v: %s", now, c.Message)
		}
		return o
	}
	check(announced{url: {""}, "tcp://all.demo:1": {"sha256/x"}}, nil, "keys else")
	check(announced{url: {keyA, keyB}, "http://web.demo": {keyA, keyB}}, nil,
		"connections are refused, as agents announce different keys, to http://api.demo")
	check(announced{url: {keyA}, "http://web.demo": {keyB}}, map[string]string{url: keyA}, "keys else")
	check(announced{}, map[string]string{url: keyA}, "keys else")
	must.Succeed(t, h.Client.Create(t.Context(), trustObject("a", "api")))
	h.Announced = announced{url: {keyB}}
	if o, _ := h.reconcile("a"); len(o.Status.Pins) > 0 {
		t.Errorf("an object that was made later pins %v", o.Status.Pins)
	}
	o := check(announced{url: {keyB}, "http://api.demo:81": {keyB}},
		map[string]string{url: keyA, "http://api.demo:81": keyB}, "keys else")
	delete(o.Status.Pins, url)
	must.Succeed(t, h.Client.Status().Update(t.Context(), o))
	check(announced{url: {keyB}}, map[string]string{url: keyB, "http://api.demo:81": keyB}, "keys else")
}

// TestTrustReconciler_RecordsSealedURLs holds that a URL is recorded once forwarders report a sealed
// connection, whatever the service announces, and that the record outlives the report.
func TestTrustReconciler_RecordsSealedURLs(t *testing.T) {
	t.Parallel()
	o := trustObject("p", "a*", keyA)
	o.Spec.Mode = "Prefer"
	h := newTrustHarness(t, endpointtrust.Default{Mode: sealed.Off, Account: "ac-1"},
		forwarderstatus.Enforcement{Known: true, Forwarders: 1, Enforcing: 1}, o)
	const url = "http://api.demo"
	for _, tt := range []struct {
		announced, sealed announced
		want              map[string]string
		message           string
	}{
		{announced{url: {keyB}}, announced{"http://web.demo": {keyB}}, nil, "sealed so far: 0"},
		{announced{}, announced{url: {keyA}}, map[string]string{url: keyA}, "sealed so far: 1"},
		{announced{}, announced{url: {keyB}}, map[string]string{url: keyA}, "sealed so far: 1"},
		{announced{url: {""}}, announced{}, map[string]string{url: keyA}, "sealed so far: 1"},
	} {
		h.Announced = tt.announced
		h.Forwarders.(*fakeForwarders).sealed = tt.sealed
		o, _ := h.reconcile("p")
		if diff := cmp.Diff(tt.want, o.Status.Pins); diff != "" {
			t.Errorf("%+v: (-want +got):\n%s", tt, diff)
		}
		if c := o.Status.Conditions[0]; !strings.HasSuffix(c.Message, tt.message) {
			t.Errorf("%+v: %s", tt, c.Message)
		}
	}
	must.Succeed(t, h.Client.Create(t.Context(), trustObject("q", "all", keyB))) // which refuses that one alone
	h.Forwarders.(*fakeForwarders).sealed = announced{"http://any.demo": {keyA}}
	if o, _ := h.reconcile("p"); o.Status.Pins["http://any.demo"] != keyA {
		t.Errorf("%v beside an object that contradicts for another URL", o.Status.Pins)
	}
}
