// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

const (
	serverDir     = "../../charts/fairlead-server"
	serverRelease = "fairlead-server"
	serverData    = "testdata/server"
)

func templateServer(t *testing.T, v values, args ...string) (string, error) {
	t.Helper()
	return helm(t, os.DevNull, v,
		append([]string{"template", serverRelease, serverDir, "--namespace", namespace, "--kube-version", kubeVersion},
			args...)...)
}

func renderServer(t *testing.T, v values) rendered {
	t.Helper()
	text, err := templateServer(t, v)
	must.Succeed(t, err)
	return parse(t, text)
}

func server(t *testing.T, all rendered) appsv1.Deployment {
	t.Helper()
	return get[appsv1.Deployment](t, all, "Deployment", serverRelease)
}

func TestServerChart_Golden(t *testing.T) {
	t.Parallel()
	golden(t, serverData, func(t *testing.T, input string) (string, error) {
		return templateServer(t, nil, "--values", input)
	})
}

func TestServerChart_Lint(t *testing.T) {
	t.Parallel()
	if out, err := helm(t, os.DevNull, nil, "lint", "--strict", "--kube-version", kubeVersion, "--values",
		serverData+"/everything.in.yaml", serverDir); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// serverEffects has a case for every value of the server's values.yaml.
func serverEffects() []effect {
	return slices.Concat(serverReachEffects(), serverPodEffects(), policyEffects(values{}), []effect{
		{"podSecurityContext.fsGroupChangePolicy", "Always", nil},
		{"topologySpreadConstraints", []any{map[string]any{"maxSkew": 1,
			"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}}, nil},
		{"extraEnv", environmentCase(), nil},
	})
}

// serverReachEffects are those of how the service is reached, and of where its data is.
func serverReachEffects() []effect {
	node := values{}.set("service.type", "NodePort")
	balancer := values{}.set("service.type", "LoadBalancer")
	public := values{}.set("public.enabled", true).set("public.tlsSecrets", []any{"wildcard"})
	agreed := public.set(acmeTerms, true)
	bootstrap := values{}.set("bootstrap.existingSecret", "first")
	sealed := values{}.set("secretKey.name", "sealing")
	geoip := values{}.set("geoip.existingClaim", "maps").set("geoip.databases", []any{"city.mmdb"})
	texts := map[string]any{"example.com/name": "text"}
	ranges := []any{"192.0.2.0/24"}
	return []effect{
		{"baseURL", "https://fairlead.example.com", nil},
		{"tunnelURL", "https://tunnels.example.com:9443", nil},
		{"versionHeaders", []any{"X-Version", "X-Other"}, nil},
		{"tls.existingSecret", "certificate", nil},
		{"tls.names", []any{"a.example.com", "192.0.2.1"}, nil},
		{"bootstrap.existingSecret", "first", nil},
		{"bootstrap.apiKeyKey", "", bootstrap},
		{"bootstrap.authtokenKey", "token", bootstrap},
		{"database.urlSecret.name", "postgres", sealed},
		{"database.caSecret.name", "postgres-ca", nil},
		{"database.caSecret.key", "tls.crt", values{}.set("database.caSecret.name", "postgres-ca")},
		{"database.urlSecret.key", "uri", sealed.set("database.urlSecret.name", "postgres")},
		{"secretKey.name", "sealing", nil},
		{"secretKey.key", "key", sealed},
		{"replicas", 3, replicaValues()},
		{"persistence.enabled", false, nil},
		{"persistence.existingClaim", "mine", nil},
		{"persistence.storageClass", "-", nil},
		{"persistence.accessMode", "ReadWriteOncePod", nil},
		{"persistence.size", "20Gi", nil},
		{"persistence.keep", false, nil},
		{"service.type", "NodePort", nil},
		{"service.port", 443, nil},
		{"service.nodePort", 30443, node},
		{"service.annotations", texts, nil},
		{"service.loadBalancerClass", "example.com/inner", balancer},
		{"service.loadBalancerSourceRanges", ranges, balancer},
		{"service.externalTrafficPolicy", "Local", node},
		{"public.enabled", true, nil},
		{"public.tlsSecrets", []any{"wildcard", "other"}, values{}.set("public.enabled", true)},
		{"public.acme.directory", "https://acme.example.com/directory", agreed},
		{acmeTerms, true, public.set("public.acme.directory", "https://acme.example.com/dir")},
		{"public.acme.email", "ops@example.com", agreed.set("public.acme.directory", "https://acme.example.com/dir")},
		{"public.service.type", "ClusterIP", public},
		{"public.service.httpPort", 8080, public},
		{"public.service.httpsPort", 8443, public},
		{"public.service.httpNodePort", 30080, public},
		{"public.service.httpsNodePort", 30444, public},
		{"public.service.annotations", texts, public},
		{"public.service.loadBalancerClass", "example.com/outer", public},
		{"public.service.loadBalancerSourceRanges", ranges, public},
		{"public.service.externalTrafficPolicy", "Cluster", public},
		{"geoip.existingClaim", "others", geoip},
		{"geoip.databases", []any{"city.mmdb", "asn.mmdb"}, geoip},
	}
}

// serverPodEffects are those of what runs, and of what may look at it.
func serverPodEffects() []effect {
	public := values{}.set("public.enabled", true).set("public.tlsSecrets", []any{"wildcard"})
	monitored := values{}.set("metrics.enabled", true).set("metrics.podMonitor.enabled", true)
	alerting := alertingOn(values{}.set("metrics.enabled", true))
	dashboards := values{}.set("metrics.dashboards.enabled", true)
	texts := map[string]any{"example.com/name": "text"}
	return []effect{
		{"drainTimeout", "5m", nil},
		{"shutdownDelay", "1m", replicaValues().set("replicas", 1)},
		{"directAddresses", false, replicaValues().set("replicas", 1)},
		{"endpointGrace", "24h", nil},
		{"identityRetention", "2160h", nil},
		{"logLevel", "debug", nil},
		{"extraArgs", []any{"--bootstrap-file=/tmp/first $(NAME)"}, nil},
		{"metrics.enabled", true, values{}.set("networkPolicy.enabled", true)},
		{"metrics.port", 9100, monitored},
		{"metrics.podMonitor.enabled", true, values{}.set("metrics.enabled", true)},
		{"metrics.podMonitor.interval", "1m", monitored},
		{"metrics.podMonitor.labels", map[string]any{"release": "prometheus"}, monitored},
		{"metrics.prometheusRule.enabled", true, values{}.set("metrics.enabled", true)},
		{"metrics.prometheusRule.labels", map[string]any{"release": "prometheus"}, alerting},
		{"metrics.prometheusRule.disabledAlerts", []any{"FairleadAccessLogDrops"}, alerting},
		{"metrics.dashboards.enabled", true, nil},
		{"metrics.dashboards.labels.grafana_dashboard", "yes", dashboards},
		{"metrics.dashboards.annotations", map[string]any{"grafana_folder": "Fairlead"}, dashboards},
		{"metrics.runbookURL", "https://wiki.example.com/fairlead/", alerting},
		{"image.repository", "registry.example.com:5000/mirror/fairlead-server", nil},
		{"image.tag", "v9.9.9", nil},
		{"image.digest", "sha256:" + strings.Repeat("0a", 32), nil},
		{"image.pullPolicy", "Always", nil},
		{"imagePullSecrets", []any{map[string]any{"name": "registry"}}, nil},
		{"resources.requests.cpu", "1", nil},
		{"resources.requests.memory", "1Gi", nil},
		{"resources.limits.memory", "2Gi", nil},
		{"priorityClassName", "system-cluster-critical", nil},
		{"nodeSelector", texts, nil},
		{"tolerations", []any{map[string]any{"key": "edge", "operator": "Exists", "effect": "NoSchedule"}}, nil},
		{"affinity",
			map[string]any{"nodeAffinity": map[string]any{
				"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
					"nodeSelectorTerms": []any{
						map[string]any{"matchExpressions": []any{map[string]any{"key": "edge", "operator": "Exists"}}}},
				}}}, nil},
		{"podLabels", texts, nil},
		{"podAnnotations", texts, nil},
		{"podDisruptionBudget.enabled", true, nil},
		{"networkPolicy.enabled", true, public},
	}
}

// Every value changes what is installed, in the way that testdata/server/effects.out.txt shows, and
// the program starts with the result.
func TestServerChart_EveryValueHasAnEffect(t *testing.T) {
	t.Parallel()
	starts := &serverStarts{t: t}
	everyValue(t, serverDir, serverData+"/effects.out.txt", values{}, serverEffects(),
		summarized(renderServer), starts.check)
}

// TestServerChart_PodsHaveNoRights checks that a pod of this chart has no rights on its node or in
// its cluster.
func TestServerChart_PodsHaveNoRights(t *testing.T) {
	t.Parallel()
	for _, o := range renderServer(t, values{}) {
		if b, _ := json.Marshal(o.Object); strings.Contains(string(b), "rbac.authorization") ||
			o.GetKind() == "ServiceAccount" {
			t.Errorf("%s %s grants rights", o.GetKind(), o.GetName())
		}
		var spec corev1.PodSpec
		switch o.GetKind() {
		case "Deployment":
			spec = get[appsv1.Deployment](t, rendered{o}, "Deployment", o.GetName()).Spec.Template.Spec
		case "Pod":
			spec = get[corev1.Pod](t, rendered{o}, "Pod", o.GetName()).Spec
		default:
			continue
		}
		if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
			t.Errorf("%s %s mounts the token of an account", o.GetKind(), o.GetName())
		}
		if c := spec.Containers[0].SecurityContext; c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem {
			t.Errorf("%s %s may write its root", o.GetKind(), o.GetName())
		}
	}
}

// TestServerChart_GracePeriodAndTestPods checks that the pod outlives its drain, and that a test's
// pod holds no key.
func TestServerChart_GracePeriodAndTestPods(t *testing.T) {
	t.Parallel()
	for drain, want := range map[string]int64{"10s": 30, "2m": 140, "1h": 3620} {
		if got := *server(t,
			renderServer(t, values{}.set("drainTimeout",
				drain))).Spec.Template.Spec.TerminationGracePeriodSeconds; got != want {
			t.Errorf("drainTimeout %s: the pod is killed after %d s, want %d", drain, got, want)
		}
	}
	pod := get[corev1.Pod](t, renderServer(t, values{}.set("tls.existingSecret", "certificate")), "Pod",
		serverRelease+"-test")
	for _, v := range pod.Spec.Volumes {
		for _, item := range v.Secret.Items {
			if item.Key != "tls.crt" {
				t.Errorf("the test's pod holds %s", item.Key)
			}
		}
	}
	if len(pod.Spec.Volumes) != 1 {
		t.Errorf("%d volumes", len(pod.Spec.Volumes))
	}
}
