// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestAccess_LeftToNetworkPolicies checks that a forwarder that knows no pods leaves the decision to
// NetworkPolicies while they are written for the rules as it knows them, and denies otherwise.
func TestAccess_LeftToNetworkPolicies(t *testing.T) {
	t.Parallel()
	rules := snapshot("allow", "shop", labelled)
	digest := rules.Rules.Digest("demo")
	of := func(byDefault, digest string) *v1alpha1.WrittenNetworkPolicies {
		w := &v1alpha1.WrittenNetworkPolicies{DefaultAccess: byDefault, Namespaces: map[string]string{"shop": "x"}}
		if digest != "" {
			w.Namespaces["demo"] = digest
		}
		return w
	}
	for name, tt := range map[string]struct {
		rules   *caller.Snapshot
		written *v1alpha1.WrittenNetworkPolicies
		pods    *fakePods
		left    bool
	}{
		"written":                     {rules: rules, written: of("allow", digest), left: true},
		"written, deny by default":    {rules: snapshot("deny", "shop"), written: of("deny", ""), left: true},
		"not written":                 {rules: rules},
		"written of older objects":    {rules: rules, written: of("allow", "0123456789abcdef")},
		"written without objects":     {rules: rules, written: of("allow", "")},
		"written of removed objects":  {rules: snapshot("deny", "shop"), written: of("deny", digest)},
		"being written":               {rules: rules, written: of("allow", v1alpha1.NetworkPoliciesNotWritten)},
		"written for another default": {rules: snapshot("deny", "shop"), written: of("allow", "")},
		"rules that are not known":    {rules: unknownRules(), written: of("allow", "")},
		"a forwarder that knows pods": {rules: rules, written: of("allow", digest), pods: newFakePods()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, startEdge(t, respond), shortTiming(), func(o *Options) {
				o.Access, o.NetworkPolicies = newFakeRules(tt.rules), true
				if tt.pods != nil {
					o.Pods = tt.pods
				}
			})
			objects := testObjects()
			objects.NetworkPolicies = tt.written
			r.source.update(objects)
			wait.Receive(t, "a session", r.edge.connectedOnce)
			if !tt.left {
				wantErrorPage(t, r.dial(10080), 403, "ERR_FL_3007")
				return
			}
			if res, body := get(t, r.dial(10080), "/"); res.StatusCode != 200 {
				t.Errorf("%s: %s", res.Status, body)
			}
			if !r.status().Access.NetworkPolicies {
				t.Error("the status does not say so")
			}
		})
	}
}

// TestAccess_TakesDecisionBackFromNetworkPolicies checks that a change of the rules, and one of what
// is written, closes at once what NetworkPolicies decided about.
func TestAccess_TakesDecisionBackFromNetworkPolicies(t *testing.T) {
	t.Parallel()
	rules := newFakeRules(snapshot("allow", "shop", labelled))
	r := start(t, startEdge(t, respond), shortTiming(), func(o *Options) {
		o.Access, o.NetworkPolicies = rules, true
	})
	objects := testObjects()
	write := func(w *v1alpha1.WrittenNetworkPolicies) {
		objects.NetworkPolicies = w
		r.source.update(objects)
		wait.Until(t, "the status", func() bool { return r.status().Access.NetworkPolicies == (w != nil) })
	}
	wantOpen := func() {
		t.Helper()
		if res, body := get(t, r.dial(10080), "/"); res.StatusCode != 200 {
			t.Errorf("%s: %s", res.Status, body)
		}
	}
	current := func() *v1alpha1.WrittenNetworkPolicies {
		return &v1alpha1.WrittenNetworkPolicies{DefaultAccess: "allow", Namespaces: rules.Snapshot().Rules.Digests()}
	}
	write(current())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	wantOpen()
	rules.set(snapshot("allow", "shop", labelled, closed)) // the manager is away
	wantErrorPage(t, r.dial(10080), 403, "ERR_FL_3007")
	if _, body := get(t, r.dial(10080), "/"); !strings.Contains(body, "they are not written for its EndpointAccess") {
		t.Errorf("the page is %q", body)
	}
	write(current())
	wantOpen()
	write(nil)
	wantErrorPage(t, r.dial(10080), 403, "ERR_FL_3007")
}
