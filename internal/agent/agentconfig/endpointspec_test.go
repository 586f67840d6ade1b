// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agentconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/trust"
)

func parseSpecs(t *testing.T, text string) (specs []*EndpointSpec, problems []error, path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "config.yaml")
	for name, content := range map[string]string{
		"config.yaml": text, "policy.yml": "on_http_request: []\n", "empty.yml": " \n",
		"long.yml": strings.Repeat("# filler\n", account.MaxTrafficPolicy),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Load(Flags{Config: path}, func(string) string { return "" }, nil)
	if err != nil {
		t.Fatal(err)
	}
	specs, problems = s.EndpointSpecs()
	return specs, problems, path
}

func TestEndpointSpecs_ReadEveryField(t *testing.T) {
	t.Parallel()
	got, problems, path := parseSpecs(t, `
server_url: https://a
endpoints:
  - name: web
    url: http://web.demo
    binding: internal
    upstream: 8080
    upstream_protocol: http2
    upstream_ca_file: ca.crt
    upstream_ca_sha256: ab
    upstream_server_name: api.corp
    proxy_protocol: 2
    description: d
    metadata: m
    host_header: rewrite
    pooling_enabled: true
    replace_pool_policy: yes
    traffic_policy_file: policy.yml
  - {name: inline, traffic_policy: {on_http_request: [{actions: [{type: deny}]}]}}
  - name: text
    traffic_policy: |
      on_tcp_connect: []
    description:
tunnels:
  - name: api
    labels: {app: api, port: 8080}
    upstream: http://localhost:80
    metadata: &m mm
  - {name: other, metadata: *m}
`)
	want := []*EndpointSpec{
		{Line: 4, URLText: "http://web.demo", Target: "8080", ServerName: "api.corp",
			Trust: trust.Options{CAFile: filepath.Join(filepath.Dir(path), "ca.crt"), CASHA256: "ab"},
			Endpoint: agent.Endpoint{Name: "web", Binding: "internal",
				Upstream: agent.Upstream{Protocol: "http2", ProxyProtocol: "2"}, Description: "d", Metadata: "m",
				HostMode: "rewrite", PoolingEnabled: true, ReplacePoolPolicy: true,
				TrafficPolicy:     "on_http_request: []\n",
				TrafficPolicyFile: filepath.Join(filepath.Dir(path), "policy.yml")}},
		{Line: 19, Endpoint: agent.Endpoint{Name: "inline", Binding: "kubernetes",
			TrafficPolicy: "{on_http_request: [{actions: [{type: deny}]}]}\n"}},
		{Line: 20, Endpoint: agent.Endpoint{Name: "text", Binding: "kubernetes",
			TrafficPolicy: "on_tcp_connect: []\n"}},
		{Line: 25, Tunnel: true, Target: "http://localhost:80", Endpoint: agent.Endpoint{Name: "api",
			Labels: map[string]string{"app": "api", "port": "8080"}, Metadata: "mm"}},
		{Line: 29, Tunnel: true, Endpoint: agent.Endpoint{Name: "other", Metadata: "mm"}},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(EndpointSpec{})); diff != "" || len(problems) > 0 {
		t.Errorf("%v; (-want +got)\n%s", problems, diff)
	}
}

func TestEndpointSpecs_ErrorsNameFileLineAndField(t *testing.T) {
	t.Parallel()
	//nolint:lll // one case a line
	for text, want := range map[string]string{
		"endpoints:\n- name: a\n  colour: red":                                          "line 3: endpoint \"a\": unknown field \"colour\"; known fields are name, url",
		"tunnels:\n- name: a\n  url: http://a.b":                                        "line 3: tunnel \"a\": unknown field \"url\"; known fields are name, labels",
		"endpoints:\n- name: a\n  url: [x]":                                             "line 3: endpoint \"a\": url must be a text",
		"endpoints:\n- name: a\n  url: x\n  url: y":                                     "field \"url\" appears twice",
		"endpoints:\n- name: a\n  pooling_enabled: maybe":                               "line 3: endpoint \"a\": pooling_enabled \"maybe\": must be true or false",
		"endpoints:\n- name: a\n  traffic_policy_file: none.yml":                        "none.yml\" does not exist",
		"endpoints:\n- name: a\n  traffic_policy_file: empty.yml":                       "empty.yml\" is empty",
		"endpoints:\n- name: a\n  traffic_policy_file: long.yml":                        "a traffic policy has at most 65536",
		"endpoints:\n- name: a\n  traffic_policy_file:":                                 "must be the path of a file",
		"endpoints:\n- name: a\n  traffic_policy: x\n  traffic_policy_file: policy.yml": "exclude each other",
		"tunnels:\n- name: a\n  labels: app=api":                                        "labels must be a mapping, as in \"app: api\"",
		"tunnels:\n- name: a\n  labels: {a: [b]}":                                       "the value of label \"a\" must be a text",
		"tunnels:\n- name: a\n  labels: {a: b, a: c}":                                   "label \"a\" appears twice",
	} {
		specs, problems, path := parseSpecs(t, text)
		if len(problems) > 0 || len(specs) != 1 || len(specs[0].Errors) != 1 {
			t.Errorf("%q: %v %v", text, specs, problems)
			continue
		}
		if got := specs[0].Errors[0].Error(); !strings.Contains(got, want) ||
			!strings.HasPrefix(got, "config file \""+path+"\" line ") {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

func TestEndpointSpecs_RefuseItemsWithoutUsableName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"endpoints: web":                  "line 1: endpoints must be a list",
		"tunnels: {name: a}":              "line 1: tunnels must be a list",
		"endpoints:\n- web":               "line 2: endpoints[0] must have fields",
		"endpoints:\n- url: http://a.b":   "line 2: endpoints[0]: name \"\": each entry needs a name",
		"endpoints:\n- name: -a":          "not begin with '-'",
		"endpoints:\n- name: a b":         "without spaces",
		"endpoints:\n- name: \"a\\e[2J\"": "must be printable",
		"endpoints:\n- name: [a]":         "each entry needs a name",
		"endpoints:\n- name: " + strings.Repeat("x", account.MaxName+1): "at most 128 are allowed",
		"endpoints:\n- name: a\ntunnels:\n- name: a":                    "line 4: the name \"a\" is taken by the entry at line 2",
	} {
		if _, problems, _ := parseSpecs(t, text); len(problems) != 1 || !strings.Contains(problems[0].Error(), want) {
			t.Errorf("%q: got %v, want %s", text, problems, want)
		}
	}
	if specs, problems, _ := parseSpecs(t, "endpoints:\ntunnels: []\n"); len(specs) != 0 || len(problems) != 0 {
		t.Errorf("empty lists: %v, %v", specs, problems)
	}
}

// TestSave_KeepsInvalidEndpointSpecs: commands other than start ignore the endpoints of the file,
// and storing an authtoken keeps them.
func TestSave_KeepsInvalidEndpointSpecs(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "config.yaml")
	const list = "endpoints:\n  - name: web # mine\n    url: [wrong]\n"
	if err := os.WriteFile(path, []byte("server_url: https://a\n"+list), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Save(path, map[string]string{KeyAuthtoken: tokenA}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(got), list) || !strings.Contains(string(got), tokenA) {
		t.Errorf("%v\n%s", err, got)
	}
}
