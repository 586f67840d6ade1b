// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudendpoint_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// answer is a policy that answers each request with the body.
func answer(body string) *v1alpha1.TrafficPolicy {
	return &v1alpha1.TrafficPolicy{Inline: &runtime.RawExtension{Raw: []byte(
		`{"on_http_request":[{"actions":[{"type":"custom-response","config":{"body":"` + body + `"}}]}]}`)}}
}

func TestReconcile_KeepsEndpointAsObject(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	o := h.create("shop", v1alpha1.CloudEndpointSpec{Description: "the shop", Metadata: "m",
		TrafficPolicy: answer("hello")})
	e := h.expectReady(o)
	want := account.Owner{Cluster: h.cluster, Kind: "CloudEndpoint", Namespace: h.namespace, Name: "shop",
		UID: string(o.UID)}
	if e.Owner == nil || *e.Owner != want || e.Type != account.TypeCloud || e.URL != h.url("shop") ||
		e.Description != "the shop" || e.Metadata != "m" || !strings.Contains(e.TrafficPolicy, "hello") {
		t.Errorf("the account has %+v of %+v", e, e.Owner)
	}
	if o.Status.AssignedURL != h.url("shop") {
		t.Errorf("the status has the URL %q", o.Status.AssignedURL)
	}
	if calls := h.account.take(); !slices.Equal(calls, []string{"LIST", "POST"}) {
		t.Errorf("creating took %v", calls)
	}

	h.update(o, func(s *v1alpha1.CloudEndpointSpec) { s.Description, s.TrafficPolicy = "our shop", answer("welcome") })
	h.expect(o, v1alpha1.ConditionReady, "True Ready")
	if e := h.expectReady(o); e.Description != "our shop" || !strings.Contains(e.TrafficPolicy, "welcome") {
		t.Errorf("after a change the account has %+v", e)
	}
	if calls := h.account.take(); !slices.Equal(calls, []string{"GET", "PATCH"}) {
		t.Errorf("changing took %v", calls)
	}

	id := o.Status.ID
	h.kube.MustDelete(o)
	wait.Until(t, "end of the endpoint", func() bool { _, found := h.endpoint(id); return !found })
}

// TestReconcile_RestartWritesNothing checks that another process finds everything as it is.
func TestReconcile_RestartWritesNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	o := h.create("shop", v1alpha1.CloudEndpointSpec{TrafficPolicy: answer("hello")})
	before := h.expectReady(o)
	h.stop()
	h.account.take()
	version := o.ResourceVersion
	h.start()
	wait.Until(t, "a look at the endpoint", func() bool { return slices.Contains(h.account.peek(), "GET") })
	h.quiet()
	if after := h.expectReady(o); after.ResourceVersion != before.ResourceVersion || o.ResourceVersion != version {
		t.Errorf("a restart wrote: endpoint %s -> %s, object %s -> %s", before.ResourceVersion, after.ResourceVersion,
			version, o.ResourceVersion)
	}
}

// TestReconcile_AdoptsUnansweredCreation checks that an endpoint whose creation was not answered is
// neither made twice nor left behind.
func TestReconcile_AdoptsUnansweredCreation(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	lost := func(call string) error {
		if call == "POST" {
			return account.Errorf(account.CodeUnreachable, "the answer was lost")
		}
		return nil
	}
	h.account.set(nil, lost)
	o := h.create("shop", v1alpha1.CloudEndpointSpec{})
	h.expect(o, v1alpha1.ConditionBound, "False Unreachable", "the answer was lost")
	h.expectReady(o)
	if n := len(h.endpoints()); n != 1 {
		t.Errorf("the account has %d endpoints", n)
	}

	gone := h.create("gone", v1alpha1.CloudEndpointSpec{})
	h.expect(gone, v1alpha1.ConditionBound, "False Unreachable")
	h.account.set(func(call string) error { // it is deleted before it could be adopted
		if call == "LIST" {
			return account.Errorf(account.CodeUnreachable, "the service is away")
		}
		return nil
	}, nil)
	h.kube.MustDelete(gone)
	wait.Until(t, "an attempt to delete", func() bool { return slices.Contains(h.account.peek(), "LIST") })
	h.account.set(nil, nil)
	wait.Until(t, "end of the endpoint", func() bool { return len(h.endpoints()) == 1 })
}

// TestReconcile_RepairsForeignChange checks that what others did to an endpoint is undone when the
// account is listed.
func TestReconcile_RepairsForeignChange(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	o := h.create("shop", v1alpha1.CloudEndpointSpec{Description: "ours"})
	e := h.expectReady(o)
	h.reconciler.Observe(h.endpoints())
	h.quiet()

	h.service.RequireStatus(http.MethodPatch, "/endpoints/"+e.ID, map[string]any{"description": "theirs"}, 200)
	h.reconciler.Observe(h.endpoints())
	wait.Until(t, "the description", func() bool { e, _ := h.endpoint(e.ID); return e.Description == "ours" })

	h.service.RequireStatus(http.MethodDelete, "/endpoints/"+e.ID, nil, http.StatusNoContent)
	h.reconciler.Observe(h.endpoints())
	wait.Until(t, "another endpoint", func() bool { return len(h.endpoints()) == 1 })
	h.expectReady(o)
}

// TestReconcile_ObjectMadeAgain checks that an object with the name of one before takes its
// endpoint, or replaces it if the URL differs.
func TestReconcile_ObjectMadeAgain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	o := h.create("shop", v1alpha1.CloudEndpointSpec{})
	before := h.expectReady(o)
	h.stop()
	h.kube.MustDelete(o)
	again := h.create("shop", v1alpha1.CloudEndpointSpec{})
	h.start()
	if e := h.expectReady(again); e.ID != before.ID || e.Owner.UID != string(again.UID) {
		t.Errorf("the endpoint is %s of %+v, want %s of %s", e.ID, e.Owner, before.ID, again.UID)
	}

	h.kube.MustDelete(again)
	other := h.create("shop", v1alpha1.CloudEndpointSpec{URL: h.url("other")})
	if e := h.expectReady(other); e.URL != h.url("other") {
		t.Errorf("the endpoint is %+v", e)
	}
	wait.Until(t, "end of the other URL", func() bool { return len(h.endpoints()) == 1 })
}

// TestReconcile_TrustsNoStatus checks that an id that a user wrote into a status changes and
// deletes nothing of another object.
func TestReconcile_TrustsNoStatus(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	victim := h.create("victim", v1alpha1.CloudEndpointSpec{Description: "theirs"})
	before := h.expectReady(victim)
	h.stop()
	forged := h.create("forged", v1alpha1.CloudEndpointSpec{Description: "mine"})
	forged.Status.ID = before.ID
	if err := h.kube.Status().Update(t.Context(), forged); err != nil {
		t.Fatal(err)
	}
	h.start()
	if e := h.expectReady(forged); e.ID == before.ID {
		t.Errorf("the forged status took %s", e.ID)
	}
	removed := h.create("removed", v1alpha1.CloudEndpointSpec{URL: "http://removed.elsewhere"})
	if err := h.kube.Get(t.Context(), client.ObjectKeyFromObject(removed), removed); err != nil {
		t.Fatal(err)
	}
	h.expect(removed, v1alpha1.ConditionAccepted, "False URLNotAllowed")
	removed.Status.ID = before.ID
	if err := h.kube.Status().Update(t.Context(), removed); err != nil {
		t.Fatal(err)
	}
	h.update(removed, func(s *v1alpha1.CloudEndpointSpec) { s.Description = "again" })
	h.expect(removed, v1alpha1.ConditionAccepted, "False URLNotAllowed")
	if after, found := h.endpoint(before.ID); !found || after.Description != "theirs" ||
		after.ResourceVersion != before.ResourceVersion {
		t.Errorf("the victim's endpoint is %+v (found: %t)", after, found)
	}
}

// TestReconcile_FollowerDoesNothing checks that a replica without the Lease calls nothing, and
// takes over when it gets the Lease.
func TestReconcile_FollowerDoesNothing(t *testing.T) {
	t.Parallel()
	h := newNamespace(t, servicetest.Start(t))
	h.follower.Store(true)
	h.start()
	o := h.create("shop", v1alpha1.CloudEndpointSpec{})
	h.quiet()
	if all := h.endpoints(); len(all) > 0 {
		t.Errorf("a follower made %v", all)
	}
	h.follower.Store(false)
	h.reconciler.EnqueueAll(t.Context())
	h.expectReady(o)
}

// TestReconcile_RefusalsBecomeConditions checks what an object says of each refusal.
func TestReconcile_RefusalsBecomeConditions(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	taken := h.create("first", v1alpha1.CloudEndpointSpec{URL: "http://shared.internal",
		Bindings: []string{"internal"}})
	h.expectReady(taken)
	backend := h.service.Tenant().Answer(200, "secret")
	for name, c := range map[string]struct {
		spec      v1alpha1.CloudEndpointSpec
		condition string
		want      string
		parts     []string
	}{
		"taken": {v1alpha1.CloudEndpointSpec{URL: "http://shared.internal", Bindings: []string{"internal"}},
			"Bound", "False URLTaken", []string{"CloudEndpoint " + h.namespace + "/first"}},
		"namespace": {v1alpha1.CloudEndpointSpec{URL: "http://api.kube-system"},
			"Accepted", "False URLNotAllowed", []string{"spec.url"}},
		"backend": {v1alpha1.CloudEndpointSpec{Backend: &v1alpha1.Backend{ID: backend}},
			"Bound", "False Forbidden", []string{"no backend rule that admits " + backend}},
		"public": {v1alpha1.CloudEndpointSpec{URL: "https://shop.example.com", Bindings: []string{"public"}},
			"Bound", "False Rejected", []string{"spec.url"}},
		"policy": {v1alpha1.CloudEndpointSpec{TrafficPolicy: &v1alpha1.TrafficPolicy{Inline: &runtime.RawExtension{
			Raw: []byte(`{"on_http_request":[{"actions":[{"type":"denny"}]}]}`)}}},
			"Accepted", "False PolicyInvalid",
			[]string{"spec.trafficPolicy.inline.on_http_request[0].actions[0].type"}},
	} {
		o := h.create(name, c.spec)
		h.expect(o, c.condition, c.want, c.parts...)
		h.expect(o, v1alpha1.ConditionReady, c.want, c.parts...)
		if o.Status.ID != "" {
			t.Errorf("%s: the status has an endpoint: %s", name, o.Status.ID)
		}
	}
	if all := h.endpoints(); len(all) != 1 {
		t.Errorf("the account has %d endpoints", len(all))
	}
	h.kube.MustDelete(taken) // the next attempt gets the URL
	o := &v1alpha1.CloudEndpoint{}
	o.Namespace, o.Name = h.namespace, "taken"
	h.expectReady(o)
}

// TestReconcile_OutageLeavesStatus checks that a service that is away is no change of what the
// account already has, and is one of a change that it could not take.
func TestReconcile_OutageLeavesStatus(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	o := h.create("shop", v1alpha1.CloudEndpointSpec{TrafficPolicy: answer("hello")})
	h.expectReady(o)
	h.account.set(func(string) error { return account.Errorf(account.CodeUnreachable, "the service is away") }, nil)
	version := o.ResourceVersion
	h.account.take()
	h.reconciler.Observe(nil)
	wait.Until(t, "a look at the endpoint", func() bool { return len(h.account.peek()) > 0 })
	h.expect(o, v1alpha1.ConditionReady, "True Ready")
	if o.ResourceVersion != version {
		t.Error("an outage changed the status of an endpoint that the account has")
	}
	h.update(o, func(s *v1alpha1.CloudEndpointSpec) { s.TrafficPolicy = answer("welcome") })
	h.expect(o, v1alpha1.ConditionBound, "False Unreachable", "the service is away", "the endpoint stays as it was")
	h.account.set(nil, nil)
	if e := h.expectReady(o); !strings.Contains(e.TrafficPolicy, "welcome") {
		t.Errorf("after the outage the policy is %s", e.TrafficPolicy)
	}
}
