// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// helm4Path returns the program of Helm 4. `make test` names it; without it the test is skipped.
func helm4Path(t *testing.T) string {
	t.Helper()
	path := os.Getenv("FAIRLEAD_HELM4")
	if path == "" {
		t.Skip("no Helm 4: build it with `make helm` and name it in FAIRLEAD_HELM4")
	}
	return path
}

// lifecycle is one release of a chart, handled by one version of helm.
type lifecycle struct {
	t             *testing.T
	c             *cluster
	program       string
	release, dir  string
	workload      string // a Deployment of the release
	values, later values
	objects       int    // how many the manifest has at the least
	conflicts     bool   // helm takes no field from others unless it is told to
	written       string // the ConfigMap of the release whose data others write; "" = there is none
}

func (l lifecycle) helm(v values, args ...string) string {
	l.t.Helper()
	out, err := helmOf(l.t, l.program, l.c.kubeconfig, v, append(args, "--namespace", namespace)...)
	must.Succeed(l.t, err)
	return out
}

func (l lifecycle) deployment() *appsv1.Deployment {
	l.t.Helper()
	var d appsv1.Deployment
	must.Succeed(l.t, l.c.Get(l.t.Context(), client.ObjectKey{Namespace: namespace, Name: l.workload}, &d))
	return &d
}

func (l lifecycle) configMap() client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: l.written}
}

// write writes data into the ConfigMap, as the manager does.
func (l lifecycle) write() {
	l.t.Helper()
	var object corev1.ConfigMap
	if l.written == "" {
		return
	}
	must.Succeed(l.t, l.c.Get(l.t.Context(), l.configMap(), &object))
	object.Data = map[string]string{"file": "text"}
	must.Succeed(l.t, l.c.Update(l.t.Context(), &object, client.FieldOwner("fairlead-operator")))
}

// checkWritten checks that the data are as they were written.
func (l lifecycle) checkWritten(after string) {
	l.t.Helper()
	var object corev1.ConfigMap
	if l.written == "" {
		return
	}
	if err := l.c.Get(l.t.Context(), l.configMap(), &object); err != nil || object.Data["file"] != "text" {
		l.t.Errorf("%s: after %s the ConfigMap has %v, %v", l.release, after, object.Data, err)
	}
}

// run installs, upgrades, scales to 0, upgrades again, rolls back and uninstalls. helm template has
// the objects of the installation, as Argo CD applies them.
func (l lifecycle) run() {
	t := l.t
	l.helm(l.values, "install", l.release, l.dir, "--create-namespace")
	installed := parse(t, l.helm(nil, "get", "manifest", l.release))
	rendered := parse(t, l.helm(l.values, "template", l.release, l.dir, "--kube-version", kubeVersion, "--skip-tests"))
	if diff := cmp.Diff(byName(installed), byName(rendered)); diff != "" || len(rendered) < l.objects {
		t.Errorf("%s: %d objects, those of helm template differ (-installed +template):\n%s", l.release, len(rendered),
			diff)
	}
	l.write()
	l.helm(l.later, "upgrade", l.release, l.dir)
	l.checkWritten("an upgrade")
	d := l.deployment()
	if d.Spec.Template.Annotations["example.com/later"] != "yes" {
		t.Errorf("%s: the upgrade did not change the pods: %v", l.release, d.Spec.Template.Annotations)
	}
	scaled := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	must.Succeed(t, l.c.Patch(t.Context(), d, scaled, client.FieldOwner("kubectl-scale")))
	upgrade := []string{"upgrade", l.release, l.dir}
	if l.conflicts {
		out, err := helmOf(t, l.program, l.c.kubeconfig, l.values, append(upgrade, "--namespace", namespace)...)
		if err == nil || !strings.Contains(err.Error(), `conflict with "kubectl-scale" using apps/v1: .spec.replicas`) {
			t.Errorf("%s: an upgrade over another's number of pods: %v, %s", l.release, err, out)
		}
		upgrade = append(upgrade, "--force-conflicts")
	}
	l.helm(l.values, upgrade...)
	if d := l.deployment(); *d.Spec.Replicas == 0 {
		t.Errorf("%s: no pods after an upgrade", l.release)
	}
	l.helm(nil, "rollback", l.release, "2")
	if d := l.deployment(); d.Spec.Template.Annotations["example.com/later"] != "yes" {
		t.Errorf("%s: the rollback did not change the pods: %v", l.release, d.Spec.Template.Annotations)
	}
	l.checkWritten("a rollback")
	l.helm(nil, "uninstall", l.release)
	if l.written != "" && !apierrors.IsNotFound(l.c.Get(t.Context(), l.configMap(), &corev1.ConfigMap{})) {
		t.Errorf("%s: the ConfigMap is left", l.release)
	}
	var left appsv1.DeploymentList
	if err := l.c.List(t.Context(), &left, client.InNamespace(namespace)); err != nil || len(left.Items) > 0 {
		t.Errorf("%s: %d Deployments are left, %v", l.release, len(left.Items), err)
	}
}

// byName returns the objects of a manifest by kind and name, without the hooks, which are no part
// of one.
func byName(all rendered) map[string]any {
	objects := map[string]any{}
	for _, o := range all {
		if o.GetAnnotations()["helm.sh/hook"] == "" {
			objects[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o.Object
		}
	}
	return objects
}

// TestInstall_HelmVersions takes releases of both charts through their lives with Helm 3 and 4.
func TestInstall_HelmVersions(t *testing.T) {
	t.Parallel()
	for name, find := range map[string]func(*testing.T) string{"Helm 3": helmPath, "Helm 4": helm4Path} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lifecycle{t: t, program: find(t), c: startCluster(t), release: release, dir: chartDir,
				workload: release + "-manager", objects: 30,
				values:    exportingValues().set("api.caBundle", "-----BEGIN CERTIFICATE-----\n"),
				conflicts: name == "Helm 4", written: release + "-authorities"}
			l.later = l.values.set("manager.podAnnotations", map[string]any{"example.com/later": "yes"})
			l.run()
			l.release, l.dir, l.workload, l.values, l.objects = serverRelease, serverDir, serverRelease, values{}, 3
			l.written = ""
			l.later = values{}.set("podAnnotations", map[string]any{"example.com/later": "yes"})
			l.run()
		})
	}
}

// TestTemplate_SameInHelm4 renders the values of the golden files with Helm 4.
func TestTemplate_SameInHelm4(t *testing.T) {
	t.Parallel()
	program := helm4Path(t)
	for dir, chart := range map[string][2]string{"testdata": {release, chartDir},
		serverData: {serverRelease, serverDir}} {
		files, _ := filepath.Glob(dir + "/*.in.yaml")
		for _, file := range files {
			out, err := helmOf(t, program, os.DevNull, nil, "template", chart[0], chart[1], "--namespace", namespace,
				"--kube-version", kubeVersion, "--values", file)
			must.Succeed(t, err)
			golden, err := os.ReadFile(strings.TrimSuffix(file, ".in.yaml") + ".out.yaml")
			must.Succeed(t, err)
			want, got := byName(parse(t, string(golden))), byName(parse(t, out))
			maps.DeleteFunc(got, func(name string, _ any) bool { // which the golden files leave out
				return strings.HasPrefix(name, "CustomResourceDefinition ")
			})
			if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
				t.Errorf("%s: Helm 3 (-) and 4 (+): %s", file, diff)
			}
		}
	}
}

// TestTemplates_LookUpLittle checks that a template that asks the cluster is known, as helm template
// and Argo CD, which runs it, find nothing. What each of them does then is in docs/run/upgrade.md.
func TestTemplates_LookUpLittle(t *testing.T) {
	t.Parallel()
	known := []string{
		"fairlead-operator/templates/_admission.tpl", // the namespace owns the policies: it deletes them with itself
		"fairlead-operator/templates/crds.yaml",      // CRDs of another release are left alone
		"fairlead-operator/templates/NOTES.txt",      // no objects
		"fairlead-server/templates/NOTES.txt",
		"fairlead-server/templates/_helpers.tpl", // how the Deployment goes over to replicas
	}
	var found []string
	for _, pattern := range []string{"*", "tests/*"} {
		files, err := filepath.Glob("../../charts/*/templates/" + pattern)
		must.Succeed(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err == nil && regexp.MustCompile(`[({]\s*-?\s*(.*\s)?lookup\s`).Match(text) {
				found = append(found, strings.TrimPrefix(file, "../../charts/"))
			}
		}
	}
	slices.Sort(known)
	slices.Sort(found)
	if diff := cmp.Diff(known, found); diff != "" {
		t.Errorf("templates that ask the cluster (-known +found):\n%s", diff)
	}
}
