// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"io"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// inNamespaces returns rules of the namespace demo, and the problem with it: empty if it exists.
func inNamespaces(problem string, policies ...endpointaccess.Policy) *caller.Snapshot {
	rules := endpointaccess.Compile(policies, endpointaccess.Allow)
	switch problem {
	case v1alpha1.ReasonNamespaceNotFound:
		return newSnapshot(rules, map[string]map[string]string{})
	case v1alpha1.ReasonNamespaceTerminating:
		return newSnapshot(rules, map[string]map[string]string{"demo": {"team": "shop"}}, "demo")
	}
	return newSnapshot(rules, map[string]map[string]string{"demo": {"team": "shop"}})
}

// callToNamespace is a call to an endpoint of the namespace demo, and what comes of it.
type callToNamespace struct {
	rules    *caller.Snapshot
	app      string // label app of the calling pod
	noPods   bool   // the forwarder does not know pods
	reported string // problem with the namespace that the manager reports
	reason   string // reason of the denial; "": the call is served
	sentence string // part of the answer to a denied call
}

func callsToNamespace() map[string]callToNamespace {
	allowing := endpointaccess.Policy{Namespace: "demo", Name: "p", Spec: labelled}
	vanished := allowing
	vanished.Vanished = time.Now()
	return map[string]callToNamespace{
		"terminating": {rules: inNamespaces(v1alpha1.ReasonNamespaceTerminating), app: "web",
			reason: "namespace_terminating", sentence: "namespace demo is being deleted, and no EndpointAccess of it"},
		"terminating, without pod identity": {rules: inNamespaces(v1alpha1.ReasonNamespaceTerminating), noPods: true,
			reason: "namespace_terminating", sentence: "namespace demo is being deleted"},
		"terminating, an allowed pod": {rules: inNamespaces(v1alpha1.ReasonNamespaceTerminating, allowing), app: "web"},
		"terminating, another pod": {rules: inNamespaces(v1alpha1.ReasonNamespaceTerminating, allowing), app: "job",
			reason: "no_peer", sentence: "no EndpointAccess of namespace demo allows pod"},
		"terminating, once allowed": {rules: inNamespaces(v1alpha1.ReasonNamespaceTerminating, vanished), app: "web",
			reason: "namespace_terminating"},
		"gone": {rules: inNamespaces(v1alpha1.ReasonNamespaceNotFound), app: "web", reason: "namespace_missing",
			sentence: "namespace demo does not exist, and"},
		"there, once allowed": {rules: inNamespaces("", vanished), app: "web"},
		"there, never allowed": {rules: inNamespaces("", vanished), app: "job", reason: "no_peer",
			sentence: "no EndpointAccess of namespace demo allows pod"},
		"there, though the manager has not seen it": {rules: inNamespaces(""), app: "web",
			reported: v1alpha1.ReasonNamespaceNotFound},
		"not readable, terminating": {rules: withoutNamespaces(), noPods: true, reason: "namespace_terminating",
			reported: v1alpha1.ReasonNamespaceTerminating, sentence: "namespace demo is being deleted"},
		"not readable, forbidden": {rules: withoutNamespaces(), noPods: true, reason: "namespace_forbidden",
			reported: v1alpha1.ReasonNamespaceForbidden,
			sentence: "namespace demo does not exist, or does not let this installation read it"},
		"not readable, another problem": {rules: withoutNamespaces(), noPods: true, reported: v1alpha1.ReasonConflict},
	}
}

// TestAccess_NamespaceGone checks that only calls that an EndpointAccess allows are served where the
// namespace is gone or being deleted.
func TestAccess_NamespaceGone(t *testing.T) {
	t.Parallel()
	for name, c := range callsToNamespace() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, startEdge(t, respond), shortTiming(), func(o *Options) {
				o.Access = newFakeRules(c.rules)
				if !c.noPods {
					pods := newFakePods()
					pods.set(podOf("caller", c.app))
					o.Pods = pods
				}
			})
			r.source.update(reporting(c.reported))
			wait.Receive(t, "a session", r.edge.connectedOnce)
			if c.reason == "" {
				if res, body := get(t, r.dial(10080), "/"); res.StatusCode != 200 {
					t.Errorf("%s: %s", res.Status, body)
				}
				return
			}
			if res, body := get(t, r.dial(10080), "/"); res.StatusCode != 403 ||
				!strings.Contains(body, "ERR_FL_3007") || !strings.Contains(body, c.sentence) {
				t.Errorf("%s: %s", res.Status, body)
			}
			wantRefused(r, 15432)
			if n := testutil.ToFloat64(r.metrics.denied.WithLabelValues("api.demo", c.reason)); n != 1 {
				t.Errorf("%v denials of reason %s are counted", n, c.reason)
			}
		})
	}
}

// withoutNamespaces returns rules of a forwarder that may not read namespaces.
func withoutNamespaces() *caller.Snapshot {
	return newSnapshot(endpointaccess.Compile(nil, endpointaccess.Allow), nil)
}

// reporting returns the objects, with a reason for which there are no Services.
func reporting(reason string) Objects {
	o := testObjects()
	for _, b := range o.BoundEndpoints {
		if reason != "" {
			b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionServicesReady, Reason: reason}}
		}
	}
	return o
}

// TestAccess_NamespaceGoneThoughNetworkPoliciesDecide checks that what is left to NetworkPolicies is
// closed, too: they open what no object restricts.
func TestAccess_NamespaceGoneThoughNetworkPoliciesDecide(t *testing.T) {
	t.Parallel()
	vanished := endpointaccess.Policy{Namespace: "demo", Name: "p", Spec: labelled, Vanished: time.Now()}
	for name, c := range map[string]struct {
		rules  *caller.Snapshot
		reason string
	}{
		"terminating":             {inNamespaces(v1alpha1.ReasonNamespaceTerminating), "namespace_terminating"},
		"the last object is gone": {inNamespaces("", vanished), "policies_not_written"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, startEdge(t, respond), shortTiming(), func(o *Options) {
				o.Access, o.NetworkPolicies = newFakeRules(c.rules), true
			})
			objects := testObjects()
			objects.NetworkPolicies = &v1alpha1.WrittenNetworkPolicies{DefaultAccess: "allow"}
			r.source.update(objects)
			wait.Receive(t, "a session", r.edge.connectedOnce)
			wantErrorPage(t, r.dial(10080), 403, "ERR_FL_3007")
			if n := testutil.ToFloat64(r.metrics.denied.WithLabelValues("api.demo", c.reason)); n != 1 {
				t.Errorf("%v denials of reason %s are counted", n, c.reason)
			}
		})
	}
}

// TestAccess_WaitsForNewNamespace checks that a call that is faster than the news of a namespace
// waits for it.
func TestAccess_WaitsForNewNamespace(t *testing.T) {
	t.Parallel()
	rules := newFakeRules(inNamespaces(v1alpha1.ReasonNamespaceNotFound))
	r := controlled(t, startEdge(t, respond), rules, nil)
	c := r.dial(10080)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.demo\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the call", func() bool { return r.status().Listeners[0].Active == 1 })
	rules.set(inNamespaces(""))
	if res, body := response(t, c); res.StatusCode != 200 {
		t.Errorf("%s: %s", res.Status, body)
	}
}

// TestAccess_NamespaceDeletionEndsLiveConnections checks that it ends those of unknown callers, too,
// and none while an EndpointAccess allows them.
func TestAccess_NamespaceDeletionEndsLiveConnections(t *testing.T) {
	t.Parallel()
	allowing := endpointaccess.Policy{Namespace: "demo", Name: "p", Spec: labelled}
	vanished := allowing
	vanished.Vanished = time.Now()
	rules, pods := newFakeRules(inNamespaces("", allowing)), newFakePods()
	pods.set(podOf("web", "web"))
	r := controlled(t, startEdge(t, holdOpen), rules, pods)
	known := r.held()
	rules.set(inNamespaces(v1alpha1.ReasonNamespaceTerminating, allowing))
	wantLive(t, known)
	rules.set(inNamespaces("", vanished))
	wantLive(t, known)
	rules.set(inNamespaces(""))
	pods.set(nil)
	unknown := r.held()
	rules.set(inNamespaces(v1alpha1.ReasonNamespaceTerminating))
	wantReset(t, known)
	wantReset(t, unknown)
}
