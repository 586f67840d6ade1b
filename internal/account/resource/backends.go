// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead-dev/fairlead/internal/account"
)

// backends returns the resource of each kind of backends.
func backends() []Resource {
	return []Resource{
		backend(account.BackendFailover, "failover", "Failover", FailoverBackend{},
			[]Column{{"ACTIVE", "active_backend"}}, []Column{{"BACKENDS", "backends"}},
			Field{Name: "backends", Type: ListOf, Max: account.MaxBackendChildren, Items: &Field{},
				Flag: "backend", Help: "`ID` of a backend; repeated, in the order of failover"},
			Field{Name: "health", Type: Object, Fields: healthFields}),
		backend(account.BackendWeighted, "weighted", "Weighted", WeightedBackend{},
			nil, []Column{{"BACKENDS", "backends"}},
			Field{Name: "backends", Type: MapOf, Max: account.MaxBackendChildren,
				Items: &Field{Type: Number, Max: account.MaxWeight},
				Flag:  "backend", Help: "`ID=WEIGHT` of a backend, the weight from 0 to 10000; may be repeated"}),
		backend(account.BackendTunnelGroup, "tunnel group", "TunnelGroup", TunnelGroupBackend{},
			[]Column{{"LABELS", "labels"}}, []Column{{"TUNNELS", "tunnels"}},
			Field{Name: "labels", Type: MapOf, Max: account.MaxLabels, Items: &Field{Max: account.MaxLabel},
				Flag: "label", Help: "`LABEL=VALUE` that a tunnel must have; may be repeated"}),
		backend(account.BackendStatic, "static", "Static", StaticBackend{},
			[]Column{{"ADDRESS", "address"}, {"TLS", "tls.enabled"}}, nil,
			Field{Name: "address", Max: account.MaxShortText + len(":65535"), Help: "`HOST:PORT`"},
			Field{Name: "tls", Type: Object, Fields: []Field{{Name: "enabled", Type: Bool, Flag: "tls",
				Help: "speak TLS to it; the host name is verified"}}}),
		backend(account.BackendHTTPResponse, "HTTP response", "HttpResponse", HTTPResponseBackend{},
			[]Column{{"STATUS", "status_code"}}, nil,
			Field{Name: "status_code", Type: Number, Min: 200, Max: 599, Default: 200,
				Help: "`STATUS` of the answer, 200 to 599; default 200"},
			Field{Name: "headers", Type: MapOf, Max: account.MaxResponseHeaders,
				Items: &Field{Max: account.MaxHeaderValue}, Flag: "header",
				Help: "`NAME=VALUE` of a header; may be repeated"},
			Field{Name: "body", Max: account.MaxResponseBody, Help: "`TEXT` of the answer"},
			Field{Name: "body", Max: account.MaxResponseBody, Flag: "body-file", FromFile: true,
				Help: "`FILE` with the text of the answer"}),
	}
}

// backend returns the resource of a kind of backends. name is part of its operations' IDs.
func backend(
	kind account.BackendKind, noun, name string, object any, columns, wide []Column, fields ...Field,
) Resource {
	words := strings.ReplaceAll(string(kind), "_", " ")
	return Resource{Path: BackendPath(kind), Noun: noun + " backend", IDPrefix: kind.IDPrefix(), Read: readScopes,
		Object: object, List: page(name+"List", "backends", object),
		Columns: slices.Concat([]Column{{"ID", "id"}}, columns, []Column{{"DESCRIPTION", "description"}}),
		Wide:    append(wide, Column{"CREATED", "created_at"}),
		Fields:  common(fields...),
	}.with(
		op("GET", "", "list"+name+"Backends", "List "+words+" backends", paging...),
		op("POST", "", "create"+name+"Backend", "Make a "+words+" backend"),
		op("GET", "/{id}", "get"+name+"Backend", "Read a "+words+" backend"),
		op("PATCH", "/{id}", "update"+name+"Backend", "Change a "+words+" backend"),
		op("DELETE", "/{id}", "delete"+name+"Backend", "Delete a "+words+" backend that nothing refers to"))
}

// health has the defaults of the fields below.
var health = account.HealthRule{}.WithDefaults()

var healthFields = []Field{
	{Name: "http_status", Type: ListOf, Max: account.MaxHealthStatuses,
		Items: &Field{Type: Number, Min: 200, Max: 599}, Flag: "health-status",
		Help: "HTTP `STATUS` of a backend that counts as its failure, such as 503; may be repeated"},
	{Name: "window_seconds", Type: Number, Max: account.MaxHealthWindow, Description: zeroIs(health.WindowSeconds),
		Flag: "health-window", Help: "`SECONDS` for which such answers count; default 10"},
	{Name: "min_answers", Type: Number, Max: account.MaxHealthAnswers, Description: zeroIs(health.MinAnswers),
		Flag: "health-answers",
		Help: "least `NUMBER` of answers in the window before one of them takes a backend down; default 5"},
	{Name: "failure_percent", Type: Number, Max: 100, Description: zeroIs(health.FailurePercent),
		Flag: "health-percent", Help: "`PERCENT` of the clients that must have got such answers; default 50"},
	{Name: "min_clients", Type: Number, Max: account.MaxHealthClients, Description: zeroIs(health.MinClients),
		Flag: "health-clients",
		Help: "least `NUMBER` of these clients; default 3, and a pod of the account's clusters is enough"},
}

func zeroIs(value int) string { return "0 is the default: " + strconv.Itoa(value) }
