// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/ptr"
)

// The pod of `helm test` runs the chart's own image, a command line that the program takes, and
// holds no credential.
func TestHelmTest_RunsTheProgramWithoutCredentials(t *testing.T) {
	t.Parallel()
	all := render(t, exportingValues())
	pod := get[corev1.Pod](t, all, "Pod", release+"-test")
	if !slices.Contains(pod.Spec.Containers[0].Args, "--exporter") ||
		slices.Contains(get[corev1.Pod](t, render(t, validValues()), "Pod", release+"-test").Spec.Containers[0].Args,
			"--exporter") {
		t.Errorf("exporters are to be checked where there are any, and only there: %v", pod.Spec.Containers[0].Args)
	}
	if hook := pod.Annotations["helm.sh/hook"]; hook != "test" {
		t.Errorf("hook %q: nothing may run at install, upgrade or uninstall", hook)
	}
	if len(pod.Spec.Volumes) != 0 || len(pod.Spec.Containers) != 1 {
		t.Errorf("pod %+v", pod.Spec)
	}
	container := pod.Spec.Containers[0]
	if want := manager(t, all).Spec.Template.Spec.Containers[0].Image; container.Image != want {
		t.Errorf("image %s, want %s", container.Image, want)
	}
	container.Env = []corev1.EnvVar{{Name: "POD_NAMESPACE", Value: namespace}}
	out, err := command(t, container, t.TempDir()).CombinedOutput()
	if err == nil || !strings.Contains(string(out), accepted) {
		t.Errorf("%v: %s (%v)", container.Args, out, err)
	}
	out, _ = command(t, container, t.TempDir(), "--no-such-flag").CombinedOutput()
	if strings.Contains(string(out), accepted) {
		t.Error("an unknown flag passes, so this test proves nothing")
	}
}

// TestHelmTest_PodIsRestricted checks what the restricted Pod Security Standard asks for.
func TestHelmTest_PodIsRestricted(t *testing.T) {
	t.Parallel()
	all := render(t, validValues())
	pod := get[corev1.Pod](t, all, "Pod", release+"-test").Spec
	like := manager(t, all).Spec.Template.Spec
	if diff := cmp.Diff(like.SecurityContext, pod.SecurityContext); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(like.Containers[0].SecurityContext, pod.Containers[0].SecurityContext); diff != "" {
		t.Error(diff)
	}
	if pod.RestartPolicy != corev1.RestartPolicyNever || !ptr.Deref(pod.AutomountServiceAccountToken, false) {
		t.Errorf("pod %+v", pod)
	}
}

// TestHelmTest_ReadsOnly checks that the pod has rights of its own, and what they are.
func TestHelmTest_ReadsOnly(t *testing.T) {
	t.Parallel()
	operator := rbacv1.PolicyRule{APIGroups: []string{"bindings.fairlead.dev"},
		Resources: []string{"kubernetesoperators"}, ResourceNames: []string{release}, Verbs: []string{"get"}}
	pods := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}
	for _, tt := range []struct {
		values values
		want   []rbacv1.PolicyRule
	}{{validValues(), []rbacv1.PolicyRule{operator}}, {exportingValues(), []rbacv1.PolicyRule{operator, pods}}} {
		all := render(t, tt.values)
		if got := get[corev1.Pod](t, all, "Pod", release+"-test").Spec.ServiceAccountName; got != release+"-test" {
			t.Errorf("the pod's ServiceAccount is %s", got)
		}
		if diff := cmp.Diff(tt.want, get[rbacv1.Role](t, all, "Role", release+"-test").Rules); diff != "" {
			t.Error(diff)
		}
	}
}

// TestHooks_AreTestsOnly checks that the chart has no hooks but the test.
func TestHooks_AreTestsOnly(t *testing.T) {
	t.Parallel()
	for _, o := range render(t, validValues()) {
		if hook := o.GetAnnotations()["helm.sh/hook"]; hook != "" && hook != "test" {
			t.Errorf("%s %s is a hook: %s", o.GetKind(), o.GetName(), hook)
		}
	}
}

// checkNotes installs with values and reports which of the texts the notes lack.
func (c *cluster) checkNotes(name, ns string, wants []string, args ...string) {
	c.t.Helper()
	notes := c.install(name, ns, args...)
	for _, want := range slices.DeleteFunc(wants, func(want string) bool { return strings.Contains(notes, want) }) {
		c.t.Errorf("the notes lack %q:\n%s", want, notes)
	}
}

// warnsOfSecondRelease installs two releases in one namespace.
func (c *cluster) warnsOfSecondRelease() {
	c.t.Helper()
	c.checkNotes("second", namespace, []string{"WARNING: the release " + release + " is in this namespace already"})
	c.uninstall("second", namespace)
	if notes := c.install(release, namespace); strings.Contains(notes, "WARNING") {
		c.t.Errorf("the notes warn of the release itself:\n%s", notes)
	}
}
