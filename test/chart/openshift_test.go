// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// The annotation by which OpenShift gives a namespace its UIDs, as FIRST/COUNT.
const (
	rangeAnnotation = "openshift.io/sa.scc.uid-range"
	uidRange        = "1000680000/10000"
	firstUID        = int64(1000680000)
)

// openShiftValues writes the values file of docs/start/openshift.md.
func openShiftValues(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/start/openshift.md")
	must.Succeed(t, err)
	block := valuesFile.FindStringSubmatch(string(page))
	if block == nil {
		t.Fatal("docs/start/openshift.md has no file of values")
	}
	file := filepath.Join(t.TempDir(), block[2])
	must.Succeed(t, os.WriteFile(file, []byte(block[1]), 0o600))
	return file
}

// uidPolicy refuses pods whose users or groups are outside of their namespace's range, as OpenShift's
// restricted-v2 does.
func uidPolicy() client.Object {
	const ids = `[object.spec.?securityContext.?runAsUser, object.spec.?securityContext.?fsGroup] + ` +
		`object.spec.containers.map(c, c.?securityContext.?runAsUser)`
	return &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "uids"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
						Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
							Resources: []string{"pods"}},
					}}},
			},
			Variables: []admissionregistrationv1.Variable{{Name: "range",
				Expression: `namespaceObject.metadata.annotations["` + rangeAnnotation + `"].split("/")`}},
			Validations: []admissionregistrationv1.Validation{{
				Expression: `(` + ids + `).all(id, !id.hasValue() || id.value() >= int(variables.range[0]) && ` +
					`id.value() < int(variables.range[0]) + int(variables.range[1]))`,
				Reason:  ptr.To(metav1.StatusReasonForbidden),
				Message: "the user or group is not in the namespace's range",
			}},
		},
	}
}

// startOpenShift returns a cluster with the policy in force, and namespaces that enforce the
// restricted standard and have a range.
func startOpenShift(t *testing.T, namespaces ...string) *cluster {
	t.Helper()
	c := startCluster(t)
	for _, name := range namespaces {
		must.Succeed(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels:      map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
			Annotations: map[string]string{rangeAnnotation: uidRange}}}))
	}
	must.Succeed(t, c.Create(t.Context(), uidPolicy()))
	must.Succeed(t, c.Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "uids"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "uids",
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}))
	refused := manager(t, render(t, validValues())).Spec.Template.Spec
	must.Succeed(t, wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			return apierrors.IsForbidden(c.tryPod(ctx, namespaces[0], refused)), nil
		}))
	return c
}

// tryPod asks the API server whether it would admit the pod.
func (c *cluster) tryPod(ctx context.Context, namespace string, spec corev1.PodSpec) error {
	return c.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "try"}, Spec: spec},
		client.DryRunAll)
}

// TestOpenShift_AdmitsPods renders both charts by default, with the file of the page, and with a UID
// of the range: the first are refused and all pods of the others admitted, those of `helm test`, too.
func TestOpenShift_AdmitsPods(t *testing.T) {
	t.Parallel()
	c := startOpenShift(t, namespace)
	file := openShiftValues(t)
	for name, tt := range map[string]struct {
		args     []string
		user     *int64
		admitted bool
	}{
		"by default":    {nil, ptr.To[int64](65532), false},
		"with the file": {[]string{"--values", file}, nil, true},
		"with a UID": {[]string{"--values", file, "--set", "podSecurityContext.runAsUser=1000680000"},
			ptr.To(firstUID), true},
	} {
		operatorChart, err := template(t, exportingValues(), tt.args...)
		must.Succeed(t, err)
		serverChart, err := templateServer(t, values{}.set("tls.existingSecret", "certificate"), tt.args...)
		must.Succeed(t, err)
		pods := podSpecs(t, append(parse(t, operatorChart), parse(t, serverChart)...))
		if len(pods) != 6 {
			t.Errorf("%s: %d kinds of pods, want three of the operator, the server and two of tests", name, len(pods))
		}
		for pod, spec := range pods {
			if got := spec.SecurityContext.RunAsUser; ptr.Deref(got, -1) != ptr.Deref(tt.user, -1) {
				t.Errorf("%s: %s has the user %v, want %v", name, pod, got, tt.user)
			}
			if err := c.tryPod(t.Context(), namespace, spec); (err == nil) != tt.admitted {
				t.Errorf("%s: %s: %v, want it admitted: %v", name, pod, err, tt.admitted)
			}
		}
	}
}

// TestOpenShift_ReleaseKeepsNulls installs with the file, upgrades with --reuse-values, and rolls
// back: what null removed stays removed.
func TestOpenShift_ReleaseKeepsNulls(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	check := func(when string) {
		t.Helper()
		var all appsv1.DeploymentList
		if err := c.List(t.Context(), &all, client.InNamespace(namespace)); err != nil || len(all.Items) != 2 {
			t.Fatalf("%s: %d Deployments, %v", when, len(all.Items), err)
		}
		for _, d := range all.Items {
			s := d.Spec.Template.Spec.SecurityContext
			if s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || !ptr.Deref(s.RunAsNonRoot, false) {
				t.Errorf("%s: %s: %+v", when, d.Name, s)
			}
		}
	}
	c.install(release, namespace, "--values", openShiftValues(t))
	check("after the installation")
	_, err := helm(t, c.kubeconfig, nil, "upgrade", release, chartDir, "--namespace", namespace, "--reuse-values",
		"--set", "manager.replicas=3")
	must.Succeed(t, err)
	check("after an upgrade")
	_, err = helm(t, c.kubeconfig, nil, "rollback", release, "1", "--namespace", namespace)
	must.Succeed(t, err)
	check("after the rollback")
}

// TestPods_ServeAnyUID checks that whatever user a pod has can read what is mounted, writes only
// where it may, and runs on Linux.
func TestPods_ServeAnyUID(t *testing.T) {
	t.Parallel()
	own := map[string]any{"example.com/pool": "edge", "kubernetes.io/os": "linux"}
	operatorValues := exportingValues().set("api.caBundle", "-----BEGIN CERTIFICATE-----\n")
	serverValues := replicaValues().set("tls.existingSecret", "certificate").set("public.enabled", true).
		set("public.tlsSecrets", []any{"wildcard"})
	for pod, spec := range podSpecs(t, append(append(render(t, operatorValues),
		render(t, federatedValues().set("forwarder.nodeSelector", own))...), renderServer(t, serverValues)...)) {
		if spec.NodeSelector["kubernetes.io/os"] != "linux" {
			t.Errorf("%s may go to nodes %v", pod, spec.NodeSelector)
		}
		volumes := map[string]corev1.Volume{}
		for _, v := range spec.Volumes {
			volumes[v.Name] = v
			for source, mode := range fileModes(v) {
				if ptr.Deref(mode, 0o644)&0o444 != 0o444 {
					t.Errorf("%s: files of the %s %s have the mode %o", pod, source, v.Name, *mode)
				}
			}
		}
		for _, m := range spec.Containers[0].VolumeMounts {
			v := volumes[m.Name]
			if !m.ReadOnly && v.EmptyDir == nil && v.PersistentVolumeClaim == nil {
				t.Errorf("%s writes to %s", pod, m.MountPath)
			}
		}
	}
}

// fileModes returns the modes of the files of a volume by its kind.
func fileModes(v corev1.Volume) map[string]*int32 {
	switch {
	case v.Secret != nil:
		return map[string]*int32{"Secret": v.Secret.DefaultMode}
	case v.Projected != nil:
		return map[string]*int32{"token": v.Projected.DefaultMode}
	case v.ConfigMap != nil:
		return map[string]*int32{"ConfigMap": v.ConfigMap.DefaultMode}
	}
	return nil
}

// podSpecs returns the specs of pods by kind and name, of Deployments as well.
func podSpecs(t *testing.T, all rendered) map[string]corev1.PodSpec {
	t.Helper()
	specs := map[string]corev1.PodSpec{}
	for i, o := range all {
		name := strings.Join([]string{o.GetKind(), o.GetName()}, " ")
		if _, twice := specs[name]; twice {
			name += " again"
		}
		switch o.GetKind() {
		case "Deployment":
			specs[name] = get[appsv1.Deployment](t, all[i:i+1], "Deployment", o.GetName()).Spec.Template.Spec
		case "Pod":
			specs[name] = get[corev1.Pod](t, all[i:i+1], "Pod", o.GetName()).Spec
		}
	}
	return specs
}
