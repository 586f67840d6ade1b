// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package main

// policyScenario is a set of NetworkPolicies, "NAMESPACE SPEC" each, and what holds under them.
// Every scenario names questions of both kinds, so that none holds without enforcement or with all
// traffic cut.
type policyScenario struct {
	name       string
	policies   []string
	pass, drop string // questions "FROM>TO:PORT"
}

// isolating are scenarios of which pods are isolated, in which direction.
func isolating() []policyScenario {
	return []policyScenario{
		{"a selected pod denies ingress, and no other pod does",
			[]string{`a {podSelector: {matchLabels: {app: two}}}`},
			"a/one>b/one:8080 b/one>a/one:8080 a/two>a/one:8080 a/two>b/one:8080 a/host>a/two:8080",
			"a/one>a/two:8080 a/one>a/two:9090 b/one>a/two:8080 c/one>a/two:8080"},
		{"a whole namespace denies ingress, its own included", []string{`a {podSelector: {}}`},
			"a/one>b/one:8080 b/one>c/one:8080 a/host>a/one:8080",
			"a/one>a/two:8080 a/two>a/one:8080 b/one>a/one:8080"},
		{"egress is denied, ingress is not",
			[]string{`a {podSelector: {matchLabels: {app: one}}, policyTypes: [Egress]}`},
			"a/two>a/one:8080 b/one>a/one:8080 a/two>b/one:8080", "a/one>a/two:8080 a/one>b/one:8080 a/one>dns:53/udp"},
		{"both directions are denied",
			[]string{`a {podSelector: {matchLabels: {app: one}}, policyTypes: [Ingress, Egress]}`},
			"a/two>b/one:8080 b/one>a/two:8080", "a/one>a/two:8080 a/two>a/one:8080"},
		{"a pod always reaches itself, directly and by its Service",
			[]string{`a {podSelector: {}, policyTypes: [Ingress, Egress]}`},
			"a/one>a/one:8080 a/one>service:80", "a/two>service:80 a/two>a/one:8080"},
		{"policyTypes without Egress ignore egress rules",
			[]string{`a {podSelector: {matchLabels: {app: one}}, policyTypes: [Ingress], egress: []}`},
			"a/one>b/one:8080", "b/one>a/one:8080"},
		{"egress rules without policyTypes isolate both ways",
			[]string{`a {podSelector: {matchLabels: {app: one}}, egress: [{ports: [{port: 8080}]}]}`},
			"a/one>b/one:8080", "a/one>b/one:9090 b/one>a/one:8080"},
		{"an empty ingress rule allows everything, an empty list nothing",
			[]string{`a {podSelector: {matchLabels: {app: one}}, ingress: [{}]}`,
				`a {podSelector: {matchLabels: {app: two}}, ingress: []}`},
			"b/one>a/one:8080 b/one>a/one:9090", "b/one>a/two:8080"},
		{"a policy of one namespace isolates none of another", []string{`b {podSelector: {matchLabels: {app: one}}}`},
			"b/one>a/one:8080 b/one>c/one:8080 a/one>b/two:9090", "a/one>b/one:8080"},
		{"a policy that selects no pod isolates none", []string{`a {podSelector: {matchLabels: {app: none}}}`,
			`b {podSelector: {matchLabels: {app: one}}}`}, "b/one>a/one:8080", "a/one>b/one:8080"},
		{"a host-network pod is not subject", []string{`a {podSelector: {}, policyTypes: [Ingress, Egress]}`},
			"a/host>b/one:8080 b/one>a/host:18080 a/host>a/one:8080", "a/one>b/one:8080 a/one>a/host:18080"},
		{"expressions select",
			[]string{`a {podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [one]}]}}`},
			"b/one>a/one:8080", "b/one>a/two:8080"},
		{"both ends must allow: egress alone is not enough",
			[]string{`a {podSelector: {matchLabels: {app: one}}, policyTypes: [Egress], egress: [{}]}`,
				`b {podSelector: {matchLabels: {app: one}}}`},
			"a/one>c/one:8080", "a/one>b/one:8080"},
		{"both ends must allow: ingress alone is not enough",
			[]string{`b {podSelector: {matchLabels: {app: one}}, ingress: [{}]}`,
				`a {podSelector: {matchLabels: {app: one}}, policyTypes: [Egress]}`},
			"a/two>b/one:8080", "a/one>b/one:8080"},
	}
}

// choosing are scenarios of peers.
func choosing() []policyScenario {
	ingress := func(peers string) []string {
		return []string{`a {podSelector: {matchLabels: {app: one}}, ingress: [{from: [` + peers + `]}]}`}
	}
	return []policyScenario{
		{"a podSelector means the policy's namespace", ingress(`{podSelector: {matchLabels: {app: two}}}`),
			"a/two>a/one:8080", "b/two>a/one:8080 b/one>a/one:8080"},
		{"the empty podSelector means the namespace, too", ingress(`{podSelector: {}}`), "a/two>a/one:8080",
			"b/two>a/one:8080 c/one>a/one:8080"},
		{"a namespaceSelector means all its pods", ingress(`{namespaceSelector: {matchLabels: {team: blue}}}`),
			"b/one>a/one:8080 b/two>a/one:8080 c/one>a/one:8080", "a/two>a/one:8080"},
		{"the empty namespaceSelector means all namespaces", append(ingress(`{namespaceSelector: {}}`),
			`b {podSelector: {matchLabels: {app: one}}}`), "a/two>a/one:8080 c/one>a/one:8080", "c/one>b/one:8080"},
		{"both selectors of one peer must match",
			ingress(`{namespaceSelector: {matchLabels: {team: blue}}, podSelector: {matchLabels: {app: one}}}`),
			"b/one>a/one:8080 c/one>a/one:8080", "b/two>a/one:8080 a/two>a/one:8080"},
		{"selectors of two peers unite",
			ingress(`{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: b}}},
				{podSelector: {matchLabels: {app: two}}}`),
			"b/one>a/one:8080 b/two>a/one:8080 a/two>a/one:8080", "c/one>a/one:8080"},
		{"a namespace by its name",
			ingress(`{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: b}}}`),
			"b/one>a/one:8080", "c/one>a/one:8080"},
		{"a peer that selects nothing allows nothing", append(ingress(`{podSelector: {matchLabels: {app: none}}}`),
			`a {podSelector: {matchLabels: {app: two}}, ingress: [{}]}`), "a/one>a/two:8080", "a/two>a/one:8080"},
		{"policies unite", append(ingress(`{podSelector: {matchLabels: {app: two}}}`),
			`a {podSelector: {}, ingress: [{ports: [{port: 9090}], from: [
				{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: b}}}]}]}`),
			"a/two>a/one:8080 b/one>a/one:9090 b/one>a/two:9090",
			"b/one>a/one:8080 a/one>a/two:9090 c/one>a/one:9090"},
		{"egress to pods of a namespace",
			[]string{`a {podSelector: {matchLabels: {app: one}}, policyTypes: [Egress], egress: [{to: [
				{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: b}}}]}]}`},
			"a/one>b/one:8080 a/one>b/two:9090", "a/one>a/two:8080 a/one>c/one:8080 a/one>a/host:18080"},
		{"a block allows its addresses", ingress(`{ipBlock: {cidr: $b/one/4}}, {ipBlock: {cidr: "$b/one/6"}}`),
			"b/one>a/one:8080", "b/two>a/one:8080 a/two>a/one:8080"},
		{"a block without its exceptions",
			ingress(`{ipBlock: {cidr: 10.244.0.0/16, except: [$b/one/4, $b/two/4]}},
				{ipBlock: {cidr: "fd44::/64", except: ["$b/one/6", "$b/two/6"]}}`),
			"c/one>a/one:8080 a/two>a/one:8080", "b/one>a/one:8080 b/two>a/one:8080"},
		{"an exception of one block is not one of another",
			ingress(`{ipBlock: {cidr: 0.0.0.0/0, except: [$b/one/4, $b/two/4]}}, {ipBlock: {cidr: $b/one/4}},
				{ipBlock: {cidr: "::/0", except: ["$b/one/6", "$b/two/6"]}}, {ipBlock: {cidr: "$b/one/6"}}`),
			"b/one>a/one:8080 c/one>a/one:8080", "b/two>a/one:8080"},
		{"egress to a block is egress to the node, too",
			[]string{`a {podSelector: {matchLabels: {app: one}}, policyTypes: [Egress], egress: [{to: [
				{ipBlock: {cidr: $a/host/4}}, {ipBlock: {cidr: "$a/host/6"}}]}]}`},
			"a/one>a/host:18080", "a/one>b/one:8080"},
		{"selectors match no host-network pod",
			[]string{`a {podSelector: {matchLabels: {app: one}}, policyTypes: [Egress], egress: [
				{to: [{podSelector: {}}]}]}`},
			"a/one>a/two:8080", "a/one>a/host:18080"},
	}
}

// narrowing are scenarios of ports and protocols.
func narrowing() []policyScenario {
	ingress := func(namespace, ports string) string {
		return namespace + ` {podSelector: {}, ingress: [{ports: [` + ports + `]}]}`
	}
	egress := func(ports string) []string {
		return []string{`a {podSelector: {matchLabels: {app: one}}, policyTypes: [Egress], egress: [
			{ports: [` + ports + `]}]}`}
	}
	return []policyScenario{
		{"a port", []string{ingress("b", `{port: 8080}`)}, "a/one>b/one:8080 a/one>b/two:8080",
			"a/one>b/one:9090 a/one>b/two:9090"},
		{"a named port is the pod's own number", []string{ingress("b", `{port: http}`)},
			"a/one>b/one:8080 a/one>b/two:9090", "a/one>b/one:9090 a/one>b/two:8080"},
		{"a named port of egress is the destination's number", egress(`{port: http}`),
			"a/one>b/one:8080 a/one>b/two:9090", "a/one>b/one:9090 a/one>b/two:8080"},
		{"a name that no port has allows nothing", []string{ingress("b", `{port: none}`)}, "b/one>a/one:8080",
			"a/one>b/one:8080"},
		{"a range ends at endPort", []string{ingress("b", `{port: 8000, endPort: 8080}`)}, "a/one>b/one:8080",
			"a/one>b/one:9090 a/one>b/one:8081"},
		{"a range of one below the port", []string{ingress("b", `{port: 8081, endPort: 9090}`)}, "a/one>b/one:9090",
			"a/one>b/one:8080"},
		{"ports that overlap unite", []string{ingress("b", `{port: 8080}, {port: 8000, endPort: 8090}, {port: 8080}`)},
			"a/one>b/one:8080", "a/one>b/one:9090"},
		{"a protocol alone is all its ports", egress(`{protocol: UDP}`), "a/one>dns:53/udp",
			"a/one>dns:9153 a/one>b/one:8080"},
		{"a port is of TCP unless it says otherwise", egress(`{port: 53}, {port: 8080}`), "a/one>b/one:8080",
			"a/one>dns:53/udp"},
		{"a Service is judged by its pods' port, not its own", []string{ingress("a", `{port: 8080}`)},
			"b/one>service:80 b/one>a/one:8080", "b/one>a/one:9090 b/one>a/two:9090"},
		{"the port of a Service opens nothing", []string{ingress("a", `{port: 80}`)}, "b/one>c/one:8080",
			"b/one>service:80 b/one>a/one:8080"},
		{"egress to a Service is to its pods", []string{`a {podSelector: {}, policyTypes: [Egress], egress: [{to: [
			{podSelector: {matchLabels: {app: two}}}]}]}`}, "a/one>a/two:8080 b/one>service:80",
			"a/two>service:80 a/one>b/one:8080"},
	}
}
