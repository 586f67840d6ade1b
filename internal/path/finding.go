// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package path

import (
	"cmp"
	"fmt"
)

// What is found, as formats: the doctor, the dashboard and conditions say it in the same words. The
// operands are URLs, or the names of the objects, of Services with their namespaces.
const (
	NoAgent              = "no agent is connected for %s"
	NoExporter           = "no exporter is connected for %s"
	NoExporterOfCluster  = "no exporter of cluster %s is connected for %s"
	NoNamespace          = "namespace %s does not exist"
	NamespaceTerminating = "namespace %s is being deleted"
	NoService            = "Service %s does not exist"
	ServiceTerminating   = "Service %s is being deleted"
	ExternalName         = "Service %s is an ExternalName, which is not exported"
	NoReadyEndpoint      = "Service %s has no ready endpoint"
)

// Remedies that more than one hop has.
const (
	StartAgain    = "start it again, or see why it cannot reach the service"
	SeeExporters  = "see that the exporters of that cluster run, and what their log says"
	ReachService  = "see that fairlead-server runs and that the manager's pods reach it (api.url, api.caBundle, proxy)"
	AdmitEndpoint = "change binding.endpointSelector so that it admits the endpoint"
	SeePods       = "see why the Service's pods are not ready"
)

// remedies has the remedies of conditions by their reasons, that of all other ones for "".
var remedies = map[string]map[string]string{
	"BoundEndpoint": {
		"":                     "look at the manager's log; it tries again",
		"NamespaceNotFound":    "create the namespace, and the endpoint projects at that moment",
		"NamespaceTerminating": "wait; it projects when a new one appears",
		"NamespaceForbidden":   "give the operator the rights that the message names",
		"NamespaceNotAllowed":  "choose another URL, or allow the namespace in the chart's values",
		"Conflict": "delete or rename the other Service, or choose another URL; the name is taken over once it has " +
			"been free for a minute",
		"AnchorMissing": "run helm upgrade for the release: it puts back the Role or ClusterRole that the " +
			"message names",
		"ServiceTerminating": "remove what holds the Service that the message names, such as a finalizer",
		"PortsExhausted":     "remove endpoints, or widen the forwarders' port range",
		"InvalidEndpoint":    "change the URL",
		"ClusterIPExhausted": "remove Services, or widen the cluster's service range",
		"QuotaExceeded":      "raise the ResourceQuota that the message names",
		"AdmissionDenied":    "ask the owner of the admission policy that the message names",
	},
	"KubernetesOperator": {
		"":              "give the release an API key of the account that may register operators (credentials.apiKey)",
		"SecondRelease": "install each release in a namespace of its own",
		"LimitReached":  "delete the account's operators that are gone: fairlead api kubernetes-operators",
		"Rejected":      "change the chart's value that the message names",
	},
	"AgentEndpoint": {
		"":                 "look at the exporter's log; it tries again",
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
		"NoReadyEndpoints": SeePods,
	},
	"ServiceExport": {
		"":                   "change what the message names; the exporter tries again",
		"NoService":          "make the Service: it has the namespace and name of the ServiceExport",
		"InvalidServiceType": "export a Service that is no ExternalName",
		"Pending":            "wait a moment, and look again",
	},
}

// Remedy returns the remedy for a reason of a condition of a kind of objects: of the condition
// ServicesReady of a BoundEndpoint, of Registered of a KubernetesOperator, and of all conditions of
// an AgentEndpoint and a ServiceExport. docs/fix/conditions.md has the same tables.
func Remedy(kind, reason string) string { return cmp.Or(remedies[kind][reason], remedies[kind][""]) }

// AgentCommand returns the command that starts an agent for a URL. The binding is empty where the
// agent's own choice is right.
func AgentCommand(scheme, url, binding string) string {
	if scheme == "https" { // TLS ends at the edge
		scheme = "http"
	}
	command := "fairlead " + scheme + " PORT --url " + url
	if binding != "" {
		command += " --binding " + binding
	}
	return command
}

// Condition is a condition of an object, as Kubernetes encodes it.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Conditions are the conditions of an object.
type Conditions []Condition

// Get returns the condition, whose Status is empty when there is none.
func (all Conditions) Get(typ string) Condition {
	for _, c := range all {
		if c.Type == typ {
			return c
		}
	}
	return Condition{Type: typ}
}

// Evidence returns what the conditions of an object state.
func (all Conditions) Evidence(kind, place string) []string {
	lines := make([]string, len(all))
	for i, c := range all {
		lines[i] = fmt.Sprintf("%s %s: %s=%s %s: %s", kind, place, c.Type, c.Status, c.Reason, c.Message)
	}
	return lines
}

// Ready returns the hop of an object whose conditions are no problem.
func (all Conditions) Ready(place string) Hop {
	ready := all.Get("Ready")
	return OKf("%s: Ready=%s (%s)", place, ready.Status, ready.Reason)
}

// Broken returns the hop of an object with the condition, which is a problem.
func (c Condition) Broken(fix, place string) Hop {
	state := c.Type + "=" + c.Status
	if c.Reason != "" {
		state += ", " + c.Reason
	}
	return Brokenf(fix, "%s: %s (%s)", place, c.Message, state)
}
