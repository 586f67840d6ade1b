// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// effect is a case of one value of the chart: what it is set to, on top of other values where it
// needs them.
type effect struct {
	path  string
	value any
	with  values
}

// before returns the values that the case changes one of.
func (e effect) before(least values) values {
	switch {
	case e.with == nil, e.path == serviceAccountEnabled, // which excludes the secrets, required without it
		e.path == acmeTerms: // without which the directory is refused
		return least
	}
	return e.with
}

const (
	serviceAccountEnabled = "credentials.serviceAccount.enabled"
	acmeTerms             = "public.acme.agreeToTerms"
)

// effects has a case for every value of values.yaml, in its order.
func effects() []effect {
	proxied := validValues().set("proxy.httpsProxy", "http://proxy.example:3128")
	exporting := exportingValues()
	return slices.Concat([]effect{
		{"description", "production", nil},
		{"clusterName", "eu-1", nil},
		{"binding.enabled", false, nil},
		{"binding.endpointSelector", "ep.port == 80", nil},
		{"binding.projection", "endpointSlice", nil},
		{"binding.defaultAccess", "deny", nil},
		{"binding.admissionPolicy", false, nil},
		{"binding.removalDelay", "5m", nil},
		{"binding.takeoverDelay", "5m", nil},
		{"binding.sealed", "require", validValues().set("binding.sealAccount", "ac-1").set("binding.sealAuthority",
			"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")},
		{"binding.sealAccount", "ac-2", nil},
		{"binding.sealAuthority", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
			validValues().set("binding.sealAccount", "ac-1")},
		{"binding.sealCallerSecret", "seal-caller", validValues().set("binding.sealAccount", "ac-1")},
		{"binding.sealCallerToken", true, validValues().set("binding.sealAccount", "ac-1").set("binding.sealAuthority",
			"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")},
		{"binding.services.labels", map[string]any{"team": "web"}, nil},
		{"binding.services.annotations", map[string]any{"example.com/owner": "a, \"b\""}, nil},
		{"binding.services.endpointLabels", []any{"team", "example.com/*"}, nil},
		{"binding.namespaces.allow", []any{"team-a", "team-b"}, nil},
		{"binding.namespaces.deny", []any{"kube-*", "default"}, nil},
		{"binding.namespaces.selector", "fairlead=yes,team in (a,b)", nil},
		{"binding.namespaces.createRoles", false, validValues().set("binding.namespaces.allow", []any{"team-a"})},
		{"binding.portRange", "20000-20999", nil},
		{"binding.acceptAccount", "ac-2", nil},
		{"export.enabled", true, validValues().set("credentials.exporterApiKey", "flk_exporter")},
		{"export.crossNamespace", true, exporting},
		{"export.policyConfigMaps", false, exporting},
		{"export.urls", []any{"http://*.shared", "tcp://db.*:5432"}, exporting},
		{"export.aggregateRoles", false, exporting},
		{"export.services", true, exporting},
		{"export.clusterID", "eu-1", clustersetValues()},
		{"export.sealSecret", "seal", exporting},
		{"export.sealCallers", "callers", exporting.set("export.sealSecret", "seal")},
		{"clusterset.enabled", true, nil},
		{"clusterset.domain", "mesh.example", clustersetValues()},
		{"export.drainTimeout", "90s", exporting},
		{"credentials.apiKey", "flk_other", nil},
		{"credentials.authtoken", "flt_other", nil},
		{"credentials.exporterApiKey", "flk_other", exporting},
		{"credentials.existingSecret", "mine", values{"api": map[string]any{"url": "https://fairlead.example.com"},
			"credentials": map[string]any{"existingSecret": "theirs"}}},
		{serviceAccountEnabled, true, federatedValues()},
		{"credentials.serviceAccount.accountID", "ac-2", federatedValues()},
		{"credentials.serviceAccount.audience", "https://other.example.com:8443/accounts/ac-1", federatedValues()},
		{"api.url", "https://other.example.com:8443", nil},
		{"api.caBundle", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", nil},
		{"api.versionHeader", "X-Version", nil},
		{"edge.address", "edge.example.com:9443", nil},
		{"proxy.httpsProxy", "http://user:password@proxy.example:3128", nil},
		{"proxy.noProxy", ".corp.example,192.0.2.0/24", proxied},
		{"clusterDomain", "corp.example", nil},
		{"image.repository", "registry.example.com:5000/mirror/fairlead-operator", nil},
		{"image.tag", "v9.9.9", nil},
		{"image.digest", "sha256:" + strings.Repeat("0a", 32), nil},
		{"image.pullPolicy", "Always", nil},
		{"imagePullSecrets", []any{map[string]any{"name": "registry"}}, nil},
	}, metricsEffects(), []effect{
		{"networkPolicy.enabled", true, nil},
		{"networkPolicy.apiServerPorts", []any{443, 16443}, exporting.set("networkPolicy.enabled", true)},
		{"crds.install", false, nil},
		{"crds.keep", false, nil},
		{"forwarder.drainTimeout", "2h", nil},
		{"forwarder.podIdentity.enabled", true, nil},
		{"forwarder.podIdentity.annotations", []any{"example.com/team", "caller-*"},
			validValues().set("forwarder.podIdentity.enabled", true)},
	}, autoscalingEffects(), podEffects(), policyEffects(validValues()))
}

func autoscalingEffects() []effect {
	scaled := validValues().set("forwarder.autoscaling.enabled", true)
	return []effect{
		{"forwarder.autoscaling.enabled", true, nil},
		{"forwarder.autoscaling.minReplicas", 3, scaled},
		{"forwarder.autoscaling.maxReplicas", 50, scaled},
		{"forwarder.autoscaling.targetCPU", 0, scaled.set("forwarder.autoscaling.targetConnections", 500)},
		{"forwarder.autoscaling.targetConnections", 500, scaled},
	}
}

// policyEffects are the cases of what both charts have alike. A key that is null is removed.
func policyEffects(with values) []effect {
	return []effect{
		{"podSecurityContext.runAsNonRoot", false, with},
		{"podSecurityContext.runAsUser", nil, with},
		{"podSecurityContext.runAsGroup", nil, with},
		{"podSecurityContext.fsGroup", nil, with},
		{"podSecurityContext.seccompProfile.type", "Unconfined", with},
		{"securityContext.allowPrivilegeEscalation", nil, with},
		{"securityContext.readOnlyRootFilesystem", false, with},
		{"securityContext.runAsNonRoot", nil, with},
		{"securityContext.capabilities.drop", []any{"NET_RAW"}, with},
		{"hostAliases", []any{map[string]any{"ip": "192.0.2.1", "hostnames": []any{"fairlead.example.com"}}}, with},
	}
}

// environmentCase is a variable of each kind.
func environmentCase() []any {
	return []any{map[string]any{"name": "GOMEMLIMIT", "value": "400MiB"}, map[string]any{"name": "NODE_NAME",
		"valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "spec.nodeName"}}}}
}

// metricsEffects are the cases of metrics.
func metricsEffects() []effect {
	monitored := validValues().set("metrics.podMonitor.enabled", true)
	alerting, dashboards := alertingOn(validValues()), validValues().set("metrics.dashboards.enabled", true)
	return []effect{
		{"metrics.enabled", false, nil},
		{"metrics.port", 9090, monitored},
		{"metrics.podMonitor.enabled", true, nil},
		{"metrics.podMonitor.interval", "1m", monitored},
		{"metrics.podMonitor.labels", map[string]any{"release": "prometheus"}, monitored},
		{"metrics.prometheusRule.enabled", true, nil},
		{"metrics.prometheusRule.labels", map[string]any{"release": "prometheus"}, alerting},
		{"metrics.prometheusRule.disabledAlerts", []any{"FairleadForwarderLacksReplicas"}, alerting},
		{"metrics.dashboards.enabled", true, nil},
		{"metrics.dashboards.labels.grafana_dashboard", "yes", dashboards},
		{"metrics.dashboards.annotations", map[string]any{"grafana_folder": "Fairlead"}, dashboards},
		{"metrics.runbookURL", "https://wiki.example.com/fairlead/", alerting},
	}
}

// podEffects are the cases of what manager, forwarder and exporter have alike.
func podEffects() []effect {
	texts := map[string]any{"example.com/name": "text"}
	var all []effect
	for _, component := range []string{"manager", "forwarder", "export"} {
		with := validValues()
		if component == "export" {
			with = exportingValues()
		}
		all = append(all,
			effect{component + ".replicas", 5, with},
			effect{component + ".resources.requests.cpu", "1", with},
			effect{component + ".resources.requests.memory", "1Gi", with},
			effect{component + ".resources.limits.memory", "2Gi", with},
			effect{component + ".priorityClassName", "system-cluster-critical", with},
			effect{component + ".nodeSelector", texts, with},
			effect{component + ".tolerations",
				[]any{map[string]any{"key": "edge", "operator": "Exists", "effect": "NoSchedule"}}, with},
			effect{component + ".affinity",
				map[string]any{"nodeAffinity": map[string]any{
					"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
						"nodeSelectorTerms": []any{
							map[string]any{
								"matchExpressions": []any{map[string]any{"key": "edge", "operator": "Exists"}}}},
					}}}, with},
			effect{component + ".topologySpreadConstraints", []any{
				map[string]any{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
					"whenUnsatisfiable": "DoNotSchedule"},
				map[string]any{"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway",
					"labelSelector": map[string]any{"matchLabels": texts}},
			}, with},
			effect{component + ".podLabels", texts, with},
			effect{component + ".podAnnotations",
				map[string]any{"prometheus.io/scrape": "false", "example.com/name": "text"},
				with},
			effect{component + ".extraEnv", environmentCase(), with},
			effect{component + ".podDisruptionBudget.enabled", false, with},
		)
	}
	return all
}

// Every value changes what is installed, in the way that testdata/effects.out.txt shows, and the
// program accepts the result. A value without a case fails.
func TestValues_EveryOneHasAnEffect(t *testing.T) {
	t.Parallel()
	program := &checker{mounts: mountedFiles(t)}
	everyValue(t, chartDir, "testdata/effects.out.txt", validValues(), effects(), summarized(render), program.check)
}

// everyValue changes one value after the other and compares what that changes with a file. Every
// value must have a case.
func everyValue(
	t *testing.T, dir, file string, least values, cases []effect, render func(*testing.T, values) rendered,
	check func(*testing.T, rendered),
) {
	t.Helper()
	covered := make([]string, len(cases))
	for i, e := range cases {
		covered[i] = e.path
	}
	if diff := cmp.Diff(documented(t, dir), slices.Sorted(slices.Values(covered))); diff != "" {
		t.Fatalf(
			"values of values.yaml (-) against cases of effects (+): add a case and run `go test ./test/chart "+
				"-update`:\n%s",
			diff)
	}
	results := make([]string, len(cases))
	before := map[string]flat{} // by the values
	for _, e := range cases {
		if key := fmt.Sprint(e.before(least)); before[key] == nil {
			before[key] = flatten(render(t, e.before(least)))
		}
	}
	t.Run("values", func(t *testing.T) {
		for i, e := range cases {
			t.Run(e.path, func(t *testing.T) {
				t.Parallel()
				with := e.with
				if with == nil {
					with = least
				}
				after := render(t, with.set(e.path, e.value))
				changes := difference(before[fmt.Sprint(e.before(least))], flatten(after))
				if len(changes) == 0 {
					t.Errorf("%s changes nothing", e.path)
				}
				value, _ := json.Marshal(e.value)
				results[i] = fmt.Sprintf("%s: %s\n  %s\n", e.path, value, strings.Join(changes, "\n  "))
				check(t, after)
			})
		}
	})
	got := strings.Join(results, "\n")
	if *update {
		must.Succeed(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" || err != nil {
		t.Errorf("%s differs (-want +got, %v); `go test ./test/chart -update` writes it anew:\n%s", file, err, diff)
	}
}

// documented are the paths of all values of values.yaml, sorted. An empty map or list is a value
// too.
func documented(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	must.Succeed(t, err)
	var root map[string]any
	must.Succeed(t, yaml.Unmarshal(b, &root))
	var paths []string
	var walk func(prefix string, node map[string]any)
	walk = func(prefix string, node map[string]any) {
		for name, child := range node {
			if group, ok := child.(map[string]any); ok && len(group) > 0 {
				walk(prefix+name+".", group)
				continue
			}
			paths = append(paths, prefix+name)
		}
	}
	walk("", root)
	slices.Sort(paths)
	return paths
}

// flat is a rendered chart as lines: object -> path within it -> value.
type flat map[string]map[string]string

// flatten leaves the CRDs' schemas out.
func flatten(all rendered) flat {
	result := flat{}
	for _, o := range all {
		object := o.Object
		if o.GetKind() == "CustomResourceDefinition" {
			object = map[string]any{"metadata": object["metadata"]}
		}
		lines := map[string]string{}
		flattenNode(lines, "", object)
		result[o.GetKind()+" "+o.GetName()] = lines
	}
	return result
}

// flattenNode names elements of lists by their name or their text where they have one, so that an
// additional element does not move the others.
func flattenNode(lines map[string]string, path string, node any) {
	switch n := node.(type) {
	case map[string]any:
		for key, child := range n {
			flattenNode(lines, path+"."+key, child)
		}
	case []any:
		for i, child := range n {
			index := fmt.Sprint(i)
			if text, ok := child.(string); ok {
				index = text
			} else if name, ok, _ := unstructured.NestedString(asMap(child), "name"); ok {
				index = name
			}
			flattenNode(lines, path+"["+index+"]", child)
		}
	default:
		text := fmt.Sprintf("%#v", n)
		if strings.Contains(path, "checksum/") {
			text = text[:9] + `…"`
		}
		lines[path] = text
	}
}

func asMap(node any) map[string]any {
	m, _ := node.(map[string]any)
	return m
}

// difference lists what goes (-) and what comes (+). An object that goes is one line.
func difference(before, after flat) []string {
	var changes []string
	for object, lines := range before {
		if after[object] == nil {
			changes = append(changes, object+" -")
			continue
		}
		for path, value := range lines {
			if after[object][path] != value {
				changes = append(changes, fmt.Sprintf("%s %s -%s", object, path, value))
			}
		}
	}
	for object, lines := range after {
		for _, path := range slices.Collect(maps.Keys(lines)) {
			if before[object][path] != lines[path] {
				changes = append(changes, fmt.Sprintf("%s %s +%s", object, path, lines[path]))
			}
		}
	}
	slices.Sort(changes)
	return changes
}
