// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// wantOutcomes waits until what should pass passes, and what should not is dropped.
func (w *policyWorld) wantOutcomes(t *testing.T, pass, drop string) {
	t.Helper()
	want := map[string]string{}
	for _, q := range strings.Fields(pass) {
		want[q] = "yes"
	}
	for _, q := range strings.Fields(drop) {
		want[q] = "dropped"
	}
	questions := slices.Sorted(maps.Keys(want))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		got := w.outcomes(questions)
		if maps.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			for _, q := range questions {
				if got[q] != want[q] {
					t.Errorf("%s: %q, want %q", q, got[q], want[q])
				}
			}
			return
		}
	}
}

// apply replaces all NetworkPolicies by those of "NAMESPACE SPEC". $KEY/4 and $KEY/6 in a spec are
// the addresses of a pod as blocks of one.
func (w *policyWorld) apply(t *testing.T, policies ...string) {
	t.Helper()
	w.kubectl(t, "", "delete", "networkpolicies", "--all", "-A")
	var manifest strings.Builder
	for i, p := range policies {
		namespace, spec, _ := strings.Cut(p, " ")
		for key, addrs := range w.addrs {
			spec = strings.ReplaceAll(spec, "$"+key+"/4", addrs[0]+"/32")
			spec = strings.ReplaceAll(spec, "$"+key+"/6", addrs[len(addrs)-1]+map[bool]string{true: "/32",
				false: "/128"}[len(addrs) == 1])
		}
		fmt.Fprintf(&manifest, "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"+
			"metadata: {namespace: %s, name: p%d}\nspec: %s\n", namespace, i, strings.ReplaceAll(spec, "\t", " "))
	}
	if len(policies) > 0 {
		w.kubectl(t, manifest.String(), "create", "-f", "-")
	}
}

// hold starts one busy connection between two pods' networks in the node, and returns how it ended.
func (w *policyWorld) hold(t *testing.T, from, addr string) (ended func() string) {
	t.Helper()
	namespace, name, _ := strings.Cut(from, "/")
	cmd := w.command("exec", "--", "kubectl", "-n", namespace, "exec", name, "-c", "http", "--", "/nettool", "hold",
		"-for", "4s", addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	lines.Scan() // "held for 1 lines"
	return func() string {
		last := lines.Text()
		for lines.Scan() {
			last = lines.Text()
		}
		_ = cmd.Wait() // what it printed tells
		timer.Stop()
		return last
	}
}

// notReady lists the pods of a namespace that are not Ready, or whose containers were started again.
func (w *policyWorld) notReady(t *testing.T, namespace string) []string {
	t.Helper()
	var pods struct {
		Items []struct {
			Metadata struct{ Name string }
			Status   struct {
				ContainerStatuses []struct {
					Ready        bool
					RestartCount int
				}
			}
		}
	}
	out := w.kubectl(t, "", "-n", namespace, "get", "pods", "-o", "json")
	if err := json.Unmarshal([]byte(out), &pods); err != nil {
		t.Fatal(err)
	}
	var not []string
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			if !c.Ready || c.RestartCount > 0 {
				not = append(not, p.Metadata.Name)
			}
		}
	}
	return slices.Compact(not)
}

// TestCluster_NetworkPolicies holds the enforcer to scenarios, each with its policies alone, and
// then to what changes while connections and pods are there.
func TestCluster_NetworkPolicies(t *testing.T) {
	w := newPolicyWorld(t)
	for _, s := range slices.Concat(isolating(), choosing(), narrowing()) {
		t.Run(s.name, func(t *testing.T) {
			w.apply(t, s.policies...)
			w.wantOutcomes(t, s.pass, s.drop)
		})
	}
	t.Run("without policies everything passes", func(t *testing.T) {
		w.apply(t)
		w.wantOutcomes(t, "a/one>b/one:8080 b/two>a/two:9090 a/one>a/host:18080 a/one>dns:53/udp a/one>service:80", "")
	})
	t.Run("labels of pods and namespaces count as they change", w.followsLabels)
	t.Run("established connections stay, new ones follow", w.keepsConnections)
	t.Run("a pod is isolated from its start", w.isolatesStart)
	t.Run("rules stay while the enforcer is away", w.survivesKill)
	t.Run("probes of the kubelet always pass", func(t *testing.T) {
		w.apply(t, `a {podSelector: {}, policyTypes: [Ingress, Egress]}`)
		w.wantOutcomes(t, "a/host>a/one:8080", "b/one>a/one:8080")
		time.Sleep(3 * time.Second) // a failed probe is known after one or two seconds
		if not := w.notReady(t, "a"); len(not) > 0 {
			t.Errorf("not Ready, or started again: %v", not)
		}
	})
}

func (w *policyWorld) followsLabels(t *testing.T) {
	w.apply(t, `a {podSelector: {matchLabels: {app: one}}, ingress: [{from: [
		{namespaceSelector: {matchLabels: {team: blue}}, podSelector: {matchLabels: {tier: front}}}]}]}`)
	w.wantOutcomes(t, "b/one>a/two:8080", "b/one>a/one:8080 c/one>a/one:8080")
	w.kubectl(t, "", "-n", "b", "label", "pod", "one", "tier=front")
	w.wantOutcomes(t, "b/one>a/one:8080", "c/one>a/one:8080")
	w.kubectl(t, "", "label", "namespace", "b", "team=red", "--overwrite")
	w.wantOutcomes(t, "b/one>a/two:8080", "b/one>a/one:8080")
	w.kubectl(t, "", "label", "namespace", "b", "team=blue", "--overwrite")
	w.wantOutcomes(t, "b/one>a/one:8080", "c/one>a/one:8080")
	w.kubectl(t, "", "-n", "a", "label", "pod", "two", "app=one", "--overwrite")
	w.wantOutcomes(t, "b/one>a/two:8080", "c/one>a/two:8080")
	w.kubectl(t, "", "-n", "a", "label", "pod", "two", "app=two", "--overwrite")
	w.wantOutcomes(t, "c/one>a/two:8080", "c/one>a/one:8080")
}

func (w *policyWorld) keepsConnections(t *testing.T) {
	w.apply(t)
	w.wantOutcomes(t, "b/one>a/two:8080", "")
	ended := w.hold(t, "b/one", w.addrs["a/two"][0]+":7070")
	w.apply(t, `a {podSelector: {}, policyTypes: [Ingress, Egress]}`,
		`b {podSelector: {}, policyTypes: [Ingress, Egress]}`)
	w.wantOutcomes(t, "b/one>b/one:8080", "b/one>a/two:7070")
	if last := ended(); !strings.HasPrefix(last, "whole after") {
		t.Errorf("the connection of before ended with %q", last)
	}
}

// isolatesStart starts a pod that asks from its first instant on, as fast as it can.
func (w *policyWorld) isolatesStart(t *testing.T) {
	w.apply(t, `c {podSelector: {matchLabels: {app: hasty}}, policyTypes: [Egress]}`)
	w.wantOutcomes(t, "c/one>a/one:8080", "")
	w.kubectl(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {namespace: c, name: hasty, labels: {app: hasty}}
spec:
  restartPolicy: Never
  containers:
  - name: ask
    image: fairlead.test/curl:1
    command:
    - bash
    - -c
    - for ((i=0; i<30; i++)); do curl -s -m 0.1 -o /dev/null http://%s:8080/; echo exit code $?; done
`, w.addrs["a/one"][0]), "create", "-f", "-")
	w.kubectl(t, "", "-n", "c", "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/hasty", "--timeout=30s")
	out := w.kubectl(t, "", "-n", "c", "logs", "hasty")
	if strings.Count(out, "exit code 28\n") != 30 {
		t.Errorf("a pod whose egress is denied got through, or did not ask:\n%s", out)
	}
}

func (w *policyWorld) survivesKill(t *testing.T) {
	w.apply(t, `a {podSelector: {matchLabels: {app: one}}}`)
	w.wantOutcomes(t, "b/one>a/two:8080", "b/one>a/one:8080")
	w.want(0, "", "exec", "--", "sh", "-c", `kill -9 "$(pgrep -of 'network-policies /')"`)
	w.wantOutcomes(t, "b/one>a/two:8080", "b/one>a/one:8080")
	w.apply(t, `a {podSelector: {matchLabels: {app: two}}}`)
	w.wantOutcomes(t, "b/one>a/one:8080", "b/one>a/two:8080")
}
