// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
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

// exportRemedies has the remedies by the reason of an AgentEndpoint's conditions.
var exportRemedies = map[string]string{
	"UpstreamNotFound": "make the Service, or correct spec.upstream.url",
	"UpstreamNotAllowed": "name a Service of the object's own namespace that has a selector, or set the chart's " +
		"export.crossNamespace",
	"UnsupportedService": "name a Service with a TCP port that is no ExternalName",
	"PortNotFound":       "give a port of the Service in spec.upstream.url",
	"PolicyInvalid":      "correct the traffic policy at the place that the message names",
	"PolicyNotFound":     "make the ConfigMap with the key policy.yaml, or correct spec.trafficPolicy.targetRef",
	"URLNotAllowed": "give a URL whose second part is the object's namespace, or add a pattern to the chart's " +
		"export.urls",
	"URLTaken":  "choose another URL, or set poolingEnabled on both endpoints",
	"Forbidden": "give the exporter's API key the rule that the message names",
	"Rejected":  "change what the message names",
	"LimitReached": "delete endpoints of the account that are not needed, or raise the limit that the message " +
		"names",
	"Unreachable": "see that fairlead-server runs, that the exporters' pods reach it, and that it takes their " +
		"API key",
	"Pending":          "wait a moment, and look again",
	"NoReadyEndpoints": "see why the Service's pods are not ready",
}

// remedyForExport returns the remedy for a reason of an AgentEndpoint's conditions.
// docs/use/export.md has the same table.
func remedyForExport(reason string) string {
	return cmp.Or(exportRemedies[reason], "look at the exporter's log; it tries again")
}
