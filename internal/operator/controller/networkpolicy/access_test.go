// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/accesspolicy"
)

// randomAccess returns EndpointAccess objects of the namespaces demo and shop.
func randomAccess(random *rand.Rand) []v1alpha1.EndpointAccess {
	pick := func(n int) int { return random.IntN(n) }
	invalid := &metav1.LabelSelector{MatchLabels: map[string]string{"no name": "x"}}
	spaces := []*metav1.LabelSelector{nil, {}, inNamespace("demo"), {MatchLabels: map[string]string{"team": "t-shop"}},
		invalid}
	pods := []*metav1.LabelSelector{nil, {}, app("web"), invalid, {MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}}}
	accounts := [][]string{nil, {"web"}, {"other"}}
	var objects []v1alpha1.EndpointAccess
	for range pick(4) {
		o := v1alpha1.EndpointAccess{ObjectMeta: metav1.ObjectMeta{Namespace: []string{"demo", "shop"}[pick(2)],
			Name: string(rune('a' + len(objects)))}}
		o.Spec.Endpoints = []string{[]string{"api", "a*", "web"}[pick(3)]}
		if pick(3) == 0 {
			o.Spec.Ports = []int32{80}
		}
		for range pick(3) {
			o.Spec.From = append(o.Spec.From, v1alpha1.EndpointAccessPeer{NamespaceSelector: spaces[pick(len(spaces))],
				PodSelector: pods[pick(len(pods))], ServiceAccounts: accounts[pick(len(accounts))]})
		}
		objects = append(objects, o)
	}
	return objects
}

// TestNewAccess_AgreesWithForwarders checks, on random objects, that the policies let exactly those
// pods connect that forwarders admit, if ServiceAccounts are ignored, and no fewer if they are not.
func TestNewAccess_AgreesWithForwarders(t *testing.T) {
	t.Parallel()
	denied := 0
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		objects := randomAccess(random)
		byDefault := []endpointaccess.Default{endpointaccess.Allow, endpointaccess.Deny}[seed%2]
		l := testLayout()
		l.Closed = byDefault == endpointaccess.Deny
		endpoints := []v1alpha1.BoundEndpoint{
			bound("api", "demo", 80, 20000), bound("api", "demo", 81, 20001), bound("web", "demo", 80, 20002),
			bound("api", "shop", 80, 20003),
		}
		policies := l.policies(restrictedPorts(endpoints, NewAccess(objects, byDefault)))
		exact, widened := compile(objects, byDefault, false), compile(objects, byDefault, true)
		for _, b := range endpoints {
			for _, from := range testPods() {
				port := b.Spec.Ports[0]
				target := endpointaccess.TargetOf(b.Name, int(port.Port))
				connected := connects(t, policies, from, forwarderLabels, port.TargetPort)
				if want := widened.Decide(target, callerOf(from)).Allowed; connected != want {
					t.Fatalf("seed %d: %s connects to %s:%d: %v, want %v", seed, from.name, b.Name, port.Port,
						connected, want)
				}
				if exact.Decide(target, callerOf(from)).Allowed && !connected {
					t.Fatalf("seed %d: %s is admitted at %s:%d and cannot connect", seed, from.name, b.Name, port.Port)
				}
				if !connected {
					denied++
				}
			}
		}
	}
	if denied < 1000 {
		t.Errorf("only %d connections were denied", denied)
	}
}

func bound(service, namespace string, port, target int32) v1alpha1.BoundEndpoint {
	return v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Name: service + "." + namespace},
		Spec: v1alpha1.BoundEndpointSpec{Service: service, Namespace: namespace,
			Ports: []v1alpha1.BoundPort{{Port: port, TargetPort: target}}}}
}

// compile returns the rules of the objects, without their ServiceAccounts if they are widened.
func compile(
	objects []v1alpha1.EndpointAccess, byDefault endpointaccess.Default, widen bool,
) *endpointaccess.Rules {
	var policies []endpointaccess.Policy
	for i := range objects {
		p := accesspolicy.Of(objects[i].DeepCopy())
		for j := range p.Spec.From {
			if widen {
				p.Spec.From[j].ServiceAccounts = nil
			}
		}
		policies = append(policies, p)
	}
	return endpointaccess.Compile(policies, byDefault)
}

func callerOf(p testPod) *endpointaccess.Caller {
	if p.outsideOfClusters {
		return nil
	}
	return &endpointaccess.Caller{Namespace: p.namespace, NamespaceLabels: p.namespaceLabels, PodLabels: p.labels,
		ServiceAccount: "web"}
}

// TestRestrictedPorts_DoubledTargetIsClosed checks that a target port that two objects name is
// closed, whatever may be called of either.
func TestRestrictedPorts_DoubledTargetIsClosed(t *testing.T) {
	t.Parallel()
	endpoints := []v1alpha1.BoundEndpoint{bound("a", "demo", 80, 20000), bound("b", "demo", 80, 20000),
		bound("c", "demo", 80, 20001)}
	released := bound("d", "demo", 80, 20001)
	released.Spec.Ports[0].State = v1alpha1.StateReleased
	open := NewAccess(nil, endpointaccess.Allow)
	policies := testLayout().policies(restrictedPorts(append(endpoints, released), open))
	caller := testPod{name: "caller", namespace: "demo", labels: labels.Set{}}
	for port, want := range map[int32]bool{20000: false, 20001: true} {
		if got := connects(t, policies, caller, forwarderLabels, port); got != want {
			t.Errorf("connects to %d: %v, want %v", port, got, want)
		}
	}
}

// onlyNamespace is the only one whose objects were listed.
type onlyNamespace string

func (n onlyNamespace) Knows(namespace string) bool { return namespace == string(n) }

// TestNewPartialAccess_ClosesUnknownNamespaces checks that endpoints of a namespace whose objects
// could not be read are closed, whatever the default.
func TestNewPartialAccess_ClosesUnknownNamespaces(t *testing.T) {
	t.Parallel()
	rules := endpointaccess.Compile(nil, endpointaccess.Allow)
	access := NewPartialAccess(rules, nil, onlyNamespace("demo"))
	policies := testLayout().policies(restrictedPorts([]v1alpha1.BoundEndpoint{bound("api", "demo", 80, 20000),
		bound("api", "shop", 80, 20001)}, access))
	caller := testPod{name: "caller", namespace: "demo", labels: labels.Set{}}
	for port, want := range map[int32]bool{20000: true, 20001: false} {
		if got := connects(t, policies, caller, forwarderLabels, port); got != want {
			t.Errorf("connects to %d: %v, want %v", port, got, want)
		}
	}
}
