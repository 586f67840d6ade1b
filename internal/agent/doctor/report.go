// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"slices"
)

// Status is the result of checking a hop.
type Status string

// The statuses. Unknown: it could not be determined. Skipped: not checked, because an earlier hop
// is broken.
const (
	OK      Status = "ok"
	Broken  Status = "broken"
	Unknown Status = "unknown"
	Skipped Status = "skipped"
)

// The hops, in the order of the checks. Their names are stable, for programs.
const (
	HopCluster         = "cluster"
	HopNamespace       = "namespace"
	HopService         = "service"
	HopUpstreamService = "upstream-service"
	HopDNS             = "dns"
	HopForwarders      = "forwarders"
	HopListener        = "listener"
	HopAccess          = "access" // with Options.FromPod only
	HopEdge            = "edge"
	HopOperator        = "operator"
	HopBoundEndpoint   = "boundendpoint"
	HopEndpoint        = "endpoint"
	HopAgent           = "agent"
	HopUpstream        = "upstream"
)

// The hops of a cluster that exports the endpoint, which stand before HopUpstream.
const (
	HopExportCluster = "export-cluster"
	HopAgentEndpoint = "agentendpoint"
	HopExporter      = "exporter"
	HopExportService = "export-service"
)

// The hops of a Service that clusters export to each other, between those of the same names above.
const (
	HopCRDs           = "crds"
	HopServiceImport  = "serviceimport"
	HopDerivedService = "derived-service"
	HopEndpointSlices = "endpointslices"
	HopRecords        = "records"
	HopCarriedPorts   = "carried-ports"
	HopServiceExport  = "serviceexport"
)

// Hop is one step of the path of a call, and what was found about it.
type Hop struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Detail is what was found, a sentence or a part of one.
	Detail string `json:"detail"`
	// Fix is the remedy of a broken hop, or the next step for another one. Lines after the first
	// are commands.
	Fix string `json:"fix,omitempty"`
	// Evidence is the objects that were read and what they state.
	Evidence []string `json:"evidence,omitempty"`

	symptom bool // broken because of a later hop, which is the one to repair
}

// Report is the result of all checks.
type Report struct {
	URL     string `json:"url"`
	Context string `json:"context,omitempty"` // the kubectl context
	// OK: no hop is broken. Some may be unknown.
	OK bool `json:"ok"`
	// Broken names the hop to repair first; empty when OK.
	Broken string `json:"broken,omitempty"`
	Hops   []Hop  `json:"hops"`
}

// Hop returns the hop of this name.
func (r *Report) Hop(name string) (Hop, bool) {
	for _, h := range r.Hops {
		if h.Name == name {
			return h, true
		}
	}
	return Hop{}, false
}

// hasStatus reports whether the hop of a name was checked with a result.
func (r *Report) hasStatus(name string, status Status) bool {
	h, ok := r.Hop(name)
	return ok && h.Status == status
}

func (r *Report) anyBroken() bool {
	return slices.ContainsFunc(r.Hops, func(h Hop) bool { return h.Status == Broken })
}

// Conclude fills in OK and Broken from the hops: the first broken one that is no mere symptom of a
// later one.
func (r *Report) Conclude() {
	first := ""
	for _, h := range r.Hops {
		if h.Status != Broken {
			continue
		}
		first = cmp.Or(first, h.Name)
		if !h.symptom {
			r.Broken, r.OK = h.Name, false
			return
		}
	}
	r.Broken, r.OK = first, first == ""
}
