// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDashboards_ChooseTheirDatasource(t *testing.T) {
	t.Parallel()
	uids := map[string]string{}
	for file, d := range readDashboards(t) {
		if other := uids[d.UID]; other != "" || d.UID != strings.TrimSuffix(filepath.Base(file), ".json") {
			t.Errorf("%s: the uid %q is not the file's name, or that of %s", file, d.UID, other)
		}
		uids[d.UID] = file
		if d.Title == "" || d.SchemaVersion == 0 || !slices.Contains(d.Tags, "fairlead") {
			t.Errorf("%s: title %q, schema version %d, tags %q", file, d.Title, d.SchemaVersion, d.Tags)
		}
		if v := d.Templating.List; len(v) < 2 || v[0].Name != "datasource" || v[0].Type != "datasource" ||
			v[0].Query != "prometheus" {
			t.Errorf("%s: the first variable is to choose a data source of Prometheus", file)
		}
		want := datasource{"prometheus", "${datasource}"}
		for _, v := range d.Templating.List[1:] {
			if v.Datasource != want {
				t.Errorf("%s: the variable %s asks %v", file, v.Name, v.Datasource)
			}
		}
		for _, p := range d.Panels {
			if p.Type != "row" && p.Datasource != want {
				t.Errorf("%s: the panel %q asks %v", file, p.Title, p.Datasource)
			}
			for _, target := range p.Targets {
				if target.Datasource != want {
					t.Errorf("%s: the panel %q asks %v", file, p.Title, target.Datasource)
				}
			}
		}
	}
}

func TestDashboards_PanelsAreComplete(t *testing.T) {
	t.Parallel()
	for file, d := range readDashboards(t) {
		ids, titles := map[int]string{}, map[string]bool{}
		row := ""
		for _, p := range d.Panels {
			if other, taken := ids[p.ID]; taken || p.ID == 0 {
				t.Errorf("%s: the panels %q and %q have the id %d", file, other, p.Title, p.ID)
			}
			ids[p.ID] = p.Title
			if p.Type == "row" {
				row = p.Title
				continue
			}
			if titles[row+p.Title] || p.Title == "" || p.Description == "" || len(p.Targets) == 0 ||
				p.FieldConfig.Defaults.Unit == "" || len(p.FieldConfig.Defaults.Thresholds.Steps) == 0 {
				t.Errorf(
					"%s: the panel %q: a title of its own, a description, queries, a unit and thresholds are needed",
					file, p.Title)
			}
			titles[row+p.Title] = true
			refs := map[string]bool{}
			for _, target := range p.Targets {
				if target.Expr == "" || refs[target.RefID] {
					t.Errorf("%s: the panel %q has no expression, or two queries %s", file, p.Title, target.RefID)
				}
				refs[target.RefID] = true
			}
		}
	}
}

func TestDashboards_PanelsDoNotOverlap(t *testing.T) {
	t.Parallel()
	const columns = 24
	for file, d := range readDashboards(t) {
		taken := map[[2]int]string{}
		for _, p := range d.Panels {
			g := p.GridPos
			if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > columns {
				t.Errorf("%s: the panel %q is at %+v", file, p.Title, g)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: the panels %q and %q overlap", file, other, p.Title)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

func TestCharts_ShipTheSameFiles(t *testing.T) {
	t.Parallel()
	copies := map[string]string{
		"docs/prometheus/fairlead-server.rules.yaml":   "fairlead-server/files/rules.yaml",
		"docs/prometheus/fairlead-operator.rules.yaml": "fairlead-operator/files/rules.yaml",
		"docs/grafana/fairlead-service.json":           "fairlead-server/files/dashboards/fairlead-service.json",
		"docs/grafana/fairlead-endpoint.json":          "fairlead-server/files/dashboards/fairlead-endpoint.json",
		"docs/grafana/fairlead-operator.json":          "fairlead-operator/files/dashboards/fairlead-operator.json",
		"docs/grafana/fairlead-exporter.json":          "fairlead-operator/files/dashboards/fairlead-exporter.json",
	}
	sources := slices.Concat(list(t, "docs/prometheus/*.yaml"), list(t, "docs/grafana/*.json"))
	if len(sources) != len(copies) {
		t.Errorf("%d rules and dashboards, of which the charts have %d", len(sources), len(copies))
	}
	for from, to := range copies {
		if read(t, filepath.Join(root, from)) != read(t, filepath.Join(root, "charts", to)) {
			t.Errorf("charts/%s differs from %s: run `make manifests`", to, from)
		}
	}
}
