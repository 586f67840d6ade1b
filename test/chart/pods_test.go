// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

func deployments(t *testing.T) []appsv1.Deployment {
	t.Helper()
	all := render(t, exportingValues().set("api.caBundle", "-----BEGIN CERTIFICATE-----\n"))
	return []appsv1.Deployment{manager(t, all), forwarder(t, all), exporter(t, all)}
}

// What the restricted Pod Security Standard asks for, and a read-only root besides. TestInstall
// asks the API server the same.
func TestPods_AreRestricted(t *testing.T) {
	t.Parallel()
	for _, d := range deployments(t) {
		pod := d.Spec.Template.Spec
		if pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.InitContainers) > 0 || len(pod.Containers) != 1 {
			t.Errorf("%s: %+v", d.Name, pod)
		}
		id := ptr.To[int64](65532)
		wantPod := &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: id, RunAsGroup: id, FSGroup: id,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		if diff := cmp.Diff(wantPod, pod.SecurityContext); diff != "" {
			t.Errorf("%s: %s", d.Name, diff)
		}
		want := &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), RunAsNonRoot: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}
		if diff := cmp.Diff(want, pod.Containers[0].SecurityContext); diff != "" {
			t.Errorf("%s: %s", d.Name, diff)
		}
	}
}

// TestPods_OneCredentialEach checks that each component sees its own credential and nothing of the
// other's.
func TestPods_OneCredentialEach(t *testing.T) {
	t.Parallel()
	for i, key := range []string{"api-key", "authtoken", "exporter-api-key"} {
		d := deployments(t)[i]
		secrets := 0
		for _, v := range d.Spec.Template.Spec.Volumes {
			if v.Secret == nil {
				if v.ConfigMap == nil {
					t.Errorf("%s: volume %s is neither the credential nor the authority", d.Name, v.Name)
				}
				continue
			}
			secrets++
			want := &corev1.SecretVolumeSource{
				SecretName: release + "-credentials", DefaultMode: ptr.To[int32](0o444),
				Items: []corev1.KeyToPath{{Key: key, Path: key}},
			}
			if diff := cmp.Diff(want, v.Secret); diff != "" {
				t.Errorf("%s: %s", d.Name, diff)
			}
		}
		if secrets != 1 || len(d.Spec.Template.Spec.Containers[0].EnvFrom) > 0 {
			t.Errorf("%s: %d secrets mounted", d.Name, secrets)
		}
		for _, e := range d.Spec.Template.Spec.Containers[0].Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
				t.Errorf("%s: variable %s holds a secret", d.Name, e.Name)
			}
		}
	}
}

// A rollout never has fewer pods than it began with, a drain of a node takes one pod at a time, and
// two pods go to two nodes if there are any.
func TestPods_AlwaysOneAvailable(t *testing.T) {
	t.Parallel()
	all := render(t, exportingValues())
	for _, d := range []appsv1.Deployment{manager(t, all), forwarder(t, all), exporter(t, all)} {
		update := d.Spec.Strategy.RollingUpdate
		if *d.Spec.Replicas != 2 || update == nil || update.MaxSurge.IntValue() != 1 ||
			update.MaxUnavailable.IntValue() != 0 {
			t.Errorf("%s: %d replicas, %+v", d.Name, *d.Spec.Replicas, d.Spec.Strategy)
		}
		budget := get[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget", d.Name)
		if budget.Spec.MaxUnavailable.IntValue() != 1 || budget.Spec.MinAvailable != nil {
			t.Errorf("%s: budget %+v", d.Name, budget.Spec)
		}
		spread := d.Spec.Template.Spec.TopologySpreadConstraints
		if len(spread) != 1 || spread[0].WhenUnsatisfiable != corev1.ScheduleAnyway {
			t.Errorf("%s: spread %+v", d.Name, spread)
		}
		for what, selector := range map[string]*metav1.LabelSelector{"Deployment": d.Spec.Selector,
			"budget": budget.Spec.Selector, "spread": spread[0].LabelSelector} {
			s, err := metav1.LabelSelectorAsSelector(selector)
			if err != nil || !s.Matches(labels.Set(d.Spec.Template.Labels)) {
				t.Errorf("%s: the %s's selector %v does not match its pods (%v)", d.Name, what, s, err)
			}
		}
		c := d.Spec.Template.Spec.Containers[0]
		if c.ReadinessProbe == nil || c.LivenessProbe == nil || len(c.Resources.Requests) == 0 ||
			len(c.Resources.Limits) == 0 {
			t.Errorf("%s: probes or resources are missing", d.Name)
		}
	}
}

// TestForwarderPods_Autoscaled checks that nothing sets the number of forwarders beside the
// autoscaler, and that the metric that it asks for is one of the forwarder's.
func TestForwarderPods_Autoscaled(t *testing.T) {
	t.Parallel()
	v := validValues().set("forwarder.autoscaling.enabled", true).set("forwarder.autoscaling.targetConnections", 500)
	all := render(t, v)
	d := forwarder(t, all)
	scaler := get[autoscalingv2.HorizontalPodAutoscaler](t, all, "HorizontalPodAutoscaler", d.Name).Spec
	if d.Spec.Replicas != nil || scaler.ScaleTargetRef.Name != d.Name || scaler.ScaleTargetRef.Kind != "Deployment" ||
		*scaler.MinReplicas != 2 || scaler.MaxReplicas != 10 || len(scaler.Metrics) != 2 {
		t.Fatalf("replicas %v, autoscaler %+v", d.Spec.Replicas, scaler)
	}
	page, err := os.ReadFile("../../docs/watch/metrics.md")
	must.Succeed(t, err)
	if name := scaler.Metrics[1].Pods.Metric.Name; !strings.Contains(string(page), "| `"+name+"` | gauge |") {
		t.Errorf("docs/watch/metrics.md, which is made from what forwarders serve, has no gauge %s", name)
	}
	for _, o := range render(t, validValues()) {
		if o.GetKind() == "HorizontalPodAutoscaler" {
			t.Errorf("an autoscaler that is not asked for: %s", o.GetName())
		}
	}
}

// The manager's flags hold the labels by which upstream Services select forwarders; they must
// select no other pods.
func TestForwarderPods_MatchUpstreamSelector(t *testing.T) {
	t.Parallel()
	all := render(t, exportingValues())
	flags := map[string]string{}
	for _, a := range arguments(manager(t, all).Spec.Template.Spec.Containers[0]) {
		for flag, label := range map[string]string{"--forwarder-name=": "app.kubernetes.io/name",
			"--forwarder-instance=": "app.kubernetes.io/instance"} {
			if len(a) > len(flag) && a[:len(flag)] == flag {
				flags[label] = a[len(flag):]
			}
		}
	}
	selector := labels.SelectorFromSet(flags)
	if len(flags) != 2 || !selector.Matches(labels.Set(forwarder(t, all).Spec.Template.Labels)) ||
		selector.Matches(labels.Set(manager(t, all).Spec.Template.Labels)) ||
		selector.Matches(labels.Set(exporter(t, all).Spec.Template.Labels)) {
		t.Errorf("selector %s", selector)
	}
}

// TestExporterPods_GracePeriodCoversDrain checks that the pod lives long enough for the exporter's
// shutdown, and is told to stop at once: nothing but the service connects to it.
func TestExporterPods_GracePeriodCoversDrain(t *testing.T) {
	t.Parallel()
	for drain, want := range map[string]int64{"0s": 30, "90s": 120, "15m": 930, "2h": 7230} {
		pod := exporter(t, render(t, exportingValues().set("export.drainTimeout", drain))).Spec.Template.Spec
		if got := pod.TerminationGracePeriodSeconds; got == nil || *got != want {
			t.Errorf("%s: grace period %v, want %d", drain, got, want)
		}
		if pod.Containers[0].Lifecycle != nil {
			t.Errorf("%s: %+v", drain, pod.Containers[0].Lifecycle)
		}
	}
}
