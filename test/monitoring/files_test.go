// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// rule is a rule of Prometheus.
type rule struct {
	Record      string            `json:"record"`
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ruleFile is a file of rules.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	} `json:"groups"`
}

// dashboard is a Grafana dashboard, as far as the tests look at it.
type dashboard struct {
	UID           string   `json:"uid"`
	Title         string   `json:"title"`
	Tags          []string `json:"tags"`
	SchemaVersion int      `json:"schemaVersion"`
	Templating    struct {
		List []struct {
			Name       string     `json:"name"`
			Type       string     `json:"type"`
			Datasource datasource `json:"datasource"`
			Definition string     `json:"definition"`
			Query      any        `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Links  []link  `json:"links"`
	Panels []panel `json:"panels"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type link struct {
	Title string `json:"title"`
	URL   string `json:"url"`
}

type panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  datasource `json:"datasource"`
	Links       []link     `json:"links"`
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct {
		Expr       string     `json:"expr"`
		RefID      string     `json:"refId"`
		Datasource datasource `json:"datasource"`
	} `json:"targets"`
	FieldConfig struct {
		Defaults struct {
			Unit       string `json:"unit"`
			Thresholds struct {
				Steps []map[string]any `json:"steps"`
			} `json:"thresholds"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

const root = "../.."

// list returns the files that match a pattern below the repository's root; there must be some.
func list(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files (%v)", pattern, err)
	}
	return files
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	return string(text)
}

// readRules returns the rules by file.
func readRules(t *testing.T) map[string]ruleFile {
	t.Helper()
	all := map[string]ruleFile{}
	for _, file := range list(t, "docs/prometheus/*.rules.yaml") {
		var rules ruleFile
		if err := yaml.Unmarshal([]byte(read(t, file)), &rules); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[file] = rules
	}
	return all
}

// each calls do with every rule of every file.
func each(t *testing.T, do func(file string, r rule)) {
	t.Helper()
	for file, rules := range readRules(t) {
		for _, group := range rules.Groups {
			for _, r := range group.Rules {
				do(file, r)
			}
		}
	}
}

// readDashboards returns the dashboards by file.
func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	all := map[string]dashboard{}
	for _, file := range list(t, "docs/grafana/*.json") {
		var d dashboard
		if err := json.Unmarshal([]byte(read(t, file)), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[file] = d
	}
	return all
}

// expressions returns the expressions of all rules and panels, with where each stands. Variables of
// dashboards have a value.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	each(t, func(file string, r rule) { all[filepath.Base(file)+" "+r.Record+r.Alert] = r.Expr })
	values := strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$job", ".*", "$endpoint", ".*")
	for file, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				all[filepath.Base(file)+" "+p.Title+" "+target.RefID] = values.Replace(target.Expr)
			}
		}
		for _, v := range d.Templating.List {
			if query, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
				all[filepath.Base(file)+" variable "+v.Name] = values.Replace(query[:strings.LastIndex(query, ",")])
			}
		}
	}
	return all
}
