// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/test/support/inputs"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// requirePromtool is the environment variable that forbids to skip tests because promtool is
// missing.
const requirePromtool = "FAIRLEAD_REQUIRE_PROMTOOL"

// promtool runs promtool, of Debian's package prometheus, and returns what it prints.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	inputs.Record(t, "testdata", filepath.Join(root, "docs/prometheus"))
	path, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv(requirePromtool) != "" {
			t.Fatalf("%v: hack/deps.sh installs it", err)
		}
		t.Skipf("%v: hack/deps.sh installs it", err)
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	return string(out), err
}

func TestRules_FireOnTheirSeries(t *testing.T) {
	t.Parallel()
	for _, file := range list(t, "test/monitoring/testdata/*.test.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			if out, err := promtool(t, "test", "rules", file); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// ruleTest is a unit test of an alert.
type ruleTest struct {
	Name        string `json:"name"`
	InputSeries []any  `json:"input_series"`
	Expressions []struct {
		Expr    string `json:"expr"`
		Samples []any  `json:"exp_samples"`
	} `json:"promql_expr_test"`
}

func TestRules_HaveUnitTests(t *testing.T) {
	t.Parallel()
	firing := map[string]bool{}
	for _, file := range list(t, "test/monitoring/testdata/*.test.yaml") {
		var tests struct {
			Tests []ruleTest `json:"tests"`
		}
		if err := yaml.Unmarshal([]byte(read(t, file)), &tests); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, test := range tests.Tests {
			for _, e := range test.Expressions {
				if strings.Contains(e.Expr, fmt.Sprintf("alertname=%q", test.Name)) && len(e.Samples) > 0 {
					firing[test.Name] = true
				}
			}
		}
	}
	each(t, func(file string, r rule) {
		if r.Alert != "" && !firing[r.Alert] {
			t.Errorf("%s: no unit test of test/monitoring/testdata expects %s to fire", file, r.Alert)
		}
		delete(firing, r.Alert)
	})
	for name := range firing {
		t.Errorf("there are tests of %s, and no such alert", name)
	}
}

// runbookBase is where rules and dashboards say that the runbooks are; the charts replace it.
const runbookBase = "https://github.com/fairlead-dev/fairlead/blob/main/docs/fix/runbooks/"

// sections returns the parts of a runbook page below each alert's heading, by its anchor.
func sections(t *testing.T, page string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for i, part := range strings.Split(read(t, filepath.Join(root, "docs/fix/runbooks", page)), "\n## ") {
		if name, text, _ := strings.Cut(part, "\n"); i > 0 && strings.HasPrefix(name, "Fairlead") {
			found[strings.ToLower(name)] = text
		}
	}
	return found
}

func TestAlerts_HaveRunbooks(t *testing.T) {
	t.Parallel()
	pages := map[string]map[string]string{"server.md": sections(t, "server.md"),
		"operator.md": sections(t, "operator.md")}
	each(t, func(file string, r rule) {
		if r.Alert == "" {
			return
		}
		for _, name := range []string{"summary", "description"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s: %s has no %s", file, r.Alert, name)
			}
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: %s has the severity %q", file, r.Alert, r.Labels["severity"])
		}
		address, ok := strings.CutPrefix(r.Annotations["runbook_url"], runbookBase)
		page, anchor, _ := strings.Cut(address, "#")
		if !ok || anchor != strings.ToLower(r.Alert) || pages[page][anchor] == "" {
			t.Errorf("%s: %s names the runbook %s, which does not exist", file, r.Alert, r.Annotations["runbook_url"])
			return
		}
		for _, part := range []string{"**Meaning.**", "**Impact.**", "**Check first.**", "**Remedies.**", "```"} {
			if !strings.Contains(pages[page][anchor], part) {
				t.Errorf("docs/fix/runbooks/%s: the section %s lacks %s", page, r.Alert, part)
			}
		}
		pages[page][anchor] = "used"
	})
	for page, alerts := range pages {
		for anchor, text := range alerts {
			if text != "used" {
				t.Errorf("docs/fix/runbooks/%s: no alert has the section %s", page, anchor)
			}
		}
	}
}

func TestExpressions_ParseWithPromtool(t *testing.T) {
	t.Parallel()
	type recorded struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []recorded
	for at, expr := range expressions(t) {
		rules = append(rules, recorded{"a:" + regexp.MustCompile(`[^a-zA-Z0-9_]`).ReplaceAllString(at, "_"), expr})
	}
	check := func(rules []recorded) (string, error) {
		text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "all", "rules": rules}}})
		must.Succeed(t, err)
		file := filepath.Join(t.TempDir(), "rules.yaml")
		must.Succeed(t, os.WriteFile(file, text, 0o600))
		return promtool(t, "check", "rules", file)
	}
	if out, err := check(rules); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := check(append(rules, recorded{"a:broken", "sum by (x) (rate(up[5m])"})); err == nil {
		t.Error("promtool takes an expression that lacks a parenthesis, so this test proves nothing")
	}
}

func TestLinks_OfDashboardsExist(t *testing.T) {
	t.Parallel()
	for file, d := range readDashboards(t) {
		links := d.Links
		for _, p := range d.Panels {
			links = append(links, p.Links...)
		}
		found := 0
		for _, l := range links {
			address, ok := strings.CutPrefix(l.URL, runbookBase)
			if !ok {
				continue
			}
			u, err := url.Parse(address)
			must.Succeed(t, err)
			if found++; u.Fragment != "" && sections(t, u.Path)[u.Fragment] == "" {
				t.Errorf("%s: %s: there is no section %s in docs/fix/runbooks/%s", file, l.Title, u.Fragment, u.Path)
			}
		}
		if found < 2 {
			t.Errorf("%s: only %d links to runbooks", file, found)
		}
	}
}
