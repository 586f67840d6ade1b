// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

const (
	nameLabel     = "app.kubernetes.io/name"
	instanceLabel = "app.kubernetes.io/instance"
	// managerName is the value of app.kubernetes.io/name on the managers' pods.
	managerName = "fairlead-manager"
)

// Layout holds what the policies contain besides the ports' peers.
type Layout struct {
	Installation installation.Installation
	installation.ForwarderPods
	// FirstPort and LastPort are the ends of the range of target ports.
	FirstPort, LastPort int32
	// HealthPort is where forwarders serve their status, for the managers. MetricsPort is open to
	// all; 0: there are no metrics.
	HealthPort, MetricsPort int32
	// Closed closes target ports that no BoundEndpoint has, and those that nothing restricts.
	Closed bool
}

// restrictedPort is a target port that only its peers may connect to.
type restrictedPort struct {
	target   int32
	hostname string
	// peers always have a namespaceSelector: without one a peer would be in the namespace of the
	// policy, which is the operator's. No peers: the port is closed.
	peers []networkingv1.NetworkPolicyPeer
}

// baseName returns the name of the base policy.
func (l Layout) baseName() string { return l.Installation.Release + "-forwarders" }

// portName returns the name of the policy of a target port.
func (l Layout) portName(target int32) string {
	return l.Installation.Release + "-port-" + strconv.Itoa(int(target))
}

// base returns the policy that isolates the forwarders: it opens metrics and status, and the target
// ports that are not restricted.
func (l Layout) base(restricted []restrictedPort, owners []metav1.OwnerReference) *networkingv1.NetworkPolicy {
	open := openRanges(l.FirstPort, l.LastPort, restricted)
	if l.Closed {
		open = nil
	}
	if l.MetricsPort != 0 {
		open = append(open, policyPort(l.MetricsPort))
	}
	var rules []networkingv1.NetworkPolicyIngressRule
	if len(open) > 0 { // a rule without ports opens all
		rules = append(rules, networkingv1.NetworkPolicyIngressRule{Ports: open})
	}
	managers := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{nameLabel: managerName, instanceLabel: l.ForwarderInstance}}}
	rules = append(rules, networkingv1.NetworkPolicyIngressRule{
		Ports: []networkingv1.NetworkPolicyPort{policyPort(l.HealthPort)},
		From:  []networkingv1.NetworkPolicyPeer{managers},
	})
	return l.newPolicy(l.baseName(), rules, owners)
}

// portPolicy returns the policy that opens a restricted port to its peers, nil if it has none: the
// base policy isolates the forwarders.
func (l Layout) portPolicy(p restrictedPort, owners []metav1.OwnerReference) *networkingv1.NetworkPolicy {
	if len(p.peers) == 0 { // a rule without peers would open the port to all
		return nil
	}
	policy := l.newPolicy(l.portName(p.target), []networkingv1.NetworkPolicyIngressRule{{
		Ports: []networkingv1.NetworkPolicyPort{policyPort(p.target)}, From: distinctPeers(p.peers),
	}}, owners)
	policy.Annotations[installation.AnnotationHostname] = p.hostname
	return policy
}

func (l Layout) newPolicy(
	name string, rules []networkingv1.NetworkPolicyIngressRule, owners []metav1.OwnerReference,
) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Installation.Namespace, Name: name,
			OwnerReferences: owners},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: l.PodLabels()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     rules,
		},
	}
	l.Installation.Mark(p)
	return p
}

func policyPort(port int32) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: new(corev1.ProtocolTCP), Port: new(intstr.FromInt32(port))}
}

// openRanges returns the ports from first to last that are not restricted, as few ranges.
func openRanges(first, last int32, restricted []restrictedPort) []networkingv1.NetworkPolicyPort {
	var open []networkingv1.NetworkPolicyPort
	add := func(from, to int32) {
		if from > to {
			return
		}
		p := policyPort(from)
		if to > from {
			p.EndPort = new(to)
		}
		open = append(open, p)
	}
	next := first
	for _, target := range slices.Sorted(targets(restricted)) {
		if target < next || target > last {
			continue
		}
		add(next, target-1)
		next = target + 1
	}
	add(next, last)
	return open
}

func targets(ports []restrictedPort) func(yield func(int32) bool) {
	return func(yield func(int32) bool) {
		for _, p := range ports {
			if !yield(p.target) {
				return
			}
		}
	}
}

// distinctPeers returns each peer once, in an order that does not depend on the input's.
func distinctPeers(peers []networkingv1.NetworkPolicyPeer) []networkingv1.NetworkPolicyPeer {
	byText := make(map[string]networkingv1.NetworkPolicyPeer, len(peers))
	for _, peer := range peers {
		text, err := json.Marshal(peer)
		if err != nil {
			text = fmt.Append(nil, peer) // cannot happen: a peer has only strings, lists and maps
		}
		byText[string(text)] = peer
	}
	distinct := make([]networkingv1.NetworkPolicyPeer, 0, len(byText))
	for _, text := range slices.Sorted(maps.Keys(byText)) {
		distinct = append(distinct, byText[text])
	}
	return distinct
}

// repaired returns live with the desired content, and whether that is a change. Other labels and
// annotations stay.
func repaired(live, desired *networkingv1.NetworkPolicy) (*networkingv1.NetworkPolicy, bool) {
	next := live.DeepCopy()
	next.OwnerReferences = desired.OwnerReferences
	next.Spec = *desired.Spec.DeepCopy()
	for key, value := range desired.Labels {
		metav1.SetMetaDataLabel(&next.ObjectMeta, key, value)
	}
	for key, value := range desired.Annotations {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, value)
	}
	return next, !equality.Semantic.DeepEqual(live, next)
}
