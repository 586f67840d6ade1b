// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package accounttest

import "github.com/fairlead-dev/fairlead/internal/account"

// ServiceExport returns an export with every field.
func ServiceExport() *account.ServiceExport {
	return &account.ServiceExport{Type: account.ExportClusterSetIP,
		Ports: []account.ServiceExportPort{{Name: "tcp", Protocol: "TCP", Port: 42, AppProtocol: "http"},
			{Name: "udp", Protocol: "UDP", Port: 42}},
		SessionAffinity: "ClientIP", SessionAffinitySeconds: new(int32(10)), InternalTrafficPolicy: "Cluster",
		TrafficDistribution: "PreferClose", IPFamilies: []string{"IPv4", "IPv6"},
		Labels: map[string]string{"example.com/team": "a"}, Annotations: map[string]string{"note": "for everyone"},
		Ready: true}
}

// ExportOwner returns the ServiceExport of a Service in cluster c-1.
func ExportOwner(namespace, name string) *account.Owner {
	return &account.Owner{Cluster: "c-1", Kind: account.KindServiceExport, Namespace: namespace, Name: name, UID: "u-1"}
}
