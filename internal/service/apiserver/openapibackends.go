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
