// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package cloudendpoint_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// document is the text of a policy that answers each request with the body.
func document(body string) map[string]string {
	return map[string]string{v1alpha1.TrafficPolicyKey: "on_http_request:\n- actions:\n  - type: custom-response\n" +
		"    config: {body: " + body + "}\n"}
}

// TestReconcile_FollowsConfigMap checks that an endpoint's policy is that of its ConfigMap through
// its creation, changes, mistakes and deletion.
func TestReconcile_FollowsConfigMap(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	o := h.create("shop", v1alpha1.CloudEndpointSpec{TrafficPolicy: &v1alpha1.TrafficPolicy{
		TargetRef: &v1alpha1.TrafficPolicyRef{Kind: v1alpha1.KindConfigMap, Name: "shop"}}})
	h.expect(o, v1alpha1.ConditionAccepted, "False PolicyNotFound", "there is no ConfigMap "+h.namespace+"/shop")
	h.expect(o, v1alpha1.ConditionBound, "False Pending")

	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "shop"}, Data: document("hello")}
	h.kube.MustCreate(m)
	id := h.expectReady(o).ID
	change := func(data map[string]string) {
		t.Helper()
		m.Data = data
		if err := h.kube.Update(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	follows := func(body string) {
		t.Helper()
		began := time.Now()
		wait.Until(t, "the policy "+body, func() bool {
			e, _ := h.endpoint(id)
			return strings.Contains(e.TrafficPolicy, body)
		})
		t.Logf("a change of the ConfigMap took %s", time.Since(began))
	}
	follows("hello")
	change(document("welcome"))
	follows("welcome")

	change(map[string]string{v1alpha1.TrafficPolicyKey: "on_http_request:\n- actions:\n  - type: denny\n"})
	h.expect(o, v1alpha1.ConditionAccepted, "False PolicyInvalid", "ConfigMap shop, policy.yaml, line 3, column 11: ",
		"the endpoint stays as it was")
	h.expect(o, v1alpha1.ConditionReady, "False PolicyInvalid")
	h.expect(o, v1alpha1.ConditionBound, "True Bound")
	follows("welcome")

	change(map[string]string{v1alpha1.TrafficPolicyKey: "on_http_request:\n- actions:\n  - type: basic-auth\n" +
		"    config: {credentials: ['a:hushhush']}\n"})
	h.expect(o, v1alpha1.ConditionAccepted, "False PolicyInvalid", "is a secret", "forward-internal")

	change(document("again"))
	follows("again")
	h.expectReady(o)
	h.kube.MustDelete(m)
	h.expect(o, v1alpha1.ConditionAccepted, "False PolicyNotFound", "the endpoint stays as it was")
	follows("again")
}

// TestReconcile_ComparesRedactedPolicy checks that a policy with a value that the service takes for
// a secret is written once, and again when it changes.
func TestReconcile_ComparesRedactedPolicy(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	policy := func(value string) *v1alpha1.TrafficPolicy {
		p := answer("hello")
		p.Inline.Raw = []byte(
			`{"on_http_request":[{"actions":[{"type":"add-headers","config":{"headers":{"X-Token-Kind":"` +
				value + `"}}}]}]}`)
		return p
	}
	o := h.create("shop", v1alpha1.CloudEndpointSpec{TrafficPolicy: policy("one")})
	if e := h.expectReady(o); !strings.Contains(e.TrafficPolicy, "redacted:") {
		t.Fatalf("the service shows %s", e.TrafficPolicy)
	}
	h.account.take()
	h.update(o, func(s *v1alpha1.CloudEndpointSpec) { s.Description = "changed" })
	h.expectReady(o)
	before := h.expectReady(o)
	h.update(o, func(s *v1alpha1.CloudEndpointSpec) { s.TrafficPolicy = policy("two") })
	wait.Until(t, "the other policy", func() bool {
		e, _ := h.endpoint(o.Status.ID)
		return e.TrafficPolicy != before.TrafficPolicy
	})
}
