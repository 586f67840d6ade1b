// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Each testdata/x.in.yaml is a values file; x.out.yaml is what the chart makes of it. CRDs are
// copies and left out there.
func TestGolden(t *testing.T) {
	t.Parallel()
	golden(t, "testdata", func(t *testing.T, input string) (string, error) {
		return template(t, nil, "--values", input, "--set", "crds.install=false")
	})
}

func golden(t *testing.T, dir string, render func(t *testing.T, input string) (string, error)) {
	t.Helper()
	inputs, err := filepath.Glob(dir + "/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, input := range inputs {
		t.Run(filepath.Base(input), func(t *testing.T) {
			t.Parallel()
			got, err := render(t, input)
			must.Succeed(t, err)
			output := strings.TrimSuffix(input, ".in.yaml") + ".out.yaml"
			if *update {
				must.Succeed(t, os.WriteFile(output, []byte(got), 0o644))
				return
			}
			want, err := os.ReadFile(output)
			if err != nil {
				t.Fatalf("%v: run `go test ./test/chart -update` and read what it wrote", err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s differs (-want +got); `go test ./test/chart -update` writes it anew:\n%s", output, diff)
			}
		})
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	if out, err := helm(t, os.DevNull, nil, "lint", "--strict", "--kube-version", kubeVersion, "--values",
		"testdata/everything.in.yaml", chartDir); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestCRDs_AreCopies checks that the chart's CRDs are those that controller-gen wrote.
func TestCRDs_AreCopies(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no CRDs: %v", err)
	}
	copies, _ := filepath.Glob(filepath.Join(chartDir, "files/crds/*.yaml"))
	if len(copies) != len(sources) {
		t.Errorf("%d CRDs in the chart, want %d", len(copies), len(sources))
	}
	for _, source := range sources {
		want, err := os.ReadFile(source)
		must.Succeed(t, err)
		got, err := os.ReadFile(filepath.Join(chartDir, "files/crds", filepath.Base(source)))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s: the chart's copy differs: run `make manifests` (%v)", filepath.Base(source), err)
		}
	}
}

// TestCRDs_EscapeNamespaceInRules checks that rules compile on the oldest Kubernetes of the chart:
// before 1.33, CEL knows a field namespace as __namespace__ only.
func TestCRDs_EscapeNamespaceInRules(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("../../config/crd/bases/*.yaml")
	must.Succeed(t, err)
	rules, unescaped := 0, regexp.MustCompile(`self\..*\.namespace\b`)
	for _, source := range sources {
		text, err := os.ReadFile(source)
		must.Succeed(t, err)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, ".__namespace__") {
				rules++
			}
			if unescaped.MatchString(line) {
				t.Errorf("%s: a rule names a field namespace: write __namespace__ in\n%s", source, line)
			}
		}
	}
	if rules == 0 {
		t.Error("no rule names a namespace: this test looks at none")
	}
}

func TestCRDs_KeptByDefault(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		values values
		crds   int
		policy string
	}{
		"by default":         {validValues(), 6, "keep"},
		"crds.keep=false":    {validValues().set("crds.keep", false), 6, ""},
		"crds.install=false": {validValues().set("crds.install", false), 0, ""},
	} {
		n := 0
		for _, o := range render(t, tt.values) {
			if o.GetKind() != "CustomResourceDefinition" {
				continue
			}
			n++
			if got := o.GetAnnotations()["helm.sh/resource-policy"]; got != tt.policy {
				t.Errorf("%s: %s has resource policy %q, want %q", name, o.GetName(), got, tt.policy)
			}
			if o.GetAnnotations()["controller-gen.kubebuilder.io/version"] == "" {
				t.Errorf("%s: %s lost its own annotations", name, o.GetName())
			}
		}
		if n != tt.crds {
			t.Errorf("%s: %d CRDs, want %d", name, n, tt.crds)
		}
	}
}

// TestExport_DisabledByDefault checks that nothing of an exporter is there unless it is enabled,
// apart from its kinds.
func TestExport_DisabledByDefault(t *testing.T) {
	t.Parallel()
	for _, o := range render(t, validValues().set("networkPolicy.enabled", true)) {
		if name := o.GetName(); strings.Contains(name, "export") {
			t.Errorf("%s %s", o.GetKind(), name)
		}
	}
}

// TestClusterSet_DisabledByDefault checks that an installation without the Multi-Cluster Services
// API has none of its flags, and no rights but those to remove earlier ServiceImports.
func TestClusterSet_DisabledByDefault(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		values values
		words  []string
	}{
		{exportingValues(), []string{"serviceexports", "clusterset", "about.k8s.io", "--services", "--cluster-id"}},
		{clustersetValues().set("clusterset.enabled", false), []string{"--clusterset"}},
		{clustersetValues().set("export.services", false), []string{"serviceexports", "about.k8s.io", "--services"}},
	} {
		for _, o := range render(t, tt.values.set("crds.install", false)) {
			text, err := json.Marshal(o.Object)
			must.Succeed(t, err)
			for _, word := range tt.words {
				if strings.Contains(string(text), word) {
					t.Errorf("%s %s says %q: %s", o.GetKind(), o.GetName(), word, text)
				}
			}
		}
	}
}

// TestExporterArgs_ClusterID checks that the name of the cluster stands in where no id is given, if
// it can.
func TestExporterArgs_ClusterID(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ id, name, want string }{
		{"eu-1", "europe", "--cluster-id=eu-1"},
		{"", "europe", "--cluster-id=europe"},
		{"", "Europe, 1", ""},
		{"", strings.Repeat("a", 64), ""},
		{"", "", ""},
	} {
		all := render(t, clustersetValues().set("export.clusterID", tt.id).set("clusterName", tt.name))
		args := arguments(exporter(t, all).Spec.Template.Spec.Containers[0])
		i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--cluster-id") })
		if got := append(args, "")[(i+len(args)+1)%(len(args)+1)]; got != tt.want {
			t.Errorf("id %q, name %q: %q, want %q", tt.id, tt.name, got, tt.want)
		}
	}
}

func TestBinding_DisabledRunsNoForwarder(t *testing.T) {
	t.Parallel()
	v := validValues().set("binding.enabled", false).set("credentials.authtoken", "")
	for _, o := range render(t, v) {
		if strings.Contains(o.GetName(), "forwarder") {
			t.Errorf("%s %s", o.GetKind(), o.GetName())
		}
	}
}

func TestPods_RollOnCredentialChange(t *testing.T) {
	t.Parallel()
	pods := func(v values) map[string]string {
		all, templates := render(t, v), map[string]string{}
		for _, d := range []appsv1.Deployment{manager(t, all), forwarder(t, all), exporter(t, all)} {
			template, err := json.Marshal(d.Spec.Template)
			must.Succeed(t, err)
			templates[d.Spec.Template.Spec.Containers[0].Name] = string(template)
		}
		return templates
	}
	set := func(path string, value any) values { return exportingValues().set(path, value) }
	before := pods(exportingValues())
	for name, tt := range map[string]struct {
		values values
		differ []string
	}{
		"API key":      {set("credentials.apiKey", "flk_other"), []string{"manager"}},
		"authtoken":    {set("credentials.authtoken", "flt_other"), []string{"forwarder"}},
		"exporter key": {set("credentials.exporterApiKey", "flk_other"), []string{"exporter"}},
		"authority": {set("api.caBundle", "-----BEGIN CERTIFICATE-----\nx\n"),
			[]string{"exporter", "forwarder", "manager"}},
		"selector": {set("binding.endpointSelector", "true"), []string{"manager"}},
		"edge":     {set("edge.address", "edge:1"), []string{"exporter", "forwarder"}},
		"proxy":    {set("proxy.httpsProxy", "http://proxy.example"), []string{"exporter", "forwarder", "manager"}},
		"patterns": {set("export.urls", []string{"http://*.shared"}), []string{"exporter"}},
		"nothing":  {exportingValues(), nil},
	} {
		var differ []string
		for component, template := range pods(tt.values) {
			if template != before[component] {
				differ = append(differ, component)
			}
		}
		slices.Sort(differ)
		if diff := cmp.Diff(tt.differ, differ); diff != "" {
			t.Errorf("%s: pods that start anew (-want +got):\n%s", name, diff)
		}
	}
}
