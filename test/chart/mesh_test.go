// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestMesh_PagesKeepPodsOut renders both charts with the values of the pages about meshes: no pod
// gets a proxy.
func TestMesh_PagesKeepPodsOut(t *testing.T) {
	t.Parallel()
	for mesh, marks := range map[string]map[string]string{
		"istio":   {"sidecar.istio.io/inject": "false", "istio.io/dataplane-mode": "none"},
		"linkerd": {"linkerd.io/inject": "disabled"},
	} {
		page, err := os.ReadFile("../../docs/run/mesh-" + mesh + ".md")
		must.Succeed(t, err)
		files := map[string]string{}
		for _, block := range valuesFile.FindAllStringSubmatch(string(page), -1) {
			files[block[2]] = filepath.Join(t.TempDir(), block[2])
			must.Succeed(t, os.WriteFile(files[block[2]], []byte(block[1]), 0o600))
		}
		operatorChart, err := template(t, exportingValues(), "--values", files["operator.yaml"])
		must.Succeed(t, err)
		serverChart, err := templateServer(t, replicaValues().set("replicas", 2), "--values", files["server.yaml"])
		must.Succeed(t, err)
		pods := 0
		for _, o := range append(parse(t, operatorChart), parse(t, serverChart)...) {
			labels, annotations := o.GetLabels(), o.GetAnnotations()
			switch o.GetKind() {
			case "Deployment":
				pod := get[appsv1.Deployment](t, rendered{o}, "Deployment", o.GetName()).Spec.Template
				labels, annotations = pod.Labels, pod.Annotations
			case "Pod":
			default:
				continue
			}
			pods++
			read := map[string]map[string]string{"istio": labels, "linkerd": annotations}[mesh]
			for name, want := range marks {
				if got := read[name]; got != want {
					t.Errorf("%s: %s %s has %s=%q, want %q", mesh, o.GetKind(), o.GetName(), name, got, want)
				}
			}
		}
		if pods != 6 {
			t.Errorf("%s: %d kinds of pods, want 6", mesh, pods)
		}
	}
}
