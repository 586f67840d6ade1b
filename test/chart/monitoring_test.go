// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const runbooks = "https://github.com/fairlead-dev/fairlead/blob/main/docs/fix/runbooks"

// alertingOn returns the values with a PrometheusRule.
func alertingOn(v values) values { return v.set("metrics.prometheusRule.enabled", true) }

// monitoredChart is a chart with what it ships for Prometheus and Grafana.
type monitoredChart struct {
	render     func(*testing.T, values) rendered
	values     values
	rules      string
	dashboards []string
}

func monitoredCharts() map[string]monitoredChart {
	return map[string]monitoredChart{
		serverRelease: {renderServer, values{}.set("metrics.enabled", true), "fairlead-server.rules.yaml",
			[]string{"fairlead-endpoint.json", "fairlead-service.json"}},
		release: {render, validValues(), "fairlead-operator.rules.yaml",
			[]string{"fairlead-exporter.json", "fairlead-operator.json"}},
	}
}

// runbookAddress matches the address of a runbook in a rule or a dashboard.
var runbookAddress = regexp.MustCompile(`https://[^"\s]*/(server|operator)\.md`)

// summarized returns render with rules and dashboards shortened to how many there are, and where
// their runbooks are.
func summarized(render func(*testing.T, values) rendered) func(*testing.T, values) rendered {
	summary := func(t *testing.T, what any) string {
		text, err := json.Marshal(what)
		must.Succeed(t, err)
		return "runbooks " + runbookAddress.FindString(string(text))
	}
	return func(t *testing.T, v values) rendered {
		t.Helper()
		all := render(t, v)
		for _, o := range all {
			switch {
			case o.GetKind() == "PrometheusRule":
				for _, group := range o.Object["spec"].(map[string]any)["groups"].([]any) {
					rules := group.(map[string]any)["rules"].([]any)
					group.(map[string]any)["rules"] = fmt.Sprintf("%d, %s", len(rules), summary(t, rules))
				}
			case strings.HasSuffix(o.GetName(), "-dashboards"):
				data := o.Object["data"].(map[string]any)
				for name, text := range data {
					data[name] = summary(t, text)
				}
			}
		}
		return all
	}
}

func readDocs(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", path))
	must.Succeed(t, err)
	return string(text)
}

// rulesOf returns the groups of the chart's PrometheusRule.
func rulesOf(t *testing.T, all rendered, name string) (object unstructured.Unstructured, groups []any) {
	t.Helper()
	object = get[unstructured.Unstructured](t, all, "PrometheusRule", name)
	groups, found, err := unstructured.NestedSlice(object.Object, "spec", "groups")
	if err != nil || !found {
		t.Fatalf("the rule has no groups: %v", err)
	}
	return object, groups
}

func TestMonitoring_OffByDefault(t *testing.T) {
	t.Parallel()
	for name, c := range monitoredCharts() {
		for _, o := range c.render(t, c.values) {
			if o.GetKind() == "PrometheusRule" || strings.HasSuffix(o.GetName(), "-dashboards") {
				t.Errorf("%s: %s %s", name, o.GetKind(), o.GetName())
			}
		}
	}
}

func TestPrometheusRule_HasTheRules(t *testing.T) {
	t.Parallel()
	for name, c := range monitoredCharts() {
		var want struct {
			Groups []any `json:"groups"`
		}
		source := readDocs(t, "prometheus/"+c.rules)
		if err := yaml.Unmarshal([]byte(source), &want); err != nil || len(want.Groups) == 0 {
			t.Fatalf("%s: %v", c.rules, err)
		}
		with := alertingOn(c.values).set("metrics.prometheusRule.labels", map[string]any{"release": "prometheus"})
		rule, groups := rulesOf(t, c.render(t, with), name)
		if diff := cmp.Diff(want.Groups, groups); diff != "" {
			t.Errorf("%s: the groups differ from docs/prometheus (-want +got):\n%s", name, diff)
		}
		if rule.GetAPIVersion() != "monitoring.coreos.com/v1" || rule.GetLabels()["release"] != "prometheus" ||
			rule.GetNamespace() != namespace {
			t.Errorf("%s: %s with labels %v", name, rule.GetAPIVersion(), rule.GetLabels())
		}
		_, groups = rulesOf(t, c.render(t, with.set("metrics.runbookURL", "https://wiki.example.com/r/")), name)
		text, err := json.Marshal(groups)
		must.Succeed(t, err)
		if n := strings.Count(string(text), `"https://wiki.example.com/r/`); strings.Contains(string(text), runbooks) ||
			n != strings.Count(source, "runbook_url:") {
			t.Errorf("%s: %d alerts lead to the runbooks of the values", name, n)
		}
	}
}

// TestPrometheusRule_LeavesAlertsOut disables all alerts but one: groups without rules go, recorded
// ratios stay.
func TestPrometheusRule_LeavesAlertsOut(t *testing.T) {
	t.Parallel()
	for name, c := range monitoredCharts() {
		var disabled []any
		for line := range strings.Lines(readDocs(t, "prometheus/"+c.rules)) {
			if alert, ok := strings.CutPrefix(strings.TrimSpace(line), "- alert: "); ok {
				disabled = append(disabled, alert)
			}
		}
		kept := disabled[len(disabled)-1]
		disabled = disabled[:len(disabled)-1]
		_, groups := rulesOf(t,
			c.render(t, alertingOn(c.values).set("metrics.prometheusRule.disabledAlerts", disabled)),
			name)
		var alerts []any
		for _, group := range groups {
			rules := group.(map[string]any)["rules"].([]any)
			if len(rules) == 0 {
				t.Errorf("%s: a group without rules: %v", name, group)
			}
			for _, rule := range rules {
				if alert := rule.(map[string]any)["alert"]; alert != nil {
					alerts = append(alerts, alert)
				}
			}
		}
		if len(groups) != 2 || !slices.Equal(alerts, []any{kept}) {
			t.Errorf("%s: %d groups with the alerts %v, want 2 with %v", name, len(groups), alerts, kept)
		}
	}
}

func TestDashboards_AreThoseOfDocs(t *testing.T) {
	t.Parallel()
	for name, c := range monitoredCharts() {
		v := c.values.set("metrics.dashboards.enabled", true).
			set("metrics.dashboards.annotations", map[string]any{"grafana_folder": "Fairlead"})
		m := get[corev1.ConfigMap](t, c.render(t, v), "ConfigMap", name+"-dashboards")
		if m.Labels["grafana_dashboard"] != "1" || m.Annotations["grafana_folder"] != "Fairlead" {
			t.Errorf("%s: labels %v, annotations %v", name, m.Labels, m.Annotations)
		}
		if len(m.Data) != len(c.dashboards) {
			t.Errorf("%s: %d dashboards", name, len(m.Data))
		}
		for _, file := range c.dashboards {
			if want := strings.TrimSpace(readDocs(t, "grafana/"+file)); m.Data[file] != want {
				t.Errorf("%s: %s differs from docs/grafana:\n%s", name, file, cmp.Diff(want, m.Data[file]))
			}
		}
		m = get[corev1.ConfigMap](t, c.render(t, v.set("metrics.runbookURL", "https://wiki.example.com/r")),
			"ConfigMap",
			name+"-dashboards")
		for file, text := range m.Data {
			if strings.Contains(text, runbooks) || !strings.Contains(text, "https://wiki.example.com/r/") {
				t.Errorf("%s: %s does not lead to the runbooks of the values", name, file)
			}
		}
	}
}

func TestMonitoring_Refusals(t *testing.T) {
	t.Parallel()
	set := func(path string, value any) values { return validValues().set(path, value) }
	checkRefusals(t, template, map[string]refusal{
		"alerts alone": {set("metrics",
			map[string]any{"enabled": false, "prometheusRule": map[string]any{"enabled": true}}),
			"metrics.prometheusRule.enabled needs metrics"},
		"alerts' label": {set("metrics.prometheusRule.labels", map[string]any{"helm.sh/chart": "x"}),
			`metrics.prometheusRule.labels holds "helm.sh/chart", which the chart sets itself`},
		"dashboards' label": {set("metrics.dashboards.labels", map[string]any{"helm.sh/chart": "x"}),
			`metrics.dashboards.labels holds "helm.sh/chart", which the chart sets itself`},
		"unknown alert": {set("metrics.prometheusRule.disabledAlerts", []any{"FairleadServerDown"}),
			`"FairleadServerDown" is no alert of this chart: take one of FairleadConnectionBudgetBurnsFast, `},
		"runbooks": {set("metrics.runbookURL", ""), `metrics.runbookURL "" is no address`},
	})
}
