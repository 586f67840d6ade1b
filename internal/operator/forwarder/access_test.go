// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// fakeRules are AccessRules that a test sets.
type fakeRules struct {
	current atomic.Pointer[caller.Snapshot]
	changed chan struct{}
}

func newFakeRules(s *caller.Snapshot) *fakeRules {
	r := &fakeRules{changed: make(chan struct{}, 1)}
	r.set(s)
	return r
}

func (r *fakeRules) Snapshot() *caller.Snapshot { return r.current.Load() }
func (r *fakeRules) Changed() <-chan struct{}   { return r.changed }

func (r *fakeRules) set(s *caller.Snapshot) {
	r.current.Store(s)
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// unknownRules are those of a forwarder that has listed nothing.
func unknownRules() *caller.Snapshot {
	return &caller.Snapshot{Rules: endpointaccess.Compile(nil, endpointaccess.Allow)}
}

// snapshot returns rules of the namespace demo with the labels team=TEAM.
func snapshot(byDefault endpointaccess.Default, team string, specs ...endpointaccess.Spec) *caller.Snapshot {
	var policies []endpointaccess.Policy
	for _, s := range specs {
		policies = append(policies, endpointaccess.Policy{Namespace: "demo", Name: "p", Spec: s})
	}
	return newSnapshot(endpointaccess.Compile(policies, byDefault),
		map[string]map[string]string{"demo": {"team": team}})
}

// newSnapshot returns a complete Snapshot of rules and of namespaces with their labels, nil if these
// cannot be read. The terminating ones are being deleted.
func newSnapshot(
	rules *endpointaccess.Rules, namespaces map[string]map[string]string, terminating ...string,
) *caller.Snapshot {
	return &caller.Snapshot{Rules: rules, Listed: map[string]bool{"": true},
		NamespacesListed: namespaces != nil, Namespaces: fakeNamespaces{namespaces, terminating}}
}

// fakeNamespaces are namespaces with their labels, and the names of those that are being deleted.
type fakeNamespaces struct {
	labels      map[string]map[string]string
	terminating []string
}

func (n fakeNamespaces) Namespace(name string) (labels endpointaccess.Labels, terminating, exists bool) {
	set, exists := n.labels[name]
	return endpointaccess.LabelMap(set), slices.Contains(n.terminating, name), exists
}

// labelled are the specs that allow pods with app=web of namespaces with team=shop.
var labelled = endpointaccess.Spec{Endpoints: []string{"api", "db"}, From: []endpointaccess.Peer{{
	NamespaceSelector: &endpointaccess.Selector{MatchLabels: map[string]string{"team": "shop"}},
	PodSelector:       &endpointaccess.Selector{MatchLabels: map[string]string{"app": "web"}},
}}}

// closed allows no pod.
var closed = endpointaccess.Spec{Endpoints: []string{"d*"}}

func podOf(name, app string) *caller.Pod {
	return &caller.Pod{Labels: caller.NewLabels(map[string]string{"app": app}),
		PodIdentity: tunnel.PodIdentity{Namespace: "demo", Name: name, ServiceAccount: "default"}}
}

// controlled starts a forwarder with rules and, unless nil, pods.
func controlled(t *testing.T, e *fakeEdge, rules *fakeRules, pods *fakePods) *runningForwarder {
	t.Helper()
	r := start(t, e, shortTiming(), func(o *Options) {
		o.Access = rules
		if pods != nil {
			o.Pods = pods
		}
	})
	r.source.update(testObjects())
	wait.Receive(t, "a session", r.edge.connectedOnce)
	return r
}

// admission is whether a pod, nil for an unknown one, may call.
type admission struct {
	name     string
	rules    *caller.Snapshot
	pod      *caller.Pod
	noPods   bool   // the forwarder does not know pods
	sentence string // of the denial; "": allowed
	reason   string
}

func admissions() []admission {
	web, other := podOf("web", "web"), podOf("other", "job")
	unlisted := podOf("web", "web")
	unlisted.Namespace = "new"
	tooMany := podOf("web", "web")
	tooMany.Labels = caller.Labels{}
	return []admission{
		{name: "no rule and an unknown caller", rules: snapshot("allow", "shop")},
		{name: "no rule and no pod identity", rules: snapshot("allow", "shop"), noPods: true},
		{name: "an allowed pod", rules: snapshot("allow", "shop", labelled), pod: web},
		{name: "an allowed pod with default deny", rules: snapshot("deny", "shop", labelled), pod: web},
		{name: "another pod", rules: snapshot("allow", "shop", labelled), pod: other, reason: "no_peer",
			sentence: "no EndpointAccess of namespace demo allows pod demo/other with ServiceAccount default."},
		{name: "another namespace label", rules: snapshot("allow", "data", labelled), pod: web, reason: "no_peer",
			sentence: "no EndpointAccess of namespace demo allows pod demo/web"},
		{name: "an unknown caller", rules: snapshot("allow", "shop", labelled), reason: "unknown_caller",
			sentence: "and no pod is known for certain to have the address 127.0.0.1."},
		{name: "a pod with more labels than are kept", rules: snapshot("allow", "shop", labelled), pod: tooMany,
			reason: "unknown_caller", sentence: "no pod is known for certain"},
		{name: "no pod identity", rules: snapshot("allow", "shop", labelled), noPods: true, reason: "no_pod_identity",
			sentence: "this cluster's forwarders do not know pods."},
		{name: "default deny", rules: snapshot("deny", "shop"), pod: web, reason: "default",
			sentence: "no EndpointAccess of namespace demo selects it, and this cluster denies such calls."},
		{name: "rules that are not known", rules: unknownRules(), pod: web, reason: "rules_unknown",
			sentence: "its forwarder could not yet read the EndpointAccess objects of namespace demo."},
		{name: "a namespace that is not known", rules: snapshot("allow", "shop", labelled), pod: unlisted,
			reason: "unknown_caller", sentence: "no pod is known for certain"},
	}
}

func TestAccess_DeniesCallers(t *testing.T) {
	t.Parallel()
	for _, c := range admissions() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

func (c admission) check(t *testing.T) {
	t.Helper()
	const denied = "This pod may not call http://api.demo: "
	pods := newFakePods()
	pods.set(c.pod)
	if c.noPods {
		pods = nil
	}
	r := controlled(t, startEdge(t, respond), newFakeRules(c.rules), pods)
	if c.sentence == "" {
		if res, body := get(t, r.dial(10080), "/"); res.StatusCode != 200 {
			t.Errorf("%s: %s", res.Status, body)
		}
		return
	}
	if res, body := get(t, r.dial(10080), "/"); res.StatusCode != 403 || !res.Close ||
		!strings.Contains(body, "ERR_FL_3007") || !strings.Contains(body, denied) ||
		!strings.Contains(body, c.sentence) {
		t.Errorf("%s: %s", res.Status, body)
	}
	wantRefused(r, 15432)
	got := testutil.ToFloat64(r.metrics.denied.WithLabelValues("api.demo", c.reason))
	if got != 1 {
		t.Errorf("%v denials of reason %s are counted", got, c.reason)
	}
	latest := map[string]Denial{}
	for _, d := range r.status().Denied {
		latest[d.Hostname] = d
	}
	if d := latest["api.demo"]; len(latest) != 2 || d.Count != 1 || d.Port != 80 || d.Reason != c.reason {
		t.Errorf("the status has %+v", latest)
	}
	if f := r.status().Listeners[0].LastFailure; f != nil {
		t.Errorf("the denial is a failure of the endpoint: %+v", f)
	}
}

// TestAccess_RestrictedOfflineEndpoint checks that a denied caller does not learn whether the
// endpoint is online.
func TestAccess_RestrictedOfflineEndpoint(t *testing.T) {
	t.Parallel()
	pods := newFakePods()
	r := start(t, startEdge(t, respond), shortTiming(), func(o *Options) {
		o.Access, o.Pods = newFakeRules(snapshot("allow", "shop", labelled)), pods
	})
	gone := testObjects()
	gone.BoundEndpoints[0].Spec.Endpoints = nil
	r.source.update(gone)
	wantErrorPage(t, r.dial(10080), 403, "ERR_FL_3007")
	pods.set(podOf("web", "web"))
	wantErrorPage(t, r.dial(10080), 503, "ERR_FL_3001")
}

// TestAccess_WaitsForRules checks that a connection waits until the rules are listed, and a
// forwarder until then to become ready.
func TestAccess_WaitsForRules(t *testing.T) {
	t.Parallel()
	rules := newFakeRules(unknownRules())
	r := controlled(t, startEdge(t, respond), rules, nil)
	c := r.dial(10080)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.demo\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if reason := r.notReadyReason(); r.ready.Load() || !strings.Contains(reason, "EndpointAccess objects") {
		t.Errorf("ready without rules: %q", reason)
	}
	rules.set(snapshot("allow", "shop"))
	if res, body := response(t, c); res.StatusCode != 200 {
		t.Errorf("%s: %s", res.Status, body)
	}
	wait.Until(t, "ready", r.ready.Load)
	rules.set(unknownRules())
	if !r.ready.Load() {
		t.Error("not ready any more")
	}
}

// holdOpen accepts a stream and keeps it until the client ends it.
func holdOpen(_ context.Context, st *tunnel.Stream) {
	defer st.Close()
	if st.Accept() == nil {
		_, _ = io.WriteString(st, "x")
		_, _ = io.Copy(io.Discard, st)
	}
}

// held opens a connection and waits until it is served.
func (r *runningForwarder) held() *net.TCPConn {
	r.t.Helper()
	c := r.dial(15432)
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// wantLive checks that a connection still is served: it outlives one that a rule ends.
func wantLive(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || !strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection ended: %d bytes, %v", n, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(testTimeout))
}

const revokeGoal = time.Second // within which a change ends live connections

func TestAccess_ChangeEndsLiveConnections(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*fakeRules, *fakePods){
		"rule":            func(r *fakeRules, _ *fakePods) { r.set(snapshot("allow", "shop", closed)) },
		"pod label":       func(_ *fakeRules, p *fakePods) { p.set(podOf("web", "job")) },
		"namespace label": func(r *fakeRules, _ *fakePods) { r.set(snapshot("allow", "data", labelled)) },
		"default":         func(r *fakeRules, _ *fakePods) { r.set(snapshot("deny", "shop")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, pods := newFakeRules(snapshot("allow", "shop", labelled)), newFakePods()
			pods.set(podOf("web", "web"))
			r := controlled(t, startEdge(t, holdOpen), rules, pods)
			c := r.held()
			rules.set(snapshot("allow", "shop", labelled)) // a change that changes nothing
			wantLive(t, c)
			begun := time.Now()
			change(rules, pods)
			wantReset(t, c)
			if took := time.Since(begun); took > revokeGoal {
				t.Errorf("the connection ended after %s", took)
			}
			wait.Until(t, "the end", func() bool { return len(r.access.live.list()) == 0 })
			if d := r.access.latest(); len(d) != 1 || d[0].Reason != "revoked" || d[0].Caller != "demo/web" {
				t.Errorf("denials: %+v", d)
			}
		})
	}
}

// TestAccess_NamesTrustedProxies checks what streams say about their callers' forwarding headers, and
// that a connection ends when they are not believed any more.
func TestAccess_NamesTrustedProxies(t *testing.T) {
	t.Parallel()
	trusting := labelled
	trusting.From = []endpointaccess.Peer{labelled.From[0], {}}
	trusting.From[0].ForwardedHeaders = v1alpha1.ForwardedHeadersTrust
	rules, pods, edge := newFakeRules(snapshot("allow", "shop", trusting)), newFakePods(), startEdge(t, holdOpen)
	r := controlled(t, edge, rules, pods)
	for _, c := range []struct {
		pod   *caller.Pod
		rules *caller.Snapshot
		want  bool
	}{
		{podOf("gateway", "web"), snapshot("allow", "shop", trusting), true},
		{podOf("other", "job"), snapshot("allow", "shop", trusting), false},
		{podOf("gateway", "web"), snapshot("allow", "shop", labelled), false},
		{podOf("gateway", "web"), snapshot("allow", "shop"), false},
		{nil, snapshot("allow", "shop"), false},
	} {
		pods.set(c.pod)
		rules.set(c.rules)
		_ = r.held().Close()
		if h := wait.Receive(t, "a stream", edge.streams); h.TrustsForwarding != c.want {
			t.Errorf("pod %+v: trusted %v", c.pod, h.TrustsForwarding)
		}
	}
	pods.set(podOf("gateway", "web"))
	rules.set(snapshot("allow", "shop", trusting))
	c := r.held()
	rules.set(snapshot("allow", "shop", labelled))
	wantReset(t, c)
}

// TestAccess_UncertainCallersStayLive checks that only what is known for certain ends a connection,
// and that it ends once it is.
func TestAccess_UncertainCallersStayLive(t *testing.T) {
	t.Parallel()
	rules, pods := newFakeRules(snapshot("allow", "shop")), newFakePods()
	r := controlled(t, startEdge(t, holdOpen), rules, pods)
	unknown := r.held()
	pods.set(podOf("web", "web"))
	known := r.held()
	pods.set(nil) // as while the API server is away
	rules.set(snapshot("allow", "shop", closed))
	wantRefused(r, 15432)
	wantLive(t, known)
	pods.set(podOf("successor", "web"))
	wantLive(t, known)
	pods.pod.Store(nil) // without a signal
	pods.pod.Store(podOf("web", "web"))
	rules.set(snapshot("allow", "shop", closed))
	wantReset(t, known)
	wantLive(t, unknown)
}

// TestAccess_EndsConnectionOnceCallerIsCertain checks that no signal is needed for the return of
// the API server.
func TestAccess_EndsConnectionOnceCallerIsCertain(t *testing.T) {
	t.Parallel()
	rules, pods := newFakeRules(snapshot("allow", "shop")), newFakePods()
	pods.set(podOf("web", "web"))
	r := controlled(t, startEdge(t, holdOpen), rules, pods)
	c := r.held()
	pods.pod.Store(nil)
	rules.set(snapshot("allow", "shop", closed))
	wantLive(t, c)
	pods.pod.Store(podOf("web", "web"))
	wantReset(t, c)
}

func TestDenials_AreBounded(t *testing.T) {
	t.Parallel()
	d := newDenials(slog.New(slog.DiscardHandler))
	now := time.Now()
	for i := range 3 * maxDenials {
		d.add(denialKey{"api.demo", 80, string(rune('a' + i)), "no_peer"}, now.Add(time.Duration(i)*time.Second))
	}
	list := d.list()
	if len(list) != maxDenials || list[0].Caller != string(rune('a'+3*maxDenials-1)) {
		t.Errorf("%d denials, the latest of %q", len(list), list[0].Caller)
	}
}
