// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// specialNames are valid names of namespaces, releases and Secrets that YAML reads as numbers,
// booleans, dates or null where they are not quoted.
var specialNames = []string{"1234567", "1e3", "0x1f", "0o17", "007", "2026-11-22", "true", "off", "yes", "n", "null"}

// specialTexts are what YAML, a template or the kubelet could change in a text.
var specialTexts = append([]string{
	"a\u0085b", "\u0085", "a\u2028b\u2029c", "\ufeffa", "a\u007fb\u0001c", "a\u009fb", "a\u0085\nb\n",
	"1_000", ".inf", "~", "=", "a: b #c", "'\"\\", "$(X)$$",
}, specialNames...)

// plainText is a text that reads as itself everywhere; a test renders it and replaces it.
const plainText = "harmless"

const begin = "-----BEGIN CERTIFICATE-----"

// substitute returns what a chart rendered with plainText must be with another text.
func substitute(all flat, text string) flat {
	return replaceAll(all, strings.NewReplacer(plainText, text))
}

// replaceAll replaces in the names of objects, paths and values.
func replaceAll(all flat, r *strings.Replacer) flat {
	result := flat{}
	for object, lines := range all {
		at := map[string]string{}
		for path, value := range lines {
			at[r.Replace(path)] = r.Replace(value)
		}
		result[r.Replace(object)] = at
	}
	return result
}

// comparable is flatten without what is derived from texts: checksums, the encoding of Secrets, and
// what is derived from the name of the release and its namespace.
func comparable(t *testing.T, all rendered, name string) flat {
	t.Helper()
	result := flatten(all)
	for object, lines := range result {
		for path, value := range lines {
			switch {
			case strings.Contains(path, "checksum/"):
				delete(lines, path)
			case strings.HasPrefix(object, "Secret ") && strings.HasPrefix(path, ".data."):
				b, err := base64.StdEncoding.DecodeString(strings.Trim(value, `"`))
				if err != nil {
					t.Error(err)
				}
				lines[path] = string(b)
			}
		}
	}
	hash := sha256.Sum256([]byte(name))
	return replaceAll(result, strings.NewReplacer(
		installation.Installation{Namespace: name, Release: name}.ID(), "the installation's ID",
		"forwarders-"+hex.EncodeToString(hash[:6]), "the forwarders' Service",
		name+"-forwarders", "the forwarders' Service"))
}

// operatorNames sets every value of the operator's chart that is a name.
func operatorNames(name string) values {
	labels := map[string]any{"example.com/name": name}
	v := values{}.set("api.url", "https://fairlead.example.com").set("api.versionHeader", name).
		set("credentials.existingSecret", name).set("clusterName", name).set("clusterDomain", name).
		set("binding.endpointSelector", name).set("binding.namespaces.deny", []any{name}).
		set("binding.namespaces.selector", "a="+name).set("binding.acceptAccount", name).
		set("image.tag", name).set("imagePullSecrets", []any{map[string]any{"name": name}}).
		set("forwarder.podIdentity.enabled", true).set("forwarder.podIdentity.annotations", []any{name}).
		set("metrics.podMonitor.enabled", true).set("metrics.podMonitor.labels", labels).
		set("networkPolicy.enabled", true).set("export.enabled", true)
	for _, component := range []string{"manager", "forwarder", "export"} {
		v = v.set(component+".priorityClassName", name).set(component+".nodeSelector", labels).
			set(component+".podLabels", labels).set(component+".podAnnotations", labels)
	}
	return v
}

// serverNames sets every value of the server's chart that is a name.
func serverNames(name string) values {
	labels := map[string]any{"example.com/name": name}
	return values{}.set("tls.existingSecret", name).set("bootstrap.existingSecret", name).
		set("versionHeaders", []any{name}).set("database.urlSecret.name", name).set("database.urlSecret.key", name).
		set("secretKey.name", name).set("secretKey.key", name).
		set("persistence.storageClass", name).set("service.type", "LoadBalancer").set("service.loadBalancerClass",
		name).
		set("service.annotations", labels).set("public.enabled", true).set("public.tlsSecrets", []any{name}).
		set("geoip.existingClaim", name).set("geoip.databases", []any{name}).set("image.tag", name).
		set("imagePullSecrets", []any{map[string]any{"name": name}}).set("priorityClassName", name).
		set("nodeSelector", labels).set("podLabels", labels).set("podAnnotations", labels).
		set("metrics.enabled", true).set("metrics.podMonitor.enabled", true).set("metrics.podMonitor.labels", labels).
		set("podDisruptionBudget.enabled", true).set("networkPolicy.enabled", true)
}

// Names that YAML could read as something else stay texts wherever a chart writes them: release,
// namespace and values.
func TestNames_RenderAsText(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		dir  string
		with func(name string) values
	}{
		"operator": {chartDir, operatorNames},
		"operator, listed namespaces": {chartDir, func(name string) values {
			return exportingValues().set("binding.namespaces.allow", []any{"a-" + name, "b"}).
				set("proxy.httpsProxy", "http://"+name).set("proxy.noProxy", name)
		}},
		"operator, own secret": {chartDir, func(string) values {
			return validValues().set("api.caBundle", begin+"\n")
		}},
		"server": {serverDir, serverNames},
		"server, own claim": {serverDir, func(name string) values {
			return values{}.set("persistence.existingClaim", name).set("tls.names", []any{name})
		}},
	} {
		rendering := func(t *testing.T, text string) flat {
			t.Helper()
			out, err := helm(t, os.DevNull, tt.with(text),
				"template", text, tt.dir, "--namespace", text, "--kube-version", kubeVersion)
			must.Succeed(t, err)
			return comparable(t, parse(t, out), text)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := rendering(t, plainText)
			for _, nasty := range specialNames {
				if diff := cmp.Diff(substitute(plain, nasty), rendering(t, nasty)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", nasty, diff)
				}
			}
		})
	}
}

// Free texts arrive as they were given, control characters and line ends of other alphabets
// included.
func TestTexts_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, text := range specialTexts {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			annotated := map[string]any{"example.com/text": text}
			all := render(t, validValues().set("binding.endpointSelector", text).set("description", text).
				set("clusterName", text).
				set("api.caBundle", begin+text).
				set("manager.podAnnotations", annotated).set("forwarder.podAnnotations", annotated))
			env := environment(manager(t, all).Spec.Template.Spec.Containers[0])
			authority := get[corev1.ConfigMap](t, all, "ConfigMap", release+"-ca").Data["ca.crt"]
			served := renderServer(t, values{}.set("podAnnotations", annotated).
				set("service.annotations", annotated).set("extraArgs", []any{"--a=" + text}))
			got := map[string]string{
				"selector": env["FAIRLEAD_ENDPOINT_SELECTOR"], "description": env["FAIRLEAD_DESCRIPTION"],
				"cluster": env["FAIRLEAD_CLUSTER_NAME"], "authority": strings.TrimPrefix(authority, begin),
				"manager":   manager(t, all).Spec.Template.Annotations["example.com/text"],
				"forwarder": forwarder(t, all).Spec.Template.Annotations["example.com/text"],
				"server":    server(t, served).Spec.Template.Annotations["example.com/text"],
				"Service":   get[corev1.Service](t, served, "Service", serverRelease).Annotations["example.com/text"],
				"argument": strings.TrimPrefix(arguments(server(t, served).Spec.Template.Spec.Containers[0])[1],
					"--a="),
			}
			for what, value := range got {
				if value != text {
					t.Errorf("%s: %q became %q", what, text, value)
				}
			}
		})
	}
}

// installsUnderSpecialNames installs both charts in a namespace and under a release name that YAML
// reads as a number.
func (c *cluster) installsUnderSpecialNames() {
	c.t.Helper()
	const name = "1e3"
	c.install(name, name)
	var all appsv1.DeploymentList
	if err := c.List(context.Background(), &all, client.InNamespace(name)); err != nil || len(all.Items) != 2 {
		c.t.Errorf("%d Deployments, %v", len(all.Items), err)
	}
	var roles rbacv1.ClusterRoleList
	err := c.List(context.Background(), &roles, client.MatchingLabels{"app.kubernetes.io/instance": name})
	if err != nil || len(roles.Items) == 0 {
		c.t.Errorf("%d ClusterRoles, %v", len(roles.Items), err)
	}
	c.uninstall(name, name)
	for _, verb := range []string{"install", "uninstall"} {
		args := []string{verb, name, "--namespace", name}
		if verb == "install" {
			args = append(args, serverDir)
		}
		if out, err := helm(c.t, c.kubeconfig, nil, args...); err != nil {
			c.t.Errorf("%v: %s", err, out)
		}
	}
}
