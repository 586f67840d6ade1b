// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"net"
	"strconv"
	"strings"
)

type agentEndpoint struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		URL      string `json:"url"`
		Upstream struct {
			URL string `json:"url"`
		} `json:"upstream"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64      `json:"observedGeneration"`
		Conditions         conditions `json:"conditions"`
	} `json:"status"`
}

// upstream returns the Service that spec.upstream.url names, and its port; 0 where it has none.
func (a *agentEndpoint) upstream() (namespace, name string, port int) {
	scheme, rest, _ := strings.Cut(a.Spec.Upstream.URL, "://")
	host, number, err := net.SplitHostPort(strings.TrimSuffix(rest, "/"))
	if err != nil {
		host, number = strings.TrimSuffix(rest, "/"), map[string]string{"http": "80", "https": "443"}[scheme]
	}
	port, _ = strconv.Atoi(number)
	parts := strings.SplitN(host, ".", 3)
	if len(parts) > 1 {
		return parts[1], parts[0], port
	}
	return a.Metadata.Namespace, parts[0], port
}

// remedyForExport returns the remedy for a reason of an AgentEndpoint's conditions.
// docs/use/export.md has the same table.
func remedyForExport(reason string) string {
	switch reason {
	case "UpstreamNotFound":
		return "make the Service, or correct spec.upstream.url"
	case "UpstreamNotAllowed":
		return "name a Service of the object's own namespace that has a selector, or set the chart's " +
			"export.crossNamespace"
	case "UnsupportedService":
		return "name a Service with a TCP port that is no ExternalName"
	case "PortNotFound":
		return "give a port of the Service in spec.upstream.url"
	case "PolicyInvalid":
		return "correct the traffic policy at the place that the message names"
	case "PolicyNotFound":
		return "make the ConfigMap with the key policy.yaml, or correct spec.trafficPolicy.targetRef"
	case "URLNotAllowed":
		return "give a URL whose second part is the object's namespace, or add a pattern to the chart's export.urls"
	case "URLTaken":
		return "choose another URL, or set poolingEnabled on both endpoints"
	case "Forbidden":
		return "give the exporter's API key the rule that the message names"
	case "Rejected":
		return "change what the message names"
	case "LimitReached":
		return "delete endpoints of the account that are not needed, or raise the limit that the message names"
	case "Unreachable":
		return "see that fairlead-server runs, that the exporters' pods reach it, and that it takes their API key"
	case "Pending":
		return "wait a moment, and look again"
	case "NoReadyEndpoints":
		return "see why the Service's pods are not ready"
	}
	return "look at the exporter's log; it tries again"
}
