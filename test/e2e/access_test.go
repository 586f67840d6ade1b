// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// accessWorld is a release with three endpoints in one namespace, and callers there, in another
// namespace and in the node's network.
type accessWorld struct {
	c                          *Cluster
	r                          *Release
	ns, partner                string // the endpoints' namespace and the other one
	api, open, db              string // URLs: two of http, one of an echo
	web, other, job, far, host *caller
	ips                        map[string]string // of the target Services, by hostname
}

// newAccessWorld installs with pod identity and without NetworkPolicies. job runs as the
// ServiceAccount batch; web, far and host have the label app=web.
func newAccessWorld(t *testing.T) *accessWorld {
	t.Helper()
	c := Enforcing(t)
	w := &accessWorld{c: c, ips: map[string]string{}}
	s := c.StartService(t)
	web, echo := c.startUpstreams(t)
	w.ns = c.ProjectedNamespace(t, "demo", v1alpha1.ProjectionEndpointSlice)
	w.partner = c.namespace(t, "partner", map[string]string{"team": "partner"})
	w.api, w.open, w.db = "http://api."+w.ns, "http://open."+w.ns, "tcp://db."+w.ns+":5432"
	w.r = s.Install(t, "--set", "forwarder.podIdentity.enabled=true")
	s.Agent(t, "http", web, w.api)
	s.Agent(t, "http", web, w.open)
	s.Agent(t, "tcp", echo, w.db)
	c.serviceAccount(t, w.ns, "batch")
	for _, name := range []string{"api", "open", "db"} {
		w.r.BoundEndpoint(t, name+"."+w.ns, v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady)
		svc := &corev1.Service{}
		must.Succeed(t, c.Client.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, svc))
		w.ips[name+"."+w.ns] = svc.Spec.ClusterIP
	}
	labels := map[string]string{"app": "web"}
	w.web = w.caller(t, callerPod{namespace: w.ns, name: "web", labels: labels})
	w.other = w.caller(t, callerPod{namespace: w.ns, name: "other", labels: map[string]string{"app": "other"}})
	w.job = w.caller(t, callerPod{namespace: w.ns, name: "job", serviceAccount: "batch"})
	w.far = w.caller(t, callerPod{namespace: w.partner, name: "far", labels: labels})
	w.host = w.caller(t, callerPod{namespace: w.ns, name: "host", labels: labels, hostNetwork: true})
	return w
}

func (w *accessWorld) caller(t testing.TB, p callerPod) *caller {
	t.Helper()
	return w.c.startCaller(t, p, w.ips)
}

// allow writes the EndpointAccess "rule", which selects api and db, with these peers.
func (w *accessWorld) allow(t testing.TB, peers ...string) {
	t.Helper()
	w.c.Apply(t, fmt.Sprintf(`
apiVersion: bindings.fairlead.dev/v1alpha1
kind: EndpointAccess
metadata: {name: rule, namespace: %s}
spec: {endpoints: [api, db], from: [%s]}
`, w.ns, strings.Join(peers, ", ")))
}

const (
	labelledWeb = "{podSelector: {matchLabels: {app: web}}}"
	fromPartner = "{namespaceSelector: {matchLabels: {team: partner}}}"
	asBatch     = "{serviceAccounts: [batch]}"
)

// TestAccess_PodsThatMayCall holds forwarders, then NetworkPolicies beside them, then NetworkPolicies
// without pod identity to EndpointAccess objects, with callers of all kinds.
func TestAccess_PodsThatMayCall(t *testing.T) {
	w := newAccessWorld(t)
	all := []*caller{w.web, w.other, w.job, w.far, w.host}
	t.Run("without an object every pod calls", func(t *testing.T) {
		w.wantOpen(t, all...)
	})
	t.Run("peers choose by label, ServiceAccount and namespace", w.choosesPeers)
	t.Run("a change ends live connections", w.endsLiveConnections)
	t.Run("an address that another pod had gives nothing", w.reusedAddress)
	t.Run("forwarders start while pods call", w.forwardersStart)
	t.Run("a user reads what is enforced and who was denied", w.readsStatus)
	t.Run("the API server is away", w.apiServerAway)
	t.Run("without the object every pod calls again", func(t *testing.T) {
		w.c.Kubectl(t, "-n", w.ns, "delete", "endpointaccess", "rule")
		w.wantOpen(t, all...)
	})

	w.allow(t, labelledWeb, asBatch)
	w.r.Upgrade(t, "--set", "forwarder.podIdentity.enabled=true", "--set", "networkPolicy.enabled=true", "--set",
		"binding.defaultAccess=deny")
	t.Run("NetworkPolicies beside forwarders, and deny by default", w.bothEnforce)
	w.r.Upgrade(t, "--set", "networkPolicy.enabled=true")
	t.Run("NetworkPolicies without pod identity", w.networkPoliciesAlone)
}

// wantOpen waits until the callers reach all endpoints.
func (w *accessWorld) wantOpen(t *testing.T, callers ...*caller) {
	t.Helper()
	wantCalls(t, w.api, "200", callers...)
	wantCalls(t, w.open, "200", callers...)
	wantCalls(t, w.db, "echo", callers...)
}

// wantDenied waits until forwarders deny the callers what is selected, and nothing else.
func (w *accessWorld) wantDenied(t *testing.T, callers ...*caller) {
	t.Helper()
	if body := wantCalls(t, w.api, "403", callers...); !strings.Contains(body, "ERR_FL_3007") {
		t.Errorf("the page is %q", body)
	}
	wantCalls(t, w.db, callReset, callers...)
	wantCalls(t, w.open, "200", callers...)
}

func (w *accessWorld) choosesPeers(t *testing.T) {
	w.allow(t, labelledWeb)
	w.wantDenied(t, w.other, w.job, w.far, w.host)
	w.wantOpen(t, w.web)
	w.allow(t, asBatch)
	w.wantDenied(t, w.web, w.other, w.far, w.host)
	w.wantOpen(t, w.job)
	w.allow(t, fromPartner)
	w.wantDenied(t, w.web, w.other, w.job, w.host)
	w.wantOpen(t, w.far)
	w.allow(t, "{namespaceSelector: {matchLabels: {team: partner}}, podSelector: {matchLabels: {app: none}}}", asBatch)
	w.wantDenied(t, w.far, w.web)
	w.wantOpen(t, w.job)
	w.allow(t) // no pod
	w.wantDenied(t, w.web, w.other, w.job, w.far, w.host)
}

// endWithin bounds the time from a change to the end of the connections that it forbids: a second on
// a quiet machine.
func endWithin() time.Duration {
	if os.Getenv("FAIRLEAD_E2E_TARGETS") != "" {
		return time.Second
	}
	return 5 * time.Second
}

// endsLiveConnections takes access away from a live connection in each way, beside one that stays.
func (w *accessWorld) endsLiveConnections(t *testing.T) {
	w.allow(t, labelledWeb, fromPartner, asBatch)
	w.wantOpen(t, w.job)
	stays := w.job.hold(t, w.db)
	for _, tc := range []struct {
		name         string
		from         *caller
		change, undo func()
	}{
		{"the object", w.web, func() { w.allow(t, fromPartner, asBatch) }, func() {
			w.allow(t, labelledWeb, fromPartner, asBatch)
		}},
		{"the pod's label", w.web,
			func() { w.c.Kubectl(t, "-n", w.ns, "label", "pod", "web", "app=none", "--overwrite") },
			func() { w.c.Kubectl(t, "-n", w.ns, "label", "pod", "web", "app=web", "--overwrite") }},
		{"the namespace's label", w.far,
			func() { w.c.Kubectl(t, "label", "namespace", w.partner, "team=none", "--overwrite") },
			func() { w.c.Kubectl(t, "label", "namespace", w.partner, "team=partner", "--overwrite") }},
	} {
		w.wantOpen(t, tc.from)
		live := tc.from.hold(t, w.db)
		tc.change()
		changed := time.Now()
		select {
		case <-live.Ended():
			t.Logf("%s: the connection ended %v after the change was answered", tc.name,
				time.Since(changed).Round(time.Millisecond))
		case <-time.After(endWithin()):
			t.Errorf("%s: the connection lives %v after the change", tc.name, endWithin())
			live.Kill()
		}
		w.wantDenied(t, tc.from)
		tc.undo()
		w.wantOpen(t, tc.from)
	}
	wantHeld(t, stays, "after changes that concern others")
}

// reusedAddress gives the address of a pod that may call to one that may not, which calls from its
// first instant on.
func (w *accessWorld) reusedAddress(t *testing.T) {
	w.allow(t, labelledWeb)
	first := w.caller(t, callerPod{namespace: w.ns, name: "first", labels: map[string]string{"app": "web"}})
	w.wantOpen(t, first)
	ip := first.pod.Status.PodIP
	first.remove(t)
	w.c.giveNext(t, ip)
	heir := w.startHasty(t, "other")
	if heir.Status.PodIP != ip {
		t.Fatalf("the pod has the address %s, want that of the pod before it, %s", heir.Status.PodIP, ip)
	}
	if out := w.c.waitLog(t, heir, strings.Repeat("answer 403\n", 20)); strings.Contains(out, "answer 200") {
		t.Errorf("a pod that may not call got an answer at an address that another one had:\n%s", out)
	}
	fresh := w.startHasty(t, "web")
	if out := w.c.waitLog(t, fresh, strings.Repeat("answer 200\n", 20)); strings.Contains(out, "answer 403") {
		t.Errorf("a pod that may call was denied when it was new:\n%s", out)
	}
}

// startHasty starts a pod with a label that calls api from its first instant on.
func (w *accessWorld) startHasty(t *testing.T, app string) *corev1.Pod {
	t.Helper()
	return w.c.StartPod(t, Pod{Namespace: w.ns, Name: "hasty-" + app, Labels: map[string]string{"app": app},
		Image: ImageCurl, Command: []string{"bash", "-c", "for ((i=0; i<200; i++)); do " +
			"curl -s -m 5 -o /dev/null -w 'answer %{http_code}\n' " + w.api + "; sleep 0.02; done; sleep infinity"}})
}

// forwardersStart replaces all forwarders: those that may call notice nothing, and no other call
// slips through while the new ones learn who may.
func (w *accessWorld) forwardersStart(t *testing.T) {
	w.allow(t, labelledWeb)
	w.wantDenied(t, w.other)
	denied := w.c.startLoad(t, w.other.pod, "-v", "-rate", "50", w.api)
	allowed := w.c.startLoad(t, w.web.pod, "-v", "-rate", "20", w.api)
	deployment := "deployment/" + w.r.Name + "-forwarder"
	w.c.Kubectl(t, "-n", w.r.Namespace, "rollout", "restart", deployment)
	w.c.Kubectl(t, "-n", w.r.Namespace, "rollout", "status", deployment, "--timeout=120s")
	got, lost := denied.stop(t), allowed.stop(t)
	if got.OK > 0 || got.Failed == 0 {
		t.Errorf("%d of %d calls of a pod that may not call were answered", got.OK, got.OK+got.Failed)
	}
	if lost.Failed > 0 || lost.OK == 0 {
		t.Errorf("%d of %d calls of a pod that may call failed", lost.Failed, lost.OK+lost.Failed)
	}
	t.Logf("%d calls were denied and %d answered meanwhile", got.Failed, lost.OK)
}

// apiServerAway freezes the API server until callers are unknown.
func (w *accessWorld) apiServerAway(t *testing.T) {
	w.allow(t, labelledWeb)
	w.wantOpen(t, w.web)
	live := w.web.hold(t, w.db)
	resume := w.c.stopAPIServer(t)
	away := time.Now()
	w.c.Eventually(t, 30*time.Second, "new calls of a restricted endpoint are denied", func(ctx context.Context) error {
		if outcome, body := w.web.call(ctx, w.open); outcome != "200" {
			t.Errorf("an endpoint that nothing restricts: %s: %s", outcome, body)
		}
		if outcome, body := w.web.call(ctx, w.api); outcome != "403" {
			return fmt.Errorf("%s: %s", outcome, body)
		}
		return nil
	})
	t.Logf("callers were unknown %v after the API server went away", time.Since(away).Round(100*time.Millisecond))
	w.wantDenied(t, w.web)
	wantHeld(t, live, "while callers are unknown")
	resume()
	back := time.Now()
	w.wantOpen(t, w.web)
	t.Logf("callers were known %v after it came back", time.Since(back).Round(100*time.Millisecond))
	wantHeld(t, live, "after the API server came back")
}
