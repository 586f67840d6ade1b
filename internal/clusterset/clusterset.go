// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterset

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// Export is the export of a Service by one cluster: a record of the account.
type Export struct {
	ID         string // the record's id
	ClusterUID string
	ClusterID  string
	Namespace  string
	Name       string
	CreatedAt  time.Time // at the service: no cluster can back-date it
	Spec       account.ServiceExport
}

// ExportOf returns the export that an endpoint of the account records; false = the endpoint is not
// a record.
func ExportOf(e *account.Endpoint) (Export, bool) {
	if e.ServiceExport == nil || e.Type != account.TypeCloud ||
		!slices.Contains(e.Bindings, account.BindingClusterset) ||
		e.Owner == nil || e.Owner.Kind != account.KindServiceExport {
		return Export{}, false
	}
	u, err := account.ParseBindingURL(account.BindingClusterset, e.URL)
	o := e.Owner
	if err != nil || u != account.ServiceExportURL(o.Name, o.Namespace, u.ClusterID()) {
		return Export{}, false
	}
	return Export{ID: e.ID, ClusterUID: o.Cluster, ClusterID: u.ClusterID(), Namespace: o.Namespace, Name: o.Name,
		CreatedAt: e.CreatedAt, Spec: *e.ServiceExport}, true
}

// Import is what every cluster imports under a namespace and name. Its Spec shares slices and maps
// with the exports that it was merged from.
type Import struct {
	Namespace, Name string
	// Spec has the union of the exports' ports; Ready when any export is; the rest is the oldest
	// export's.
	Spec    account.ServiceExport
	Exports []Export // oldest first, each ClusterID once
}

// Merge returns the import of exports of one namespace and name, of which there is at least one, in
// any order. The older export takes precedence: by CreatedAt, then by ID. Exports of one ClusterID,
// of which the account has one, count as the oldest of them.
//
// Exports of another type than the oldest's neither add ports nor serve any. A port is in the union
// unless an older one is of its name, or of its protocol and number, or either of them has no name:
// so the union is valid as the ports of a Service.
func Merge(exports []Export) Import {
	sorted := slices.Clone(exports)
	slices.SortFunc(sorted, func(a, b Export) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	clusters := map[string]bool{}
	sorted = slices.DeleteFunc(sorted, func(e Export) bool {
		seen := clusters[e.ClusterID]
		clusters[e.ClusterID] = true
		return seen
	})
	oldest := &sorted[0]
	i := Import{Namespace: oldest.Namespace, Name: oldest.Name, Spec: oldest.Spec, Exports: sorted}
	i.Spec.Ports, i.Spec.Ready = nil, false
	for n := range sorted {
		e := &sorted[n].Spec
		i.Spec.Ready = i.Spec.Ready || e.Ready
		if e.Type != i.Spec.Type {
			continue
		}
		for _, p := range e.Ports {
			if !slices.ContainsFunc(i.Spec.Ports, func(q account.ServiceExportPort) bool { return conflict(p, q) }) {
				i.Spec.Ports = append(i.Spec.Ports, p)
			}
		}
	}
	return i
}

// conflict reports whether one Service cannot have both ports, or they are the same.
func conflict(p, q account.ServiceExportPort) bool {
	return p.Name == q.Name || p.Name == "" || q.Name == "" || p.Protocol == q.Protocol && p.Port == q.Port
}

// Ports returns the ports of the import that the cluster serves, as the import has them: those that
// its export has by the same name, protocol and number. A cluster whose export is of another type
// serves none.
func (i *Import) Ports(clusterID string) []account.ServiceExportPort {
	n := slices.IndexFunc(i.Exports, func(e Export) bool { return e.ClusterID == clusterID })
	if n < 0 {
		return nil
	}
	var ports []account.ServiceExportPort
	for _, p := range i.Spec.Ports {
		if i.serves(&i.Exports[n], p) {
			ports = append(ports, p)
		}
	}
	return ports
}

// serves reports whether connections to a port of the import reach the cluster of e.
func (i *Import) serves(e *Export, p account.ServiceExportPort) bool {
	return e.Spec.Type == i.Spec.Type && slices.ContainsFunc(e.Spec.Ports, samePort(p))
}

// samePort returns a predicate for ports with the name, protocol and number of p.
func samePort(p account.ServiceExportPort) func(account.ServiceExportPort) bool {
	return func(q account.ServiceExportPort) bool {
		return q.Name == p.Name && q.Protocol == p.Protocol && q.Port == p.Port
	}
}

// InstallCRDs is the command that installs the CRDs of the Multi-Cluster Services API, which are
// the user's to install.
const InstallCRDs = "kubectl apply -f " + crds + "serviceexports.yaml -f " + crds + "serviceimports.yaml"

const crds = "https://raw.githubusercontent.com/kubernetes-sigs/mcs-api/v0.5.2/config/crd/multicluster.x-k8s.io_"
