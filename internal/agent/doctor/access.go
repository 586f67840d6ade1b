// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/path"
)

// endpointAccess is an EndpointAccess object.
type endpointAccess struct {
	Metadata meta                `json:"metadata"`
	Spec     endpointaccess.Spec `json:"spec"`
}

// accessStatus is what a forwarder's /status answers about EndpointAccess objects.
type accessStatus struct {
	PodIdentity     bool   `json:"pod_identity"`
	NetworkPolicies bool   `json:"network_policies"`
	Default         string `json:"default"`
	// Policies are the digests of the namespaces' objects, as endpointaccess.Digest returns them.
	Policies map[string]string `json:"policies"`
}

// accessCheck decides whether the pod may call, from the same objects as forwarders.
type accessCheck struct {
	*cluster
	fromPod    string // fromPod is Options.FromPod.
	target     endpointaccess.Target
	forwarders *forwarders
	policies   []endpointaccess.Policy
	status     *accessStatus // a forwarder's; nil: none could be asked
	asked      string        // its pod
	without    string        // a forwarder's pod that enforces no objects; "" if none is known
}

// check checks whether EndpointAccess objects allow the pod to call.
func (c *accessCheck) check(ctx context.Context) path.Hop {
	namespace := c.target.Namespace
	var objects list[endpointAccess]
	_, err := c.get(ctx, &objects, "endpointaccesses.bindings.fairlead.dev", "--namespace", namespace)
	if err != nil && err.kind != noKind {
		return refusedHop("the EndpointAccess objects of namespace "+namespace, err)
	}
	for _, o := range objects.Items {
		c.policies = append(c.policies, endpointaccess.Policy{Namespace: namespace, Name: o.Metadata.Name,
			UID: o.Metadata.UID, Generation: o.Metadata.Generation, Spec: o.Spec})
	}
	serving, _ := c.forwarders.serving()
	for _, f := range serving {
		s := f.status.Access
		switch {
		case s == nil:
			c.without = f.pod.Metadata.Name
		case c.status == nil || c.status.PodIdentity && !s.PodIdentity:
			c.status, c.asked = s, f.pod.Metadata.Name
		}
	}
	return c.decide(ctx).With(c.evidence()...)
}

// decide returns the hop, without what all decisions have as evidence.
func (c *accessCheck) decide(ctx context.Context) path.Hop {
	byDefault := endpointaccess.Allow
	if c.status != nil && c.status.Default == string(endpointaccess.Deny) {
		byDefault = endpointaccess.Deny
	}
	byNetwork := c.status != nil && c.status.NetworkPolicies
	if byNetwork {
		c.dropServiceAccounts()
	}
	rules := endpointaccess.Compile(c.policies, byDefault)
	if !rules.Restricted(c.target) {
		return path.OKf("%s", rules.Decide(c.target, nil))
	}
	if c.without != "" {
		return path.Unknownf("%s restrict it, but forwarder %s enforces none: it is of an older release, or runs "+
			"without --default-access", c.names(rules), c.without)
	}
	if c.status != nil && !c.status.PodIdentity && !byNetwork {
		return path.Brokenf("set forwarder.podIdentity.enabled or networkPolicy.enabled in the chart's values; if one "+
			"is set, see the manager's log",
			"%s restrict it, and forwarders deny every call: they do not know which pod calls", c.names(rules))
	}
	caller, detail, unsure := c.caller(ctx)
	switch {
	case unsure != nil:
		return *unsure
	case caller == nil && byNetwork:
		return path.Unknownf("pod %s has its node's address, and the network plugin decides whether that may connect",
			c.fromPod)
	}
	d := rules.Decide(c.target, caller)
	if d.Allowed {
		return path.OKf("pod %s: %s", c.fromPod, d).With(detail)
	}
	return path.Brokenf("let a rule select the pod, or call from another one:\n"+
		c.command("--namespace %s get endpointaccesses -o yaml", c.target.Namespace),
		"pod %s: %s", c.fromPod, d).With(detail)
}

// names names the objects that select the target, or the default.
func (c *accessCheck) names(rules *endpointaccess.Rules) string {
	selecting := rules.Selecting(c.target)
	if len(selecting) == 0 {
		return "the defaults of the installation (binding.defaultAccess)"
	}
	names := make([]string, len(selecting))
	for i, p := range selecting {
		names[i] = p.Namespace + "/" + p.Name
	}
	return "EndpointAccess objects (" + strings.Join(names, ", ") + ")"
}

// dropServiceAccounts deletes the peers' ServiceAccounts, which a NetworkPolicy cannot select.
func (c *accessCheck) dropServiceAccounts() {
	for i := range c.policies {
		for j := range c.policies[i].Spec.From {
			c.policies[i].Spec.From[j].ServiceAccounts = nil
		}
	}
}

// caller returns the pod as forwarders identify it, nil if they cannot, and a description of the
// pod; or the hop that reports why the pod cannot be read.
func (c *accessCheck) caller(ctx context.Context) (caller *endpointaccess.Caller, detail string, unsure *path.Hop) {
	namespaceName, _, _ := strings.Cut(c.fromPod, "/")
	p, unsure := lookUp[pod](ctx, c.cluster, "pod", c.fromPod, path.Unknownf("pod %s does not exist", c.fromPod))
	switch {
	case unsure != nil:
		return nil, "", unsure
	case p.Spec.HostNetwork:
		return nil, "pod " + c.fromPod + " uses its node's network", nil
	}
	ns, unsure := lookUp[namespace](ctx, c.cluster, "namespace", namespaceName,
		path.Unknownf(path.NoNamespace, namespaceName))
	if unsure != nil {
		return nil, "", unsure
	}
	account := cmp.Or(p.Spec.ServiceAccountName, "default")
	detail = fmt.Sprintf("pod %s: ServiceAccount %s, labels %v; namespace %s: labels %v", c.fromPod, account,
		p.Metadata.Labels, namespaceName, ns.Metadata.Labels)
	return &endpointaccess.Caller{Namespace: namespaceName, ServiceAccount: account,
		NamespaceLabels: endpointaccess.LabelMap(ns.Metadata.Labels),
		PodLabels:       endpointaccess.LabelMap(p.Metadata.Labels)}, detail, nil
}

// evidence returns who enforces the objects that were read.
func (c *accessCheck) evidence() []string {
	if c.status == nil {
		return []string{"no forwarder was asked which rules it enforces"}
	}
	policies := make([]*endpointaccess.Policy, len(c.policies))
	for i := range c.policies {
		policies[i] = &c.policies[i]
	}
	digest := ""
	if len(policies) > 0 {
		digest = endpointaccess.Digest(policies)
	}
	switch {
	case c.status.NetworkPolicies:
		return []string{"forwarders leave it to NetworkPolicies who may call; these know no ServiceAccounts"}
	case c.status.Policies[c.target.Namespace] != digest:
		return []string{c.asked + " enforces other generations of these objects; kubectl get epa shows conditions"}
	}
	return []string{c.asked + " enforces these objects"}
}
