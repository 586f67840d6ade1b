// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package networkpolicy enforces NetworkPolicies in the test cluster, whose CNI plugins do not: it
// is test equipment, not a part of the product. NetworkPolicies, pods and namespaces come in from
// the API server; one nftables table goes out to the kernel of the node's network namespace. Compile
// is the pure step between both, Run the watch around it.
//
// The node has one network, so the rules see every packet of every pod after Services were
// translated to pods. Connections are tracked: replies and established connections pass, so a change
// holds for new connections. Traffic of the node's own processes, host-network pods among them, is
// never filtered, and selectors match no host-network pod. Addresses of pods' interfaces that no
// running pod has in the API are dropped, so that a pod is isolated from its first packet on. Source
// addresses that a privileged pod forges are not detected.
package networkpolicy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Table is the name of the nftables table, of the family inet.
const Table = "fairlead-test-network-policies"

// Snapshot is the state of a cluster at one moment, in any order.
type Snapshot struct {
	Namespaces []*corev1.Namespace
	Pods       []*corev1.Pod
	Policies   []*networkingv1.NetworkPolicy
}

// pod is a pod that has a network of its own and runs, or may run.
type pod struct {
	namespace, name         string
	labels, namespaceLabels labels.Set
	addrs                   []netip.Addr // at least one
	ports                   []corev1.ContainerPort
}

// compiler holds what all rules are made from; pods and policies are sorted by namespace and name.
type compiler struct {
	pods     []pod
	policies []*networkingv1.NetworkPolicy
}

// direction is one of the two policy types, and the words that nft has for it.
type direction struct {
	policyType networkingv1.PolicyType
	chain      string // prefix of the chains of isolated pods
	peer, own  string // fields of the packet that hold the peer's address and the pod's
}

var (
	ingress = direction{networkingv1.PolicyTypeIngress, "ingress-", "saddr", "daddr"}
	egress  = direction{networkingv1.PolicyTypeEgress, "egress-", "daddr", "saddr"}
)

// Compile returns a script for nft that replaces the table in one transaction. The text depends on
// nothing but the snapshot's content. The error names a policy that the API server would refuse.
func Compile(s Snapshot) (string, error) {
	c := compiler{pods: runningPods(s), policies: slices.Clone(s.Policies)}
	slices.SortFunc(c.policies, func(a, b *networkingv1.NetworkPolicy) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var chains strings.Builder
	isolated := map[direction]map[string]bool{ingress: {}, egress: {}} // by chain
	for _, p := range c.pods {
		for _, d := range []direction{egress, ingress} {
			rules, err := c.podRules(d, p)
			if err != nil {
				return "", err
			}
			if rules == nil {
				continue
			}
			isolated[d][d.chainOf(p)] = true
			fmt.Fprintf(&chains, "\tchain %s { # %s/%s\n\t\t%s\n\t}\n", d.chainOf(p), p.namespace, p.name,
				strings.Join(append(rules, "drop"), "\n\t\t"))
		}
	}
	return fmt.Sprintf(`add table inet %[1]s
delete table inet %[1]s
table inet %[1]s {
%[2]s	chain from-pods {
%[3]s		iifname "veth*" drop
	}
	chain to-pods {
%[4]s		oifname "veth*" drop
	}
	chain forward {
		type filter hook forward priority filter; policy accept;
		ct state established,related accept
		jump from-pods
		jump to-pods
	}
	chain input {
		type filter hook input priority filter; policy accept;
		ct state established,related accept
		icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } accept
		jump from-pods
	}
}
`, Table, chains.String(), c.dispatch(egress, `iifname "veth*"`, isolated[egress]),
		c.dispatch(ingress, `oifname "veth*"`, isolated[ingress])), nil
}

// chainOf returns the name of the chain of a pod, which no other running pod has.
func (d direction) chainOf(p pod) string {
	return d.chain + strings.ReplaceAll(p.addrs[0].String(), ":", "_") // nft takes no colons in names
}

// dispatch returns the rules that send packets to the chains of isolated pods, and back to the
// caller those of the other pods. Addresses that are not listed fall through.
func (c compiler) dispatch(d direction, from string, isolated map[string]bool) string {
	var b strings.Builder
	for _, f := range families {
		var verdicts []string
		for _, p := range c.pods {
			for _, a := range f.of(p.addrs) {
				verdict := "return"
				if isolated[d.chainOf(p)] {
					verdict = "goto " + d.chainOf(p)
				}
				verdicts = append(verdicts, a+" : "+verdict)
			}
		}
		if len(verdicts) > 0 {
			fmt.Fprintf(&b, "\t\t%s %s %s vmap { %s }\n", from, f, d.own, strings.Join(verdicts, ", "))
		}
	}
	return b.String()
}

// runningPods returns the pods that have addresses of their own, sorted by namespace and name. Of two
// pods with one address the later one has it: the other's end has not been reported yet.
func runningPods(s Snapshot) []pod {
	namespaces := map[string]labels.Set{}
	for _, ns := range s.Namespaces {
		namespaces[ns.Name] = ns.Labels
	}
	latest := slices.Clone(s.Pods)
	slices.SortFunc(latest, func(a, b *corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Name, b.Name))
	})
	taken := map[netip.Addr]bool{}
	var pods []pod
	for _, p := range latest {
		if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		one := pod{namespace: p.Namespace, name: p.Name, labels: p.Labels, namespaceLabels: namespaces[p.Namespace]}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil && !taken[a] {
				taken[a] = true
				one.addrs = append(one.addrs, a)
			}
		}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			one.ports = append(one.ports, c.Ports...)
		}
		if len(one.addrs) > 0 {
			pods = append(pods, one)
		}
	}
	slices.SortFunc(pods, func(a, b pod) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return pods
}
