// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// forwarderURLs are the addresses of a port of the forwarders.
func (w *accessWorld) forwarderURLs(t *testing.T, port int, path string) (urls []string) {
	t.Helper()
	pods, err := w.r.pods(t.Context(), "fairlead-forwarder")
	must.Succeed(t, err)
	for _, p := range pods {
		host := fmt.Sprintf("%s.forwarder", p.Name)
		w.ips[host] = p.Status.PodIP
		urls = append(urls, fmt.Sprintf("http://%s:%d%s", host, port, path))
	}
	if len(urls) == 0 {
		t.Fatal("there are no forwarders")
	}
	return urls
}

// bothEnforce has NetworkPolicies that drop what no object allows, and forwarders that deny what
// those cannot tell apart: ServiceAccounts, and the node's own network.
func (w *accessWorld) bothEnforce(t *testing.T) {
	w.waitCondition(t, v1alpha1.ConditionNetworkPoliciesWritten, "True", v1alpha1.ReasonWritten)
	w.waitCondition(t, v1alpha1.ConditionForwardersEnforce, "True", v1alpha1.ReasonEnforced)
	for _, url := range []string{w.api, w.db} {
		wantCalls(t, url, callDropped, w.far)
	}
	wantCalls(t, w.api, "200", w.web, w.job)
	wantCalls(t, w.db, "echo", w.web, w.job)
	wantCalls(t, w.api, "403", w.other, w.host)
	wantCalls(t, w.db, callReset, w.other, w.host)
	wantCalls(t, w.open, callDropped, w.web, w.far) // nothing selects it
	wantCalls(t, w.open, "403", w.host)
	for _, url := range w.forwarderURLs(t, 8080, "/metrics") {
		wantCalls(t, url, "200", w.far)
	}
	for _, url := range w.forwarderURLs(t, 8081, "/status") {
		wantCalls(t, url, callDropped, w.far)
	}
	w.wantForwardersReady(t)
}

// wantForwardersReady fails the test if the kubelet does not reach the forwarders.
func (w *accessWorld) wantForwardersReady(t *testing.T) {
	t.Helper()
	pods, err := w.r.pods(t.Context(), "fairlead-forwarder")
	must.Succeed(t, err)
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			if !s.Ready || s.RestartCount > 0 {
				t.Errorf("forwarder %s: ready %t, started again %d times", p.Name, s.Ready, s.RestartCount)
			}
		}
	}
}

// networkPoliciesAlone has forwarders that know no pods, so they leave it to NetworkPolicies who may
// call.
func (w *accessWorld) networkPoliciesAlone(t *testing.T) {
	w.waitCondition(t, v1alpha1.ConditionForwardersEnforce, "False", v1alpha1.ReasonNetworkPoliciesDecide)
	w.waitCondition(t, v1alpha1.ConditionNetworkPoliciesWritten, "True", v1alpha1.ReasonWritten)
	wantCalls(t, w.api, callDropped, w.far)
	wantCalls(t, w.db, callDropped, w.far)
	wantCalls(t, w.api, "200", w.web)
	wantCalls(t, w.db, "echo", w.web)
	wantCalls(t, w.open, "200", w.web, w.far, w.host)
	w.managerAway(t)
	w.closedFromTheStart(t)
	w.c.Kubectl(t, "-n", w.ns, "delete", "endpointaccess", "rule", "late")
	w.wantOpen(t, w.web, w.far, w.host)
	w.c.Eventually(t, 30*time.Second, "the policies of restricted ports gone", func(ctx context.Context) error {
		var list networkingv1.NetworkPolicyList
		if err := w.c.Client.List(ctx, &list, client.InNamespace(w.r.Namespace)); err != nil {
			return err
		}
		for _, p := range list.Items {
			if strings.Contains(p.Name, "-port-") {
				return fmt.Errorf("%s is there", p.Name)
			}
		}
		return nil
	})
	w.wantForwardersReady(t)
}

// managerAway changes the rule while no manager runs: what the NetworkPolicies still let through is
// denied, until a manager has written them.
func (w *accessWorld) managerAway(t *testing.T) {
	t.Helper()
	scale := func(replicas string) {
		w.c.Kubectl(t, "-n", w.r.Namespace, "scale", "deployment", w.r.Name+"-manager", "--replicas="+replicas)
	}
	scale("0")
	w.c.Eventually(t, time.Minute, "no manager", func(ctx context.Context) error {
		pods, err := w.r.pods(ctx, "fairlead-manager")
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%d managers run", len(pods))
		}
		return err
	})
	w.allow(t, fromPartner)
	if body := wantCalls(t, w.api, "403", w.web); !strings.Contains(body, "not written") {
		t.Errorf("the page names no reason: %q", body)
	}
	wantCalls(t, w.db, callReset, w.web)
	wantCalls(t, w.open, "200", w.web)
	scale("1")
	wantCalls(t, w.api, "200", w.far)
	wantCalls(t, w.api, callDropped, w.web)
	w.allow(t, labelledWeb, asBatch)
	wantCalls(t, w.api, "200", w.web)
	wantCalls(t, w.api, callDropped, w.far)
}

// closedFromTheStart adds an endpoint that an object selects already, and calls it as soon as it has
// an address: not even the first call reaches a forwarder.
func (w *accessWorld) closedFromTheStart(t *testing.T) {
	t.Helper()
	w.c.Apply(t, fmt.Sprintf(`
apiVersion: bindings.fairlead.dev/v1alpha1
kind: EndpointAccess
metadata: {name: late, namespace: %s}
spec: {endpoints: [late], from: [%s]}
`, w.ns, labelledWeb))
	host := "late." + w.ns
	w.r.Service.AgentOnly(t, "http", "1", "http://"+host)
	w.c.Eventually(t, 30*time.Second, "the Service of "+host, func(ctx context.Context) error {
		svc := &corev1.Service{}
		err := w.c.Client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "late"}, svc)
		w.ips[host] = svc.Spec.ClusterIP
		return err
	})
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); {
		if outcome, body := w.far.call(t.Context(), "http://"+host); outcome == "403" || outcome == "502" {
			t.Fatalf("a call reached a forwarder: %s %s", outcome, body)
		}
	}
	wantCalls(t, "http://"+host, "502", w.web) // no program listens at its upstream
	wantCalls(t, "http://"+host, callDropped, w.far)
}
