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
)

// forwarderURLs are the addresses of a port of the forwarders.
func (w *accessWorld) forwarderURLs(t *testing.T, port int, path string) (urls []string) {
	t.Helper()
	pods, err := w.r.pods(t.Context(), "fairlead-forwarder")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			if !s.Ready || s.RestartCount > 0 {
				t.Errorf("forwarder %s: ready %t, started again %d times", p.Name, s.Ready, s.RestartCount)
			}
		}
	}
}

// networkPoliciesAlone has forwarders that know no pods, so they deny all calls of what is selected
// that NetworkPolicies let through, and condition and page name the remedy.
func (w *accessWorld) networkPoliciesAlone(t *testing.T) {
	w.waitCondition(t, v1alpha1.ConditionForwardersEnforce, "False", v1alpha1.ReasonPodIdentityDisabled)
	w.waitCondition(t, v1alpha1.ConditionNetworkPoliciesWritten, "True", v1alpha1.ReasonWritten)
	wantCalls(t, w.api, callDropped, w.far)
	wantCalls(t, w.db, callDropped, w.far)
	if body := wantCalls(t, w.api, "403", w.web); !strings.Contains(body, "podIdentity.enabled") {
		t.Errorf("the page names no remedy: %q", body)
	}
	wantCalls(t, w.open, "200", w.web, w.far, w.host)
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
		if outcome, body := w.far.call(t.Context(), "http://"+host); outcome == "403" {
			t.Fatalf("a call reached a forwarder: %s", body)
		}
	}
	wantCalls(t, "http://"+host, "403", w.web)
	wantCalls(t, "http://"+host, callDropped, w.far)
}
