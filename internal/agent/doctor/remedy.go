// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import "cmp"

// remedies has the remedies by the reason of the condition ServicesReady.
var remedies = map[string]string{
	"NamespaceNotFound":    "create the namespace, and the endpoint projects at that moment",
	"NamespaceTerminating": "wait; it projects when a new one appears",
	"NamespaceForbidden":   "give the operator the rights that the message names",
	"NamespaceNotAllowed":  "choose another URL, or allow the namespace in the chart's values",
	"Conflict": "delete or rename the other Service, or choose another URL; the name is taken over once it has been " +
		"free for a minute",
	"AnchorMissing": "run helm upgrade for the release: it puts back the Role or ClusterRole that the " +
		"message names",
	"ServiceTerminating": "remove what holds the Service that the message names, such as a finalizer",
	"PortsExhausted":     "remove endpoints, or widen the forwarders' port range",
	"InvalidEndpoint":    "change the URL",
	"ClusterIPExhausted": "remove Services, or widen the cluster's service range",
	"QuotaExceeded":      "raise the ResourceQuota that the message names",
	"AdmissionDenied":    "ask the owner of the admission policy that the message names",
}

// remedyFor returns the remedy for a reason of the condition ServicesReady. docs/fix/conditions.md
// has the same table.
func remedyFor(reason string) string {
	return cmp.Or(remedies[reason], "look at the manager's log; it tries again")
}
