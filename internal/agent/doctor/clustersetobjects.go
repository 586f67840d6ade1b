// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
)

// Marks of the Multi-Cluster Services API.
const (
	labelServiceName   = "multicluster.kubernetes.io/service-name"
	labelSourceCluster = "multicluster.kubernetes.io/source-cluster"
	annotationDerived  = "multicluster.kubernetes.io/derived-service"
)

// conditionImports is the condition of a KubernetesOperator with clusterset.enabled.
const conditionImports = "ServiceImportsReady"

type serviceImport struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Type  string       `json:"type"`
		IPs   []string     `json:"ips"`
		Ports []importPort `json:"ports"`
	} `json:"spec"`
	Status struct {
		Clusters []struct {
			Cluster string `json:"cluster"`
		} `json:"clusters"`
		Conditions conditions `json:"conditions"`
	} `json:"status"`
}

// importPort is a port of a ServiceImport, or of a Service or an EndpointSlice.
type importPort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
}

func (p importPort) String() string { return fmt.Sprintf("%d/%s", p.Port, p.Protocol) }

func (i *serviceImport) clusters() []string {
	var ids []string
	for _, c := range i.Status.Clusters {
		ids = append(ids, c.Cluster)
	}
	return ids
}

func (i *serviceImport) portList() string {
	var list []string
	for _, p := range i.Spec.Ports {
		list = append(list, p.String())
	}
	return strings.Join(list, ", ")
}

type serviceExport struct {
	Metadata meta `json:"metadata"`
	Status   struct {
		Conditions conditions `json:"conditions"`
	} `json:"status"`
}

type configMap struct {
	Data map[string]string `json:"data"`
}

// remedyForServiceExport returns the remedy for a reason of a ServiceExport's conditions.
// docs/use/clusterset.md has the same table.
func remedyForServiceExport(reason string) string {
	switch reason {
	case "NoService":
		return "make the Service: it has the namespace and name of the ServiceExport"
	case "InvalidServiceType":
		return "export a Service that is no ExternalName"
	case "Pending":
		return "wait a moment, and look again"
	}
	return "change what the message names; the exporter tries again"
}
