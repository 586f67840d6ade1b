// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

// remedyFor returns the remedy for a reason of the condition ServicesReady. docs/fix/conditions.md
// has the same table.
func remedyFor(reason string) string {
	switch reason {
	case "NamespaceNotFound":
		return "create the namespace, and the endpoint projects at that moment"
	case "NamespaceTerminating":
		return "wait; it projects when a new one appears"
	case "NamespaceForbidden":
		return "give the operator the rights that the message names"
	case "NamespaceNotAllowed":
		return "choose another URL, or allow the namespace in the chart's values"
	case "Conflict":
		return "delete or rename the other Service, or choose another URL; the name is taken over once it has been " +
			"free for a minute"
	case "AnchorMissing":
		return "run helm upgrade for the release: it puts back the Role or ClusterRole that the message names"
	case "ServiceTerminating":
		return "remove what holds the Service that the message names, such as a finalizer"
	case "PortsExhausted":
		return "remove endpoints, or widen the forwarders' port range"
	case "InvalidEndpoint":
		return "change the URL"
	case "ClusterIPExhausted":
		return "remove Services, or widen the cluster's service range"
	case "QuotaExceeded":
		return "raise the ResourceQuota that the message names"
	case "AdmissionDenied":
		return "ask the owner of the admission policy that the message names"
	}
	return "look at the manager's log; it tries again"
}
