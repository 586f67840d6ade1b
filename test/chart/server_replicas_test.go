// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"net"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const relayPort = "8445"

// replicaValues are what replicas need, without their number: one server on PostgreSQL.
func replicaValues() values {
	return values{}.set("persistence.enabled", false).set("database.urlSecret.name", "postgres").
		set("secretKey.name", "sealing").set("bootstrap.existingSecret", "first")
}

// TestServerChart_ReplicasAreRolled checks that a rollout never has fewer pods than it began with,
// that a drain of nodes takes one at a time, and that pods go to different nodes if there are any.
func TestServerChart_ReplicasAreRolled(t *testing.T) {
	t.Parallel()
	all := renderServer(t, replicaValues().set("replicas", 3))
	d := server(t, all)
	update := d.Spec.Strategy.RollingUpdate
	if *d.Spec.Replicas != 3 || update == nil || update.MaxSurge.IntValue() != 1 ||
		update.MaxUnavailable.IntValue() != 0 {
		t.Errorf("%d replicas, %+v", *d.Spec.Replicas, d.Spec.Strategy)
	}
	budget := get[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget", serverRelease)
	if budget.Spec.MaxUnavailable.IntValue() != 1 || budget.Spec.MinAvailable != nil {
		t.Errorf("budget %+v", budget.Spec)
	}
	spread := d.Spec.Template.Spec.TopologySpreadConstraints
	if len(spread) != 1 || spread[0].WhenUnsatisfiable != corev1.ScheduleAnyway {
		t.Fatalf("spread %+v", spread)
	}
	for what, selector := range map[string]*metav1.LabelSelector{"Deployment": d.Spec.Selector,
		"budget": budget.Spec.Selector, "spread": spread[0].LabelSelector} {
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil || !s.Matches(labels.Set(d.Spec.Template.Labels)) {
			t.Errorf("the %s's selector %v does not match the pods (%v)", what, s, err)
		}
	}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			t.Errorf("replicas share the claim %s", v.PersistentVolumeClaim.ClaimName)
		}
	}
}

// TestServerChart_ReplicaModeFollowsTheValue checks that one replica is one, and that a server
// alone has nothing of replicas.
func TestServerChart_ReplicaModeFollowsTheValue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values values
		flag   bool
		budget int
	}{
		"nothing given":      {values{}, false, 0},
		"PostgreSQL":         {replicaValues(), false, 0},
		"one replica":        {replicaValues().set("replicas", 1), true, 0},
		"one that must stay": {replicaValues().set("replicas", 1).set("podDisruptionBudget.enabled", true), true, 1},
		"two":                {replicaValues().set("replicas", 2), true, 1},
	} {
		all := renderServer(t, c.values)
		d := server(t, all)
		args := arguments(d.Spec.Template.Spec.Containers[0])
		flag := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--relay-address=") })
		rolling := d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType
		budgets := 0
		for _, o := range all {
			if o.GetKind() == "PodDisruptionBudget" {
				budgets++
			}
		}
		if flag != c.flag || rolling != c.flag || budgets != c.budget {
			t.Errorf("%s: strategy %s, flags %v, %d budgets", name, d.Spec.Strategy.Type, args, budgets)
		}
	}
}

// TestServerChart_RelayPortIsForReplicas checks the address that a replica gives to the others, and
// that nothing else reaches it.
func TestServerChart_RelayPortIsForReplicas(t *testing.T) {
	t.Parallel()
	all := renderServer(t, replicaValues().set("replicas", 3).set("networkPolicy.enabled", true))
	container := server(t, all).Spec.Template.Spec.Containers[0]
	for _, ip := range []string{"10.0.0.7", "fd00::7"} {
		for _, arg := range container.Args {
			address, ok := strings.CutPrefix(arg, "--relay-address=")
			if !ok {
				continue
			}
			host, port, err := net.SplitHostPort(expand(address, map[string]string{"POD_IP": ip}))
			if err != nil || host != ip || port != relayPort {
				t.Errorf("%s becomes %s, %s: %v", address, host, port, err)
			}
		}
	}
	for _, o := range all {
		if o.GetKind() != "Service" {
			continue
		}
		for _, p := range get[corev1.Service](t, rendered{o}, "Service", o.GetName()).Spec.Ports {
			if p.TargetPort.String() == "relay" || p.TargetPort.String() == relayPort {
				t.Errorf("the Service %s has the relay's port", o.GetName())
			}
		}
	}
	for _, rule := range get[networkingv1.NetworkPolicy](t, all, "NetworkPolicy", serverRelease).Spec.Ingress {
		relay := slices.ContainsFunc(rule.Ports, func(p networkingv1.NetworkPolicyPort) bool {
			return p.Port.String() == "relay"
		})
		if relay && (len(rule.Ports) != 1 || len(rule.From) != 1 || rule.From[0].PodSelector == nil ||
			rule.From[0].NamespaceSelector != nil || len(rule.From[0].PodSelector.MatchLabels) != 2) {
			t.Errorf("the relay's port is open to %+v", rule)
		}
	}
}

// TestServerChart_ReplicasOutliveTheirDrain checks that a pod is not killed while it still accepts,
// drains or closes.
func TestServerChart_ReplicasOutliveTheirDrain(t *testing.T) {
	t.Parallel()
	v := replicaValues().set("replicas", 3).set("drainTimeout", "2m").set("shutdownDelay", "1m")
	if got := *server(t, renderServer(t, v)).Spec.Template.Spec.TerminationGracePeriodSeconds; got != 200 {
		t.Errorf("the pod is killed after %d s, want 200", got)
	}
}

// TestServerChart_DirectAddresses checks the address of a pod that forwarders are told: the service's
// port, which networkPolicy.enabled leaves open.
func TestServerChart_DirectAddresses(t *testing.T) {
	t.Parallel()
	const flag = "--replica-address="
	for name, c := range map[string]struct {
		values values
		want   bool
	}{
		"one server": {replicaValues(), false},
		"replicas":   {replicaValues().set("replicas", 3), true},
		"turned off": {replicaValues().set("replicas", 3).set("directAddresses", false), false},
	} {
		container := server(t, renderServer(t, c.values)).Spec.Template.Spec.Containers[0]
		var found []string
		for _, arg := range container.Args {
			if address, ok := strings.CutPrefix(arg, flag); ok {
				found = append(found, address)
			}
		}
		if (len(found) == 1) != c.want || len(found) > 1 {
			t.Errorf("%s: addresses %q", name, found)
			continue
		}
		for _, ip := range []string{"10.0.0.7", "fd00::7"} {
			if !c.want {
				break
			}
			host, port, err := net.SplitHostPort(expand(found[0], map[string]string{"POD_IP": ip}))
			if err != nil || host != ip || port != "8443" {
				t.Errorf("%s: %s becomes %s, %s: %v", name, found[0], host, port, err)
			}
		}
	}
}
