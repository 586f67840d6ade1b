// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write testdata/ruleset.nft anew")

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	v := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), v); err != nil {
		t.Fatal(err)
	}
	return v
}

// world returns pods of three namespaces without policies: an api with two families that names the
// port "web", a client in each namespace, and a host-network pod.
func world(t *testing.T) Snapshot {
	t.Helper()
	var s Snapshot
	for name, team := range map[string]string{"demo": "red", "shop": "blue", "other": "blue"} {
		s.Namespaces = append(s.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{"team": team}}})
	}
	for _, text := range []string{`
metadata: {namespace: demo, name: api, labels: {app: api}}
spec:
  initContainers: [{name: sidecar, ports: [{name: dns, containerPort: 53, protocol: UDP}]}]
  containers:
  - {name: api, ports: [{name: web, containerPort: 8080}, {name: web, containerPort: 8080, protocol: UDP}]}
status: {phase: Running, podIPs: [{ip: 10.244.0.5}, {ip: "fd44::5"}]}`, `
metadata: {namespace: demo, name: client, labels: {app: client}}
status: {phase: Running, podIPs: [{ip: 10.244.0.6}]}`, `
metadata: {namespace: shop, name: client, labels: {app: client}}
spec: {containers: [{name: c, ports: [{name: web, containerPort: 9090, protocol: TCP}]}]}
status: {phase: Pending, podIPs: [{ip: 10.244.0.7}, {ip: "fd44::7"}]}`, `
metadata: {namespace: other, name: client, labels: {app: client, old: "yes"}}
status: {phase: Running, podIPs: [{ip: 10.244.0.8}]}`, `
metadata: {namespace: demo, name: host, labels: {app: client}}
spec: {hostNetwork: true}
status: {phase: Running, podIPs: [{ip: 10.99.0.2}]}`, `
metadata: {namespace: demo, name: starting, labels: {app: client}}
status: {phase: Pending}`} {
		s.Pods = append(s.Pods, parse[corev1.Pod](t, text))
	}
	return s
}

// chain returns the rules of a chain, without comments, or nil if there is none.
func chain(ruleset, name string) []string {
	_, after, found := strings.Cut(ruleset, "\tchain "+name+" {")
	if !found {
		return nil
	}
	body, _, _ := strings.Cut(after, "\n\t}\n")
	rules := []string{}
	for _, line := range strings.Split(body, "\n")[1:] {
		rule, _, _ := strings.Cut(line, " #")
		rules = append(rules, strings.TrimSpace(rule))
	}
	return rules
}

// ruleCase is a NetworkPolicy of demo and the chains of demo/api under it. Each begins with the rules
// by which a pod reaches itself and ends with a drop, which are left out here.
type ruleCase struct {
	name, spec      string
	ingress, egress []string
}

// notIsolated is instead of a chain that must not exist.
var notIsolated = []string{"not isolated"}

// peerCases are about types and peers.
func peerCases() []ruleCase {
	return []ruleCase{
		{"selecting nothing isolates nothing", `{podSelector: {matchLabels: {app: none}}}`, notIsolated,
			notIsolated},
		{"the empty policy denies ingress", `{podSelector: {}}`, nil, notIsolated},
		{"egress rules isolate egress, too", `{podSelector: {}, egress: [{}]}`, nil, []string{"return"}},
		{"policyTypes win over rules", `{podSelector: {}, policyTypes: [Egress], ingress: [{}]}`, notIsolated, nil},
		{"both types without rules", `{podSelector: {}, policyTypes: [Ingress, Egress]}`, nil, nil},
		{"an empty rule allows everything", `{podSelector: {}, ingress: [{}]}`, []string{"return"}, notIsolated},
		{"empty lists are missing ones", `{podSelector: {}, ingress: [{from: [], ports: []}]}`, []string{"return"},
			notIsolated},
		{"a podSelector is of the policy's namespace", `{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}`,
			[]string{"ip saddr { 10.244.0.5, 10.244.0.6 } return", "ip6 saddr { fd44::5 } return"}, notIsolated},
		{"a namespaceSelector is every pod there",
			`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: blue}}}]}]}`,
			[]string{"ip saddr { 10.244.0.7, 10.244.0.8 } return", "ip6 saddr { fd44::7 } return"}, notIsolated},
		{"both selectors of one peer must match", `{podSelector: {}, ingress: [{from: [
			{namespaceSelector: {matchLabels: {team: blue}}, podSelector: {matchLabels: {old: "yes"}}}]}]}`,
			[]string{"ip saddr { 10.244.0.8 } return"}, notIsolated},
		{"selectors of two peers unite", `{podSelector: {}, ingress: [{from: [
			{namespaceSelector: {matchLabels: {team: none}}}, {podSelector: {matchLabels: {app: client}}}]}]}`,
			[]string{"ip saddr { 10.244.0.6 } return"}, notIsolated},
		{"expressions", `{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchExpressions: [
			{key: app, operator: In, values: [client]}, {key: old, operator: DoesNotExist}]}}]}]}`,
			[]string{"ip saddr { 10.244.0.6, 10.244.0.7 } return", "ip6 saddr { fd44::7 } return"}, notIsolated},
		{"peers that select nothing allow nothing", `{podSelector: {}, ingress: [{from: [
			{podSelector: {matchLabels: {app: none}}}], ports: [{port: 80}]}]}`, nil, notIsolated},
	}
}

// portCases are about blocks and ports.
func portCases() []ruleCase {
	return []ruleCase{
		{"blocks with overlapping exceptions", `{podSelector: {}, ingress: [{from: [
			{ipBlock: {cidr: 10.244.0.1/16, except: [10.244.0.0/25, 10.244.0.6/32]}},
			{ipBlock: {cidr: "fd44::/64", except: ["fd44::5/128"]}}]}]}`,
			[]string{"ip saddr 10.244.0.0/16 ip saddr != 10.244.0.0/25 ip saddr != 10.244.0.6/32 return",
				"ip6 saddr fd44::/64 ip6 saddr != fd44::5/128 return"}, notIsolated},
		{"ports", `{podSelector: {}, ingress: [{ports: [{port: 80}, {port: 80, protocol: UDP}, {protocol: SCTP},
			{port: 8000, endPort: 8100}, {port: 8080}]}]}`,
			[]string{"tcp dport 80 return", "udp dport 80 return", "meta l4proto sctp return",
				"tcp dport 8000-8100 return", "tcp dport 8080 return"}, notIsolated},
		{"named ports of the pod, by protocol", `{podSelector: {}, ingress: [{ports: [{port: web}, {port: dns},
			{port: dns, protocol: UDP}, {port: none}]}]}`,
			[]string{"tcp dport 8080 return", "udp dport 53 return"}, notIsolated},
		{"each peer with each port", `{podSelector: {}, policyTypes: [Egress], egress: [{
			ports: [{port: 80}, {port: 81}],
			to: [{podSelector: {matchLabels: {app: client}}}, {ipBlock: {cidr: 10.99.0.0/24}}]}]}`, notIsolated,
			[]string{"ip daddr 10.99.0.0/24 tcp dport 80 return", "ip daddr 10.99.0.0/24 tcp dport 81 return",
				"ip daddr { 10.244.0.6 } tcp dport 80 return", "ip daddr { 10.244.0.6 } tcp dport 81 return"}},
		{"named ports of the destinations", `{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: web}],
			to: [{namespaceSelector: {matchLabels: {team: blue}}}]}]}`, notIsolated,
			[]string{
				"ip daddr { 10.244.0.7, 10.244.0.8 } " +
					"ip daddr . tcp dport { 10.244.0.5 . 8080, 10.244.0.7 . 9090 } return",
				"ip6 daddr { fd44::7 } ip6 daddr . tcp dport { fd44::5 . 8080, fd44::7 . 9090 } return"}},
	}
}

func TestCompile_Rules(t *testing.T) {
	t.Parallel()
	for _, tc := range slices.Concat(peerCases(), portCases()) {
		s := world(t)
		s.Policies = []*networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "p"},
			Spec: *parse[networkingv1.NetworkPolicySpec](t, strings.ReplaceAll(tc.spec, "\t", " "))}}
		ruleset, err := Compile(s)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		for d, want := range map[direction][]string{ingress: tc.ingress, egress: tc.egress} {
			got := chain(ruleset, d.chain+"10.244.0.5")
			whole := slices.Concat([]string{"ip " + d.peer + " { 10.244.0.5 } return",
				"ip6 " + d.peer + " { fd44::5 } return"}, want, []string{"drop"})
			if slices.Equal(want, notIsolated) {
				whole = nil
			}
			if !slices.Equal(got, whole) {
				t.Errorf("%s: the chain %s is\n%s\nwant\n%s", tc.name, d.chain, strings.Join(got, "\n"),
					strings.Join(whole, "\n"))
			}
		}
		if strings.Contains(ruleset, "10.99.0.2") {
			t.Errorf("%s: the host-network pod has a rule:\n%s", tc.name, ruleset)
		}
	}
}

// TestCompile_AddressOfTwoPods lets a pod end and another one have its address.
func TestCompile_AddressOfTwoPods(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		phase corev1.PodPhase
		age   time.Duration
		has   bool // whether the policy's pod still has the address
	}{
		{"ended", corev1.PodSucceeded, -time.Hour, false},
		{"failed", corev1.PodFailed, time.Hour, false},
		{"older", corev1.PodRunning, time.Hour, false},
		{"newer", corev1.PodRunning, -time.Hour, true},
	} {
		s, now := world(t), time.Now()
		api := s.Pods[0]
		api.Status.Phase, api.CreationTimestamp = tc.phase, metav1.NewTime(now.Add(-tc.age))
		s.Pods = append(s.Pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "heir", CreationTimestamp: metav1.NewTime(now)},
			Status:     corev1.PodStatus{PodIPs: api.Status.PodIPs}})
		s.Policies = []*networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "p"}}}
		ruleset, err := Compile(s)
		if err != nil {
			t.Fatal(err)
		}
		if has := chain(ruleset, "ingress-10.244.0.5") != nil; has != tc.has {
			t.Errorf("%s: isolated %t, want %t:\n%s", tc.name, has, tc.has, ruleset)
		}
		if n := strings.Count(ruleset, "10.244.0.5 : "); n != 2 { // one for each direction, or nft refuses the map
			t.Errorf("%s: the address is %d times in the maps:\n%s", tc.name, n, ruleset)
		}
	}
}

func TestCompile_NamesWrongPolicy(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0}}]}]}`: `demo/p: ipBlock "10.0.0.0": `,
		`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [x]}}]}]}`: `demo/p: ipBlock ` +
			`"10.0.0.0/8": except "x": `,
		`{podSelector: {matchExpressions: [{key: a, operator: Like}]}}`: `demo/p: podSelector: "Like" is not`,
		`{podSelector: {}, egress: [{to: [{namespaceSelector: {matchExpressions: [{key: a, operator: Like}]}}]}]}`: "" +
			`demo/p: namespaceSelector: "Like" is not`,
	} {
		s := world(t)
		s.Policies = []*networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "p"},
			Spec: *parse[networkingv1.NetworkPolicySpec](t, spec)}}
		if ruleset, err := Compile(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q:\n%s", spec, err, want, ruleset)
		}
	}
}

// TestCompile_Golden compares the whole ruleset of two policies, also when the lists come in another
// order. `go test -update` writes it.
func TestCompile_Golden(t *testing.T) {
	t.Parallel()
	s := world(t)
	for name, spec := range map[string]string{
		"api": `{podSelector: {matchLabels: {app: api}}, ingress: [
			{from: [{namespaceSelector: {matchLabels: {team: blue}}}], ports: [{port: web}]}]}`,
		"default-deny": `{podSelector: {}, policyTypes: [Ingress, Egress]}`,
	} {
		s.Policies = append(s.Policies, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name},
			Spec:       *parse[networkingv1.NetworkPolicySpec](t, strings.ReplaceAll(spec, "\t", " "))})
	}
	got, err := Compile(s)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(s.Namespaces)
	slices.Reverse(s.Pods)
	slices.Reverse(s.Policies)
	if again, err := Compile(s); err != nil || again != got {
		t.Errorf("another order of the lists gives (%v)\n%s", err, again)
	}
	if *update {
		if err := os.WriteFile("testdata/ruleset.nft", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/ruleset.nft")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the ruleset is\n%s\nwant testdata/ruleset.nft", got)
	}
}
