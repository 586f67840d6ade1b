// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// family is an IP family as nft names it: "ip" or "ip6".
type family string

var families = []family{"ip", "ip6"}

func familyOf(a netip.Addr) family {
	if a.Is4() {
		return "ip"
	}
	return "ip6"
}

// of returns those addresses that are of the family.
func (f family) of(addrs []netip.Addr) []string {
	var of []string
	for _, a := range addrs {
		if familyOf(a) == f {
			of = append(of, a.String())
		}
	}
	return of
}

// match is a part of a rule. The empty text matches every packet.
type match struct {
	family family // that the text is about; empty for both
	text   string
}

// allowRule is what ingress and egress rules of a NetworkPolicy have in common.
type allowRule struct {
	peers []networkingv1.NetworkPolicyPeer
	ports []networkingv1.NetworkPolicyPort
}

// podRules returns the rules of a pod that let packets through, or nil if no policy isolates it in
// the direction.
func (c compiler) podRules(d direction, p pod) ([]string, error) {
	var rules []string
	for _, policy := range c.policies {
		selected, err := selects(&policy.Spec.PodSelector, p.labels)
		if err != nil {
			return nil, fmt.Errorf("NetworkPolicy %s/%s: podSelector: %w", policy.Namespace, policy.Name, err)
		}
		if policy.Namespace != p.namespace || !selected || !isOfType(policy, d.policyType) {
			continue
		}
		if rules == nil { // a pod always reaches itself
			for _, f := range families {
				if own := f.of(p.addrs); len(own) > 0 {
					rules = append(rules, fmt.Sprintf("%s %s { %s } return", f, d.peer, strings.Join(own, ", ")))
				}
			}
		}
		for _, r := range rulesOf(policy, d.policyType) {
			allowed, err := c.allow(d, p, policy.Namespace, r)
			if err != nil {
				return nil, fmt.Errorf("NetworkPolicy %s/%s: %w", policy.Namespace, policy.Name, err)
			}
			for _, text := range allowed {
				rules = append(rules, strings.TrimSpace(text+" return")+" # "+policy.Namespace+"/"+policy.Name)
			}
		}
	}
	return rules, nil
}

// isOfType reports whether a policy isolates the pods that it selects in a direction. Without
// policyTypes it does for ingress, and for egress if it has rules for it.
func isOfType(p *networkingv1.NetworkPolicy, t networkingv1.PolicyType) bool {
	if len(p.Spec.PolicyTypes) == 0 {
		return t == networkingv1.PolicyTypeIngress || len(p.Spec.Egress) > 0
	}
	return slices.Contains(p.Spec.PolicyTypes, t)
}

func rulesOf(p *networkingv1.NetworkPolicy, t networkingv1.PolicyType) []allowRule {
	var rules []allowRule
	if t == networkingv1.PolicyTypeIngress {
		for _, r := range p.Spec.Ingress {
			rules = append(rules, allowRule{r.From, r.Ports})
		}
		return rules
	}
	for _, r := range p.Spec.Egress {
		rules = append(rules, allowRule{r.To, r.Ports})
	}
	return rules
}

// allow returns the packets that one rule lets through: every match of a peer with every one of a
// port, of the same family.
func (c compiler) allow(d direction, p pod, namespace string, r allowRule) ([]string, error) {
	peers, err := c.peers(d, namespace, r.peers)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, peer := range peers {
		for _, port := range c.ports(d, p, r.ports) {
			if peer.family == "" || port.family == "" || peer.family == port.family {
				texts = append(texts, strings.TrimSpace(peer.text+" "+port.text))
			}
		}
	}
	return texts, nil
}

// peers returns what matches any of the peers. No peers at all are every address, peers that select
// nothing are none.
func (c compiler) peers(d direction, namespace string, peers []networkingv1.NetworkPolicyPeer) ([]match, error) {
	if len(peers) == 0 {
		return []match{{}}, nil
	}
	var matches []match
	var addrs []netip.Addr
	for _, peer := range peers {
		if peer.IPBlock != nil {
			m, err := d.block(peer.IPBlock)
			if err != nil {
				return nil, err
			}
			matches = append(matches, m)
			continue
		}
		for _, p := range c.pods {
			selected, err := peerSelects(peer, namespace, p)
			if err != nil {
				return nil, err
			}
			if selected {
				addrs = append(addrs, p.addrs...)
			}
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	for _, f := range families {
		if of := f.of(addrs); len(of) > 0 {
			matches = append(matches, match{f, fmt.Sprintf("%s %s { %s }", f, d.peer, strings.Join(of, ", "))})
		}
	}
	return matches, nil
}

// peerSelects reports whether a peer that is no ipBlock selects a pod. Without a namespaceSelector
// it means pods of the policy's namespace.
func peerSelects(peer networkingv1.NetworkPolicyPeer, namespace string, p pod) (bool, error) {
	inNamespace := p.namespace == namespace
	if peer.NamespaceSelector != nil {
		var err error
		if inNamespace, err = selects(peer.NamespaceSelector, p.namespaceLabels); err != nil {
			return false, fmt.Errorf("namespaceSelector: %w", err)
		}
	}
	if peer.PodSelector == nil {
		return inNamespace, nil
	}
	selected, err := selects(peer.PodSelector, p.labels)
	if err != nil {
		return false, fmt.Errorf("podSelector: %w", err)
	}
	return inNamespace && selected, nil
}

func selects(selector *metav1.LabelSelector, set labels.Set) (bool, error) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set), err
}

// block matches the addresses of an ipBlock without its exceptions, which may overlap.
func (d direction) block(b *networkingv1.IPBlock) (match, error) {
	cidr, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return match{}, fmt.Errorf("ipBlock %q: %w", b.CIDR, err)
	}
	f := familyOf(cidr.Addr())
	text := fmt.Sprintf("%s %s %s", f, d.peer, cidr.Masked())
	for _, e := range b.Except {
		except, err := netip.ParsePrefix(e)
		if err != nil {
			return match{}, fmt.Errorf("ipBlock %q: except %q: %w", b.CIDR, e, err)
		}
		text += fmt.Sprintf(" %s %s != %s", f, d.peer, except.Masked())
	}
	return match{f, text}, nil
}

// ports returns what matches any of the ports. No ports at all are every protocol.
func (c compiler) ports(d direction, subject pod, ports []networkingv1.NetworkPolicyPort) []match {
	if len(ports) == 0 {
		return []match{{}}
	}
	var matches []match
	for _, port := range ports {
		protocol := corev1.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		nft := strings.ToLower(string(protocol))
		switch {
		case port.Port == nil:
			matches = append(matches, match{text: "meta l4proto " + nft})
		case port.Port.Type == intstr.Int && port.EndPort != nil:
			matches = append(matches, match{text: fmt.Sprintf("%s dport %d-%d", nft, port.Port.IntVal, *port.EndPort)})
		case port.Port.Type == intstr.Int:
			matches = append(matches, match{text: fmt.Sprintf("%s dport %d", nft, port.Port.IntVal)})
		case d == ingress:
			for _, number := range subject.portsNamed(port.Port.StrVal, protocol) {
				matches = append(matches, match{text: fmt.Sprintf("%s dport %d", nft, number)})
			}
		default:
			matches = append(matches, c.peersPorts(port.Port.StrVal, protocol)...)
		}
	}
	return matches
}

// peersPorts matches a named port of an egress rule, whose number is each destination's own.
func (c compiler) peersPorts(name string, protocol corev1.Protocol) []match {
	var matches []match
	for _, f := range families {
		var elements []string
		for _, p := range c.pods {
			for _, number := range p.portsNamed(name, protocol) {
				for _, a := range f.of(p.addrs) {
					elements = append(elements, fmt.Sprintf("%s . %d", a, number))
				}
			}
		}
		if len(elements) > 0 {
			matches = append(matches, match{f, fmt.Sprintf("%s daddr . %s dport { %s }", f,
				strings.ToLower(string(protocol)), strings.Join(elements, ", "))})
		}
	}
	return matches
}

// portsNamed returns the numbers that a pod's containers give a name, sorted and each once.
func (p pod) portsNamed(name string, protocol corev1.Protocol) []int32 {
	var numbers []int32
	for _, port := range p.ports {
		if port.Name == name && (port.Protocol == protocol || port.Protocol == "" && protocol == corev1.ProtocolTCP) {
			numbers = append(numbers, port.ContainerPort)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}
