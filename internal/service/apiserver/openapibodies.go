// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"fmt"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// withBackends adds the operations of every kind of backends.
func withBackends(all map[string]operation) map[string]operation {
	for kind, types := range backendTypes {
		name, at := strings.ReplaceAll(string(kind), "_", " "), "/backends/"+string(kind)
		words := strings.Fields(name)
		for i, w := range words {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
		id := strings.Join(words, "") + "Backend"
		all["GET "+at] = operation{id: "list" + id + "s", summary: "List " + name + " backends",
			query:   pagingParameters,
			answers: map[int]any{200: types.list}}
		all["POST "+at] = operation{id: "create" + id, summary: "Make a " + name + " backend", body: backendBody(kind),
			answers: map[int]any{201: types.object}}
		all["GET "+at+"/{id}"] = operation{id: "get" + id, summary: "Read a " + name + " backend",
			answers: map[int]any{200: types.object}}
		all["PATCH "+at+"/{id}"] = operation{id: "update" + id, summary: "Change a " + name + " backend",
			body: backendBody(kind), answers: map[int]any{200: types.object}}
		all["DELETE "+at+"/{id}"] = operation{id: "delete" + id,
			summary: "Delete a " + name + " backend that nothing refers to", answers: map[int]any{204: nil}}
	}
	return all
}

func mapSchema(of schema, most int) schema {
	return schema{"type": []string{"object", "null"}, "additionalProperties": of, "maxProperties": most}
}

func orNullOf(kind string) schema { return schema{"type": []string{kind, "null"}} }

// sameID describes an id that must be the one of the path.
func sameID() schema {
	return schema{"type": []string{"string", "null"}, "description": "accepted if it is the one of the path"}
}

func backendBody(kind account.BackendKind) schema {
	all := schema{"id": sameID(), "description": text(account.MaxDescription), "metadata": text(account.MaxMetadata)}
	switch kind {
	case account.BackendFailover:
		all["backends"] = texts(schema{"type": "string"}, account.MaxBackendChildren)
		upTo := func(most, def int) schema {
			text := fmt.Sprintf("0 is the default: %d", def)
			return schema{"type": []string{"integer", "null"}, "minimum": 0, "maximum": most, "description": text}
		}
		def := account.HealthRule{}.WithDefaults()
		status := schema{"type": "integer", "minimum": 200, "maximum": 599}
		all["health"] = inner(schema{
			"http_status":     texts(status, account.MaxHealthStatuses),
			"window_seconds":  upTo(account.MaxHealthWindow, def.WindowSeconds),
			"min_answers":     upTo(account.MaxHealthAnswers, def.MinAnswers),
			"failure_percent": upTo(100, def.FailurePercent),
			"min_clients":     upTo(account.MaxHealthClients, def.MinClients),
		})
	case account.BackendWeighted:
		all["backends"] = mapSchema(schema{"type": "integer", "minimum": 0, "maximum": account.MaxWeight},
			account.MaxBackendChildren)
	case account.BackendTunnelGroup:
		all["labels"] = mapSchema(schema{"type": "string", "maxLength": account.MaxLabel}, account.MaxLabels)
	case account.BackendHTTPResponse:
		all["status_code"] = schema{"type": []string{"integer", "null"}, "minimum": 200, "maximum": 599, "default": 200}
		all["headers"] = mapSchema(schema{"type": "string", "maxLength": account.MaxHeaderValue},
			account.MaxResponseHeaders)
		all["body"] = text(account.MaxResponseBody)
	case account.BackendStatic:
		all["address"] = text(account.MaxShortText + len(":65535"))
		all["tls"] = inner(schema{"enabled": orNullOf("boolean")})
	}
	return fields(all)
}

// keySetFields is a JSON Web Key Set in a body.
func keySetFields() schema {
	member := schema{"type": "string"}
	key := schema{"type": "object", "required": []string{"kid", "kty"}, "properties": schema{"kid": member,
		"kty": schema{"enum": []string{"RSA", "EC"}}, "alg": member, "use": schema{"enum": []string{"sig"}},
		"n": member, "e": member, "crv": member, "x": member, "y": member}}
	return schema{"type": "object", "required": []string{"keys"}, "properties": schema{"keys": schema{"type": "array",
		"items": key, "maxItems": account.MaxClusterKeys}},
		"description": "public keys, as kubectl get --raw /openid/v1/jwks prints; other members are dropped"}
}

// clusterFields is the body of a request that creates or changes a cluster.
func clusterFields() schema {
	member, keys := schema{"type": "string"}, keySetFields()
	subject := fields(schema{"id": ignored(), "namespace": member, "service_account": member,
		"role": schema{"type": "string", "enum": account.SubjectRoles()},
		"acl":  texts(schema{"type": "string", "maxLength": account.MaxACLRule}, account.MaxACLRules),
		"uid":  text(account.MaxUID)})
	return fields(schema{"id": sameID(), "name": member, "issuer": text(account.MaxIssuer),
		"description": text(account.MaxDescription), "metadata": text(account.MaxMetadata),
		"cluster_uid": text(account.MaxUID), "jwks": keys, "add_jwks": keys,
		"remove_keys": texts(member, account.MaxClusterKeys),
		"key_source":  schema{"type": []string{"string", "null"}, "enum": keySources()},
		"subjects":    texts(subject, account.MaxClusterSubjects)})
}

// keySources returns the values of key_source in a body; null is the default.
func keySources() []any {
	values := []any{nil, ""}
	for _, source := range account.KeySources() {
		values = append(values, source)
	}
	return values
}

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
