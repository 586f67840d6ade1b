// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func testLayout() Layout {
	return Layout{Installation: installation.Installation{Namespace: "fairlead", Release: "blue"},
		ForwarderPods: installation.ForwarderPods{ForwarderName: "fairlead-forwarder",
			ForwarderInstance: "blue"}, FirstPort: 20000, LastPort: 20009, HealthPort: 8081, MetricsPort: 8080}
}

// testPod is a caller.
type testPod struct {
	name              string
	namespace         string
	namespaceLabels   labels.Set
	labels            labels.Set
	outsideOfClusters bool // an address that is no pod's
}

// testPods are callers of every kind that peers tell apart.
func testPods() []testPod {
	var all []testPod
	for _, ns := range []string{"demo", "shop", "fairlead"} {
		nsLabels := labels.Set{corev1NameLabel: ns, "team": "t-" + ns}
		for _, app := range []string{"web", "batch"} {
			all = append(all, testPod{ns + "/" + app, ns, nsLabels, labels.Set{"app": app}, false})
		}
		all = append(all, testPod{ns + "/bare", ns, nsLabels, nil, false})
	}
	manager := labels.Set{nameLabel: managerName, instanceLabel: "blue"}
	other := labels.Set{nameLabel: managerName, instanceLabel: "green"}
	return append(all,
		testPod{"manager", "fairlead", labels.Set{corev1NameLabel: "fairlead"}, manager, false},
		testPod{"manager of another release", "fairlead", labels.Set{corev1NameLabel: "fairlead"}, other, false},
		testPod{"pod with the manager's labels", "demo", labels.Set{corev1NameLabel: "demo"}, manager, false},
		testPod{"outside", "", nil, nil, true})
}

const corev1NameLabel = "kubernetes.io/metadata.name"

// connects evaluates NetworkPolicies naively, as the API documents them: whether the pod may connect
// to a port of a pod with the labels in the policies' namespace.
func connects(t *testing.T, policies []*networkingv1.NetworkPolicy, from testPod, to labels.Set, port int32) bool {
	t.Helper()
	isolated := false
	for _, p := range policies {
		ingress := slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		if !ingress || !selects(t, &p.Spec.PodSelector, to) {
			continue
		}
		isolated = true
		for _, rule := range p.Spec.Ingress {
			if matchesPort(rule.Ports, port) && matchesPeer(t, rule.From, from, p.Namespace) {
				return true
			}
		}
	}
	return !isolated
}

func matchesPort(ports []networkingv1.NetworkPolicyPort, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		last := p.Port.IntVal
		if p.EndPort != nil {
			last = *p.EndPort
		}
		return p.Port.IntVal <= port && port <= last
	})
}

func matchesPeer(t *testing.T, peers []networkingv1.NetworkPolicyPeer, from testPod, namespace string) bool {
	t.Helper()
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		switch {
		case p.IPBlock != nil || p.PodSelector == nil && p.NamespaceSelector == nil:
			t.Fatalf("a peer without selectors: %+v", p)
		case from.outsideOfClusters:
			return false
		case p.NamespaceSelector == nil && from.namespace != namespace:
			return false
		case p.NamespaceSelector != nil && !selects(t, p.NamespaceSelector, from.namespaceLabels):
			return false
		}
		return p.PodSelector == nil || selects(t, p.PodSelector, from.labels)
	})
}

func selects(t *testing.T, selector *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	must.Succeed(t, err)
	return s.Matches(set)
}

// policies returns all policies of a layout.
func (l Layout) policies(restricted []restrictedPort) []*networkingv1.NetworkPolicy {
	all := []*networkingv1.NetworkPolicy{l.base(restricted, []metav1.OwnerReference{{Name: "anchor"}})}
	for _, p := range restricted {
		if policy := l.portPolicy(p, []metav1.OwnerReference{{Name: "anchor"}}); policy != nil {
			all = append(all, policy)
		}
	}
	return all
}

func inNamespace(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{corev1NameLabel: name}}
}

func app(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

var forwarderLabels = labels.Set{nameLabel: "fairlead-forwarder", instanceLabel: "blue", "pod-template-hash": "1"}

// TestLayout_IntendedPeersConnect checks, for random restrictions, that at every port of the range
// exactly the intended pods connect, and that metrics and status are as without restrictions.
func TestLayout_IntendedPeersConnect(t *testing.T) {
	t.Parallel()
	selectors := []*metav1.LabelSelector{{}, app("web"), nil,
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}}
	spaces := []*metav1.LabelSelector{{}, inNamespace("demo"), inNamespace("fairlead"),
		{MatchLabels: map[string]string{"team": "t-shop"}}, {MatchLabels: map[string]string{"team": "nobody"}}}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		l := testLayout()
		l.Closed = seed%4 == 0
		l.MetricsPort *= int32(seed % 3 & 1)
		byTarget := map[int32][]networkingv1.NetworkPolicyPeer{}
		var restricted []restrictedPort
		for target := l.FirstPort; target <= l.LastPort; target++ {
			if random.IntN(2) == 0 {
				continue
			}
			var peers []networkingv1.NetworkPolicyPeer
			for range random.IntN(4) {
				peers = append(peers, networkingv1.NetworkPolicyPeer{
					NamespaceSelector: spaces[random.IntN(len(spaces))],
					PodSelector:       selectors[random.IntN(len(selectors))]})
			}
			byTarget[target] = peers
			restricted = append(restricted, restrictedPort{target, "api.demo", peers})
		}
		random.Shuffle(len(restricted), func(i, j int) { restricted[i], restricted[j] = restricted[j], restricted[i] })
		policies := l.policies(restricted)
		for _, from := range testPods() {
			for port := l.FirstPort - 1; port <= l.LastPort+1; port++ {
				peers, isRestricted := byTarget[port]
				want := port >= l.FirstPort && port <= l.LastPort && !l.Closed
				if isRestricted {
					want = len(peers) > 0 && matchesPeer(t, peers, from, "none")
				}
				if got := connects(t, policies, from, forwarderLabels, port); got != want {
					t.Fatalf("seed %d: %s connects to %d: %v, want %v", seed, from.name, port, got, want)
				}
			}
			if got, want := connects(t, policies, from, forwarderLabels, 8080), l.MetricsPort != 0; got != want {
				t.Fatalf("seed %d: %s connects to metrics: %v, want %v", seed, from.name, got, want)
			}
			if got, want := connects(t, policies, from, forwarderLabels, 8081), from.name == "manager"; got != want {
				t.Fatalf("seed %d: %s connects to status: %v, want %v", seed, from.name, got, want)
			}
		}
	}
}

// TestLayout_OtherPodsNotIsolated checks that the policies concern the release's forwarders only.
func TestLayout_OtherPodsNotIsolated(t *testing.T) {
	t.Parallel()
	policies := testLayout().policies([]restrictedPort{{20000, "api.demo",
		[]networkingv1.NetworkPolicyPeer{{NamespaceSelector: inNamespace("demo")}}}})
	for _, to := range []labels.Set{
		{nameLabel: "fairlead-forwarder", instanceLabel: "green"},
		{nameLabel: managerName, instanceLabel: "blue"}, {},
	} {
		if !connects(t, policies, testPods()[0], to, 1) {
			t.Errorf("pods with %v are isolated", to)
		}
	}
}

func TestLayout_BaseRanges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		restricted []int32
		closed     bool
		want       string
	}{
		{nil, false, "20000-20009 8080"},
		{[]int32{20005}, false, "20000-20004 20006-20009 8080"},
		{[]int32{20000, 20009}, false, "20001-20008 8080"},
		{[]int32{20008, 20001, 20002}, false, "20000 20003-20007 20009 8080"},
		{[]int32{20008, 20008, 19999, 20010, 30000}, false, "20000-20007 20009 8080"},
		{[]int32{20000, 20001, 20002, 20003, 20004, 20005, 20006, 20007, 20008, 20009}, false, "8080"},
		{[]int32{20005}, true, "8080"},
	} {
		l := testLayout()
		l.Closed = tt.closed
		var restricted []restrictedPort
		for _, target := range tt.restricted {
			restricted = append(restricted, restrictedPort{target: target})
		}
		var got []string
		for _, p := range l.base(restricted, nil).Spec.Ingress[0].Ports {
			text := p.Port.String()
			if p.EndPort != nil {
				text += fmt.Sprintf("-%d", *p.EndPort)
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("without %v: %v, want %s", tt.restricted, got, tt.want)
		}
	}
}

// TestLayout_Deterministic checks that the order of peers changes nothing, so that nothing is
// written because of it.
func TestLayout_Deterministic(t *testing.T) {
	t.Parallel()
	peers := []networkingv1.NetworkPolicyPeer{{NamespaceSelector: inNamespace("demo")},
		{NamespaceSelector: inNamespace("shop"), PodSelector: app("web")}, {NamespaceSelector: inNamespace("demo")}}
	l := testLayout()
	first := l.portPolicy(restrictedPort{20000, "api.demo", peers}, nil)
	slices.Reverse(peers)
	again := l.portPolicy(restrictedPort{20000, "api.demo", peers}, nil)
	if _, different := repaired(first, again); different || len(first.Spec.Ingress[0].From) != 2 {
		t.Errorf("%+v\n%+v", first.Spec, again.Spec)
	}
	if first.Name != "blue-port-20000" || !l.Installation.Owns(first) {
		t.Errorf("%+v", first.ObjectMeta)
	}
}
