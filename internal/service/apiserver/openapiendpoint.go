// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import "github.com/fairlead-dev/fairlead/internal/account"

func endpointBody() schema {
	return fields(schema{
		"id": sameID(), "url": schema{"type": []string{"string", "null"}},
		"type":     schema{"enum": []any{account.TypeCloud, "", nil}},
		"bindings": texts(schema{"enum": bindings}, 1), "name": text(account.MaxName),
		"description": text(account.MaxDescription), "metadata": text(account.MaxMetadata),
		"traffic_policy": text(account.MaxTrafficPolicy), "backend_id": orNullOf("string"),
		"pooling_enabled": orNullOf("boolean"),
		"owner": inner(schema{"cluster": text(account.MaxUID),
			"kind":      schema{"enum": []any{account.KindCloudEndpoint, account.KindServiceExport, nil}},
			"namespace": text(account.MaxNamespace), "name": text(account.MaxShortText), "uid": text(account.MaxUID)}),
		"service_export": serviceExportBody(),
	})
}

// serviceExportBody describes a ServiceExport that a client sends.
func serviceExportBody() schema {
	number := func(most int) schema {
		return schema{"type": []string{"integer", "null"}, "minimum": 1, "maximum": most}
	}
	metadata := schema{"type": []string{"object", "null"}, "additionalProperties": schema{"type": "string"}}
	port := fields(schema{"name": text(account.MaxNamespace), "protocol": oneOf(protocols), "port": number(65535),
		"app_protocol": text(account.MaxServiceExport)})
	return inner(schema{
		"type": oneOf(exportTypes), "ports": texts(port, account.MaxExportPorts),
		"session_affinity": oneOf(affinities), "session_affinity_seconds": number(86400),
		"internal_traffic_policy": oneOf(internalPolicies), "traffic_distribution": text(account.MaxShortText),
		"ip_families": texts(schema{"enum": []string{"IPv4", "IPv6"}}, 2),
		"labels":      metadata, "annotations": metadata, "ready": orNullOf("boolean"),
	})
}

// oneOf describes a text that is one of the values, or left out.
func oneOf(values []string) schema {
	all := []any{"", nil}
	for _, v := range values {
		if v != "" {
			all = append(all, v)
		}
	}
	return schema{"enum": all}
}
