// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package path

import "cmp"

// The hops. Their names are stable, for programs.
const (
	HopCallers         = "callers" // Callers are those outside of clusters.
	HopCluster         = "cluster"
	HopNamespace       = "namespace"
	HopService         = "service"
	HopUpstreamService = "upstream-service"
	HopDNS             = "dns"
	HopForwarders      = "forwarders"
	HopListener        = "listener"
	HopAccess          = "access" // Access is checked for a named pod only.
	HopEdge            = "edge"
	HopOperator        = "operator"
	HopBoundEndpoint   = "boundendpoint"
	HopEndpoint        = "endpoint"
	HopAgent           = "agent"
	HopBackend         = "backend"
	HopSeal            = "seal" // Seal is checked where one is required or announced only.
	HopUpstream        = "upstream"

	// The hops of a public endpoint, beside those above.
	HopCertificate = "certificate"
	HopAnswer      = "answer" // Answer is that of the public listener to a request.
	HopDomain      = "domain"

	// The hops of a cluster that exports the endpoint.
	HopExportCluster = "export-cluster"
	HopAgentEndpoint = "agentendpoint"
	HopExporter      = "exporter"
	HopExportService = "export-service"

	// The hops of a Service that clusters export to each other, beside those above.
	HopCRDs           = "crds"
	HopServiceImport  = "serviceimport"
	HopDerivedService = "derived-service"
	HopEndpointSlices = "endpointslices"
	HopRecords        = "records"
	HopCarriedPorts   = "carried-ports"
	HopServiceExport  = "serviceexport"
)

// Step is the place of a hop in a path.
type Step struct {
	Name string
	// OnPath is set for a hop that is not checked after any broken one.
	OnPath bool
	// ByAccount is set for a hop that the account shows although the cluster does not answer.
	ByAccount bool
	// Needs are the hops without which this one is not checked.
	Needs []string
	// Causes are the hops whose failure explains that of this one.
	Causes []string
}

// ToEndpoint returns the steps of a call to an endpoint, in order, with every hop that one may have.
func ToEndpoint() []Step {
	exported := []string{HopExportCluster, HopAgentEndpoint, HopExporter, HopExportService}
	return []Step{
		{Name: HopCallers},
		{Name: HopCluster, OnPath: true},
		{Name: HopNamespace, OnPath: true},
		{Name: HopService, OnPath: true},
		{Name: HopUpstreamService, OnPath: true},
		{Name: HopDNS, OnPath: true},
		{Name: HopForwarders, OnPath: true},
		{Name: HopListener, OnPath: true},
		{Name: HopAccess, OnPath: true},
		{Name: HopEdge, OnPath: true},
		{Name: HopOperator},
		{Name: HopBoundEndpoint},
		{Name: HopEndpoint, ByAccount: true, Causes: exported},
		{Name: HopAgent, ByAccount: true, Causes: exported},
		{Name: HopBackend},
		{Name: HopExportCluster},
		{Name: HopAgentEndpoint},
		{Name: HopExporter},
		{Name: HopExportService},
		{Name: HopSeal},
		{Name: HopUpstream, OnPath: true},
	}
}

// ToPublicEndpoint returns the steps of a call to a public endpoint from outside of clusters, in
// order.
func ToPublicEndpoint() []Step {
	return []Step{
		{Name: HopDNS},
		{Name: HopListener, Needs: []string{HopDNS}},
		{Name: HopCertificate, Needs: []string{HopListener}},
		{Name: HopAnswer, Needs: []string{HopListener, HopCertificate},
			Causes: []string{HopEndpoint, HopDomain, HopAgent}},
		{Name: HopEndpoint},
		{Name: HopDomain},
		{Name: HopAgent, Causes: []string{HopDomain}},
		{Name: HopUpstream, Needs: []string{HopAnswer}},
	}
}

// ToService returns the steps of a call to a Service that clusters export to each other, in order.
func ToService() []Step {
	return []Step{
		{Name: HopCluster},
		{Name: HopCRDs},
		{Name: HopNamespace},
		{Name: HopOperator, Causes: []string{HopCRDs}},
		{Name: HopServiceImport, Needs: []string{HopCRDs, HopNamespace, HopOperator}, Causes: []string{HopRecords,
			HopExportCluster, HopServiceExport, HopExporter, HopExportService, HopEndpointSlices, HopForwarders}},
		{Name: HopDerivedService, Needs: []string{HopServiceImport}},
		{Name: HopDNS, Needs: []string{HopServiceImport}},
		{Name: HopEndpointSlices, Needs: []string{HopServiceImport},
			Causes: []string{HopBoundEndpoint, HopCarriedPorts, HopExporter, HopForwarders}},
		{Name: HopForwarders, Needs: []string{HopOperator}},
		{Name: HopListener, Needs: []string{HopForwarders, HopEndpointSlices}, Causes: []string{HopBoundEndpoint}},
		{Name: HopEdge, Needs: []string{HopForwarders}},
		{Name: HopBoundEndpoint, Needs: []string{HopServiceImport},
			Causes: []string{HopCarriedPorts, HopExporter, HopServiceExport}},
		{Name: HopRecords, Causes: []string{HopExportCluster, HopServiceExport, HopExporter, HopExportService}},
		{Name: HopCarriedPorts, Causes: []string{HopServiceExport, HopExporter, HopExportService}},
		{Name: HopExportCluster},
		{Name: HopServiceExport, Causes: []string{HopExporter, HopExportService}},
		{Name: HopExporter},
		{Name: HopExportService},
	}
}

// labels are the names for people of those hops that have another one.
var labels = map[string]string{
	HopService: "target Service", HopUpstreamService: "upstream Service", HopDNS: "DNS", HopEdge: "edge session",
	HopBoundEndpoint: "BoundEndpoint", HopExportCluster: "export cluster", HopAgentEndpoint: "AgentEndpoint",
	HopExportService: "export Service", HopCRDs: "CRDs", HopServiceImport: "ServiceImport",
	HopDerivedService: "derived Service", HopEndpointSlices: "EndpointSlices", HopRecords: "account",
	HopCarriedPorts: "carried ports", HopServiceExport: "ServiceExport",
}

// Label returns the name of a hop for people.
func Label(hop string) string { return cmp.Or(labels[hop], hop) }
