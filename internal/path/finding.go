// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package path

import "fmt"

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

// ApprovePin returns the arguments of kubectl that replace the pin of a URL, which was made at first
// sight, by the agent's own key, in place of KEY: what the service announces may be another one.
func ApprovePin(namespace, endpointTrust, url string) string {
	return fmt.Sprintf(`--namespace %s patch endpointtrusts %s --subresource=status --type=merge `+
		`-p '{"status":{"pins":{"%s":"KEY"}}}'`, namespace, endpointTrust, url)
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
