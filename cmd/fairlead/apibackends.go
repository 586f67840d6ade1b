// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

const backendsHelp = `Backends are what endpoints of type cloud forward to.

  failover       the first of its backends that is up, in their order
  weighted       one of its backends at random, in proportion to the weights
  tunnel-group   the labelled tunnels that have all its labels (fairlead tunnel --label app=api 8080)
  static         an address that the server connects to
  http-response  a fixed answer, such as a maintenance page

Make the leaves first, then the backends that contain them, then the endpoint. A backend in use cannot
be deleted; the error names its user.`

const backendsExample = `  fairlead api backends tunnel-group create --label app=api
  fairlead api backends http-response create --status-code 503 --body "back soon"
  fairlead api backends failover create --backend bkdtg-06hj… --backend bkdhr-06hj…
  fairlead api endpoints create --url http://shop.demo --backend-id bkdfo-06hj…`

// endpointFields returns the fields of endpoints of type cloud.
func endpointFields(common []field) []field {
	return append(common,
		field{flag: "url", path: "url", kind: kindText, create: true, help: "`URL` such as http://shop.demo; required"},
		field{flag: "binding", path: "bindings", kind: kindList, create: true,
			help: "`BINDING`: kubernetes, internal or public; default kubernetes"},
		field{flag: "name", path: "name", kind: kindText, create: true,
			help: "`NAME`, which tells members of a pool apart"},
		field{flag: "backend-id", path: "backend_id", kind: kindText,
			help: "`ID` of the backend for calls that the traffic policy does not answer or forward; \"\" for none"},
		field{flag: "traffic-policy-file", path: "traffic_policy", kind: kindFile,
			help: "`FILE` with a traffic policy, YAML or JSON; `fairlead policy check` lists its mistakes"},
		field{flag: "pooling-enabled", path: "pooling_enabled", kind: kindFlag,
			help: "share the URL with other cloud endpoints that do, too"})
}

func backendResources(common []field) []resource {
	id := column{"ID", "id"}
	last := []column{{"CREATED", "created_at"}, {"DESCRIPTION", "description"}}
	kind := func(name, path, noun string, columns []column, fields ...field) resource {
		return resource{group: "backends", name: name, path: "/backends/" + path, list: "backends",
			noun:    noun + " backend",
			columns: append(append([]column{id}, columns...), last...),
			fields:  append(append([]field{}, common...), fields...)}
	}
	return []resource{
		kind("failover", "failover", "failover", []column{{"ACTIVE", "active_backend"}, {"BACKENDS", "backends"}},
			field{flag: "backend", path: "backends", kind: kindList,
				help: "`ID` of a backend; repeated, in the order of failover"},
			field{flag: "health-status", path: "health.http_status", kind: kindNumbers,
				help: "HTTP `STATUS` of a backend that counts as its failure, such as 503; may be repeated"},
			field{flag: "health-window", path: "health.window_seconds", kind: kindNumber,
				help: "`SECONDS` for which such answers count; default 10"},
			field{flag: "health-answers", path: "health.min_answers", kind: kindNumber,
				help: "least `NUMBER` of answers in the window before one of them takes a backend down; default 5"},
			field{flag: "health-percent", path: "health.failure_percent", kind: kindNumber,
				help: "`PERCENT` of the clients that must have got such answers; default 50"},
			field{flag: "health-clients", path: "health.min_clients", kind: kindNumber,
				help: "least `NUMBER` of these clients; default 3, and a pod of the account's clusters is enough"}),
		kind("weighted", "weighted", "weighted", []column{{"BACKENDS", "backends"}},
			field{flag: "backend", path: "backends", kind: kindWeights,
				help: "`ID=WEIGHT` of a backend, the weight from 0 to 10000; may be repeated"}),
		kind("tunnel-group", "tunnel_group", "tunnel group", []column{{"LABELS", "labels"}, {"TUNNELS", "tunnels"}},
			field{flag: "label", path: "labels", kind: kindPairs,
				help: "`LABEL=VALUE` that a tunnel must have; may be repeated"}),
		kind("static", "static", "static", []column{{"ADDRESS", "address"}, {"TLS", "tls.enabled"}},
			field{flag: "address", path: "address", kind: kindText, help: "`HOST:PORT`"},
			field{flag: "tls", path: "tls.enabled", kind: kindFlag,
				help: "speak TLS to it; the host name is verified"}),
		kind("http-response", "http_response", "HTTP response", []column{{"STATUS", "status_code"}},
			field{flag: "status-code", path: "status_code", kind: kindNumber,
				help: "`STATUS` of the answer, 200 to 599; default 200"},
			field{flag: "header", path: "headers", kind: kindPairs, help: "`NAME=VALUE` of a header; may be repeated"},
			field{flag: "body", path: "body", kind: kindText, help: "`TEXT` of the answer"},
			field{flag: "body-file", path: "body", kind: kindFile, help: "`FILE` with the text of the answer"}),
	}
}
