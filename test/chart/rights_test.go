// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// right is one verb on one kind, in the release's namespace or in the cluster.
type right struct {
	cluster                          bool
	group, resource, name, verb, who string
}

func (r right) String() string {
	where := "namespace"
	if r.cluster {
		where = "cluster"
	}
	return strings.Join([]string{r.who, where, r.verb, r.group, r.resource, r.name}, " ")
}

// granted are the rights that the chart gives to the components, sorted as text.
func granted(t *testing.T, all rendered, components ...string) []string {
	t.Helper()
	var rights []string
	for _, who := range components {
		role := get[rbacv1.Role](t, all, "Role", release+"-"+who)
		rights = append(rights, flattenRules(who, false, role.Rules)...)
		cluster := get[rbacv1.ClusterRole](t, all, "ClusterRole", namespace+"."+release+"-"+who)
		rights = append(rights, flattenRules(who, true, cluster.Rules)...)
	}
	slices.Sort(rights)
	return slices.Compact(rights)
}

func flattenRules(who string, cluster bool, rules []rbacv1.PolicyRule) []string {
	var rights []string
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						rights = append(rights, right{cluster, group, resource, name, verb, who}.String())
					}
				}
			}
		}
	}
	return rights
}

var marker = regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:(.*)$`)

// asked are the rights that the code's markers request: the forwarder's where it is assembled, the
// exporter's in its packages, the manager's everywhere else. The markers' anchor names are those of
// a release called fairlead-operator.
func asked(t *testing.T) map[string][]string {
	t.Helper()
	rights := map[string][]string{}
	for _, pattern := range []string{"../../internal/operator/controller/*/*.go", "../../internal/operator/*.go",
		"../../internal/operator/exporter/*.go", "../../internal/operator/exporter/*/*.go"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			src, err := os.ReadFile(file)
			must.Succeed(t, err)
			who := "manager"
			if strings.Contains(file, "/internal/operator/exporter/") {
				who = "exporter"
			} else if filepath.Base(file) == "forwarder.go" {
				who = "forwarder"
			}
			for _, m := range marker.FindAllStringSubmatch(string(src), -1) {
				rights[who] = append(rights[who], ofMarker(who, m[1])...)
			}
		}
	}
	return rights
}

func ofMarker(who, text string) []string {
	fields := map[string][]string{}
	for field := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(field, "=")
		fields[key] = strings.Split(strings.Trim(value, `"`), ";")
	}
	cluster := len(fields["namespace"]) == 0
	names := fields["resourceNames"]
	if cluster {
		for i, name := range names {
			if strings.HasPrefix(name, release) { // one of the chart's, which are named after the namespace, too
				names[i] = namespace + "." + name
			}
		}
	}
	return flattenRules(who, cluster, []rbacv1.PolicyRule{{
		APIGroups: fields["groups"], Resources: fields["resources"], ResourceNames: names, Verbs: fields["verbs"],
	}})
}

// TestRights_MatchMarkers checks that the chart grants what the code's markers ask for, and no
// more.
func TestRights_MatchMarkers(t *testing.T) {
	t.Parallel()
	markers := asked(t)
	all := render(t, validValues().set("clusterset.enabled", true).set("api.caBundle", "-----BEGIN CERTIFICATE-----\n"))
	exporting := render(t, clustersetValues())
	for who, rendered := range map[string]rendered{"manager": all, "forwarder": all, "exporter": exporting} {
		want := slices.Sorted(slices.Values(markers[who]))
		if len(want) == 0 {
			t.Errorf("no markers of %s", who)
		}
		if diff := cmp.Diff(slices.Compact(want), granted(t, rendered, who)); diff != "" {
			t.Errorf("%s: markers (-) against chart (+):\n%s", who, diff)
		}
	}
}

func TestRights_Forbidden(t *testing.T) {
	t.Parallel()
	for _, v := range []values{validValues(), validValues().set("binding.enabled", false),
		validValues().set("crds.install", false), exportingValues(), clustersetValues(),
		exportingValues().set("binding.namespaces.allow", []string{"team-a"})} {
		for _, o := range render(t, v) {
			if o.GetKind() != "Role" && o.GetKind() != "ClusterRole" {
				continue
			}
			for _, rule := range get[rbacv1.ClusterRole](t, rendered{o}, o.GetKind(), o.GetName()).Rules {
				for _, forbidden := range []string{"secrets", "pods/exec", "serviceaccounts/token", "*"} {
					if slices.Contains(rule.Resources, forbidden) || slices.Contains(rule.Verbs, forbidden) ||
						slices.Contains(rule.APIGroups, "*") {
						t.Errorf("%s %s grants %v", o.GetKind(), o.GetName(), rule)
					}
				}
				for _, verb := range []string{"escalate", "bind", "impersonate", "deletecollection"} {
					if slices.Contains(rule.Verbs, verb) {
						t.Errorf("%s %s grants %v", o.GetKind(), o.GetName(), rule)
					}
				}
			}
		}
	}
	for _, r := range granted(t, render(t, clustersetValues()), "forwarder", "exporter") {
		switch fields := strings.Fields(r); {
		case slices.Contains([]string{"get", "list", "watch"}, fields[2]):
		case fields[0] == "forwarder":
			t.Errorf("the forwarder may do more than read: %s", r)
		case !strings.HasSuffix(fields[4], "/status") && fields[4] != "events" && fields[4] != "leases":
			t.Errorf("the exporter may write more than statuses, events and its Lease: %s", r)
		}
		if strings.HasPrefix(r, "forwarder cluster") && !strings.Contains(r, " endpointaccesses ") &&
			!strings.Contains(r, " endpointtrusts ") && !strings.Contains(r, " namespaces ") {
			t.Errorf("the forwarder has rights outside of its namespace: %s", r)
		}
	}
}

// TestRights_ManagerOwnsExporterRoles checks that the manager may make the ClusterRoles of
// exporters and their users go with the namespace, and that it is told their names.
func TestRights_ManagerOwnsExporterRoles(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		values values
		roles  []string
	}{
		"by default":         {validValues(), nil},
		"exporting":          {exportingValues(), []string{"-exporter", "-exports-edit", "-exports-view"}},
		"without user roles": {exportingValues().set("export.aggregateRoles", false), []string{"-exporter"}},
		"listed namespaces": {exportingValues().set("binding.namespaces.allow", []string{"a"}).
			set("export.aggregateRoles", false), nil},
	} {
		all := render(t, tt.values)
		var told, made, may []string
		for _, a := range arguments(manager(t, all).Spec.Template.Spec.Containers[0]) {
			if names, ok := strings.CutPrefix(a, "--exporter-cluster-roles="); ok {
				told = strings.Split(names, ",")
			}
		}
		for _, o := range all {
			if o.GetKind() == "ClusterRole" && strings.Contains(o.GetName(), "-export") {
				made = append(made, o.GetName())
			}
			if o.GetKind() != "ClusterRole" || o.GetName() != namespace+"."+release+"-manager" {
				continue
			}
			for _, rule := range get[rbacv1.ClusterRole](t, rendered{o}, "ClusterRole", o.GetName()).Rules {
				if slices.Equal(rule.Resources, []string{"clusterroles"}) &&
					strings.Contains(strings.Join(rule.ResourceNames, " "), "-export") {
					may = append(may, rule.ResourceNames...)
				}
			}
		}
		var want []string
		for _, suffix := range tt.roles {
			want = append(want, namespace+"."+release+suffix)
		}
		slices.Sort(made)
		if !slices.Equal(want, told) || !slices.Equal(want, made) || !slices.Equal(want, may) {
			t.Errorf("%s: want %v; the manager is told %v, may change %v; made are %v", name, want, told, may, made)
		}
	}
}

// TestRights_OfNamespaceUsers checks that editors of namespaces may write what is exported, but not
// its status, and that viewers may read it.
func TestRights_OfNamespaceUsers(t *testing.T) {
	t.Parallel()
	all := render(t, clustersetValues())
	for suffix, tt := range map[string]struct{ verbs, to []string }{
		"edit": {[]string{"create", "delete", "get", "list", "patch", "update", "watch"}, []string{"admin", "edit"}},
		"view": {[]string{"get", "list", "watch"}, []string{"view"}},
	} {
		role := get[rbacv1.ClusterRole](t, all, "ClusterRole", namespace+"."+release+"-exports-"+suffix)
		var want []string
		for _, verb := range tt.verbs {
			for resource, group := range map[string]string{"agentendpoints": "bindings.fairlead.dev",
				"cloudendpoints": "bindings.fairlead.dev", "serviceexports": "multicluster.x-k8s.io"} {
				want = append(want, right{group: group, resource: resource, verb: verb, who: suffix,
					cluster: true}.String())
			}
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(flattenRules(suffix, true, role.Rules)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", suffix, diff)
		}
		var to []string
		for label := range role.Labels {
			if name, ok := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); ok {
				to = append(to, name)
			}
		}
		slices.Sort(to)
		if !slices.Equal(to, tt.to) {
			t.Errorf("%s is added to %v, want %v", suffix, to, tt.to)
		}
	}
}

// TestRights_PodIdentity checks that only those who enable pod identity get the right to read all
// pods.
func TestRights_PodIdentity(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("../../internal/operator/forwarder/podidentity/identity.go")
	must.Succeed(t, err)
	asks := marker.FindStringSubmatch(string(src))
	if asks == nil {
		t.Fatal("no marker")
	}
	all := render(t, validValues().set("forwarder.podIdentity.enabled", true))
	name := namespace + "." + release + "-forwarder"
	role := get[rbacv1.ClusterRole](t, all, "ClusterRole", name)
	want := append(asked(t)["forwarder"], ofMarker("forwarder", asks[1])...)
	want = slices.DeleteFunc(want, func(r string) bool { return strings.HasPrefix(r, "forwarder namespace ") })
	slices.Sort(want)
	want = slices.Compact(want) // both markers have namespaces
	if diff := cmp.Diff(want, slices.Sorted(slices.Values(flattenRules("forwarder", true, role.Rules)))); diff != "" {
		t.Errorf("marker (-) against chart (+):\n%s", diff)
	}
	binding := get[rbacv1.ClusterRoleBinding](t, all, "ClusterRoleBinding", name)
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != release+"-forwarder" || binding.RoleRef.Name != name {
		t.Errorf("binding %+v", binding)
	}
	for _, v := range []values{validValues().set("binding.namespaces.allow", []string{"a"}), validValues().
		set("forwarder.podIdentity.enabled", true).set("binding.enabled", false)} {
		for _, o := range render(t, v) {
			if o.GetName() == name && o.GetKind() != "Role" && o.GetKind() != "RoleBinding" {
				t.Errorf("%s %s for forwarders that read no namespace, or listed ones", o.GetKind(), name)
			}
		}
	}
}

// TestAnchors_HaveNoRules checks that the anchors that own all objects grant no rights.
func TestAnchors_HaveNoRules(t *testing.T) {
	t.Parallel()
	all := render(t, validValues())
	if r := get[rbacv1.ClusterRole](t, all, "ClusterRole", namespace+"."+release+"-anchor"); len(r.Rules) != 0 ||
		r.AggregationRule != nil {
		t.Errorf("%+v", r.Rules)
	}
	if r := get[rbacv1.Role](t, all, "Role", release+"-anchor"); len(r.Rules) != 0 {
		t.Errorf("%+v", r.Rules)
	}
	for _, o := range append(all, render(t, validValues().set("binding.namespaces.allow", []string{"team-a"}))...) {
		if !strings.HasSuffix(o.GetName(), "-anchor") || !strings.HasSuffix(o.GetKind(), "Binding") {
			continue
		}
		b := get[rbacv1.RoleBinding](t, rendered{o}, o.GetKind(), o.GetName())
		if len(b.Subjects) != 0 || b.RoleRef.Name != b.Name {
			t.Errorf("%s %s binds %s to %v", o.GetKind(), b.Name, b.RoleRef.Name, b.Subjects)
		}
	}
}
