// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// targetRights are what a listed namespace gives the manager.
func targetRights() []string {
	var rights []string
	for _, verb := range []string{"create", "delete", "get", "list", "update", "watch"} {
		rights = append(rights, right{resource: "services", verb: verb, who: "manager"}.String(),
			right{group: "discovery.k8s.io", resource: "endpointslices", verb: verb, who: "manager"}.String())
	}
	for _, verb := range []string{"get", "list", "watch"} {
		rights = append(rights, right{group: "bindings.fairlead.dev", resource: "endpointaccesses", verb: verb,
			who: "manager"}.String(), right{group: "bindings.fairlead.dev", resource: "endpointtrusts", verb: verb,
			who: "manager"}.String())
	}
	rights = append(rights, right{group: "bindings.fairlead.dev", resource: "endpointaccesses/status", verb: "update",
		who: "manager"}.String(), right{group: "bindings.fairlead.dev", resource: "endpointtrusts/status",
		verb: "update", who: "manager"}.String())
	for _, resource := range []string{"roles", "rolebindings"} {
		rights = append(rights, right{group: rbacv1.GroupName, resource: resource,
			name: namespace + "." + release + "-anchor", verb: "get", who: "manager"}.String())
	}
	slices.Sort(rights)
	return rights
}

// readingRights are what the manager may read in its own namespace because namespaces are listed.
func readingRights() []string {
	var rights []string
	for _, verb := range []string{"get", "list", "watch"} {
		rights = append(rights,
			right{group: "discovery.k8s.io", resource: "endpointslices", verb: verb, who: "manager"}.String())
	}
	for _, verb := range []string{"get", "watch"} {
		rights = append(rights, right{resource: "namespaces", name: namespace, verb: verb, who: "manager"}.String())
	}
	return rights
}

// With listed namespaces there are no cluster-wide rights: those of the ClusterRole, except for
// reading Namespaces, move into Roles.
func TestNamespaces_ListedGetRolesOnly(t *testing.T) {
	t.Parallel()
	all := render(t, validValues().set("binding.namespaces.allow", []string{"team-a", "007"}))
	perNamespace := map[string][]string{}
	anchors := map[string]int{}
	for _, o := range all {
		switch o.GetKind() {
		case "ClusterRole", "ClusterRoleBinding":
			t.Errorf("%s %s", o.GetKind(), o.GetName())
		case "Role":
			role := get[rbacv1.Role](t, rendered{o}, "Role", o.GetName())
			if strings.HasSuffix(role.Name, "-anchor") {
				anchors[role.Namespace]++
				if len(role.Rules) > 0 {
					t.Errorf("anchor %s/%s has rules", role.Namespace, role.Name)
				}
				continue
			}
			if strings.HasSuffix(role.Name, "-manager") {
				perNamespace[role.Namespace] = append(perNamespace[role.Namespace],
					flattenRules("manager", false, role.Rules)...)
			}
		case "RoleBinding":
			b := get[rbacv1.RoleBinding](t, rendered{o}, "RoleBinding", o.GetName())
			if anchor := strings.HasSuffix(b.Name, "-anchor"); anchor && len(b.Subjects) == 0 {
				anchors[b.Namespace]++
			} else if anchor || len(b.Subjects) != 1 || b.Subjects[0].Namespace != namespace ||
				b.RoleRef.Kind != "Role" || strings.HasSuffix(b.RoleRef.Name, "-anchor") {
				t.Errorf("%s/%s binds %+v to %+v", b.Namespace, b.Name, b.RoleRef, b.Subjects)
			}
		}
	}
	if diff := cmp.Diff(map[string]int{namespace: 2, "team-a": 2, "007": 2}, anchors); diff != "" {
		t.Errorf("anchors: %s", diff)
	}
	want := []string{}
	for _, r := range granted(t, render(t, validValues()), "manager") {
		if strings.HasPrefix(r, "manager namespace") {
			want = append(want, r)
		}
	}
	for _, r := range targetRights() {
		if strings.Contains(r, " services ") {
			want = append(want, r)
		}
	}
	want = append(want, readingRights()...)
	for ns, expected := range map[string][]string{namespace: want, "team-a": targetRights(), "007": targetRights()} {
		slices.Sort(expected)
		slices.Sort(perNamespace[ns])
		if diff := cmp.Diff(expected, perNamespace[ns]); diff != "" {
			t.Errorf("rights in %s (-want +got):\n%s", ns, diff)
		}
		delete(perNamespace, ns)
	}
	if len(perNamespace) > 0 {
		t.Errorf("rights elsewhere: %v", perNamespace)
	}
}

// TestNamespaces_ListedLimitExporters checks that the rights of the exporter's ClusterRole move
// into Roles of the listed namespaces, and of kube-system, whose UID is the cluster's.
func TestNamespaces_ListedLimitExporters(t *testing.T) {
	t.Parallel()
	listed := exportingValues().set("binding.namespaces.allow", []string{"team-a", "007"})
	roles := map[string][]string{}
	for _, o := range render(t, listed.set("export.aggregateRoles", false)) {
		switch name := o.GetName(); {
		case o.GetKind() == "ClusterRole", o.GetKind() == "ClusterRoleBinding":
			t.Errorf("%s %s", o.GetKind(), name)
		case o.GetKind() == "Role" && strings.Contains(name, "-exporter") && o.GetNamespace() != namespace:
			rules := get[rbacv1.Role](t, rendered{o}, "Role", name).Rules
			roles[o.GetNamespace()] = flattenRules("exporter", true, rules)
		case o.GetKind() == "RoleBinding" && strings.Contains(name, "-exporter"):
			b := get[rbacv1.RoleBinding](t, rendered{o}, "RoleBinding", name)
			if len(b.Subjects) != 1 || b.Subjects[0].Namespace != namespace ||
				b.Subjects[0].Name != release+"-exporter" || b.RoleRef.Kind != "Role" || b.RoleRef.Name != name {
				t.Errorf("%s/%s binds %+v to %+v", b.Namespace, b.Name, b.RoleRef, b.Subjects)
			}
		}
	}
	want := map[string][]string{}
	for _, r := range granted(t, render(t, exportingValues()), "exporter") {
		switch {
		case strings.HasSuffix(r, " kube-system"):
			want["kube-system"] = append(want["kube-system"], r)
		case strings.HasPrefix(r, "exporter cluster"):
			want["team-a"], want["007"] = append(want["team-a"], r), append(want["007"], r)
		}
	}
	for ns := range roles {
		slices.Sort(roles[ns])
	}
	if diff := cmp.Diff(want, roles); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	if args := arguments(exporter(t, render(t, listed)).Spec.Template.Spec.Containers[0]); !slices.Contains(args,
		"--allow-namespaces=team-a,007") {
		t.Errorf("arguments %v", args)
	}
}

// TestNamespaces_ListedLimitServiceExports checks that the rights on ServiceExports are given in the
// listed namespaces only, and that on ClusterProperties nowhere.
func TestNamespaces_ListedLimitServiceExports(t *testing.T) {
	t.Parallel()
	all := render(t, exportingValues().set("binding.namespaces.allow", []string{"team-a"}).
		set("export.services", true).set("export.clusterID", "eu-1").set("export.aggregateRoles", false))
	var got []string
	for _, o := range all {
		if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
			continue
		}
		for _, r := range flattenRules(o.GetNamespace(), o.GetKind() == "ClusterRole",
			get[rbacv1.ClusterRole](t, rendered{o}, o.GetKind(), o.GetName()).Rules) {
			if strings.Contains(r, "multicluster") || strings.Contains(r, "about.k8s.io") {
				got = append(got, r)
			}
		}
	}
	want := []string{}
	for resource, verbs := range map[string][]string{
		"serviceexports": {"get", "list", "watch"}, "serviceexports/status": {"update"},
	} {
		for _, verb := range verbs {
			want = append(want, right{group: "multicluster.x-k8s.io", resource: resource, verb: verb,
				who: "team-a"}.String())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
}

// If the owners of the namespaces make the Roles, the notes print exactly what the chart would have
// made.
func TestNotes_PrintMissingRoles(t *testing.T) {
	t.Parallel()
	listed := exportingValues().set("binding.namespaces.allow", []string{"team-a"})
	var made rendered
	for _, o := range render(t, listed) {
		if o.GetNamespace() == "team-a" || o.GetNamespace() == "kube-system" {
			made = append(made, o)
		}
	}
	left := listed.set("binding.namespaces.createRoles", false)
	for _, o := range render(t, left) {
		if o.GetNamespace() == "team-a" || o.GetNamespace() == "kube-system" {
			t.Errorf("made: %s %s", o.GetKind(), o.GetName())
		}
	}
	notes := startCluster(t).install(release, namespace, "--set",
		"binding.namespaces.allow={team-a},binding.namespaces.createRoles=false,export.enabled=true,"+
			"credentials.exporterApiKey=flk_other")
	_, printed, found := strings.Cut(notes, "until then endpoints there say NamespaceForbidden:\n")
	if !found {
		t.Fatalf("notes: %s", notes)
	}
	printed = strings.Replace(printed, "\nAnd the cluster's owners this, for the exporters:\n", "", 1)
	inOrder := func(a, b unstructured.Unstructured) int {
		return strings.Compare(a.GetKind()+a.GetNamespace()+a.GetName(), b.GetKind()+b.GetNamespace()+b.GetName())
	}
	all := parse(t, printed)
	slices.SortFunc(made, inOrder)
	slices.SortFunc(all, inOrder)
	if diff := cmp.Diff(made, all); diff != "" || len(made) != 10 {
		t.Errorf("the notes print (-chart +notes):\n%s", diff)
	}
}
