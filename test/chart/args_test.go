// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http/httpproxy"
	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// expand replaces $(NAME) and $$ as the kubelet does in arguments and in the values of variables:
// an unknown $(NAME) stays.
func expand(text string, known ...map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		end := strings.IndexByte(text[i:], ')')
		switch {
		case text[i] == '$':
			b.WriteByte('$')
		case text[i] == '(' && end > 0:
			value := "$" + text[i:i+end+1]
			for _, variables := range known {
				if v, ok := variables[text[i+1:i+end]]; ok {
					value = v
				}
			}
			b.WriteString(value)
			i += end
		default:
			b.WriteString("$" + text[i:i+1])
		}
	}
	return b.String()
}

const kubernetesHost = "10.96.0.1"

// environment returns the container's variables as the process will see them.
func environment(c corev1.Container) map[string]string {
	known := map[string]string{}
	kubernetes := map[string]string{"KUBERNETES_SERVICE_HOST": kubernetesHost} // the kubelet's own, for references only
	for _, v := range c.Env {
		switch {
		case v.ValueFrom == nil:
			known[v.Name] = expand(v.Value, known, kubernetes)
		case v.ValueFrom.SecretKeyRef != nil:
			known[v.Name] = "http://user:password@proxy.example:3128"
		case v.ValueFrom.FieldRef != nil:
			known[v.Name] = map[string]string{"metadata.namespace": namespace, "metadata.name": "pod-1",
				"status.podIP": "10.0.0.7"}[v.ValueFrom.FieldRef.FieldPath]
		}
	}
	return known
}

func arguments(c corev1.Container) []string {
	known := environment(c)
	args := make([]string, len(c.Args))
	for i, a := range c.Args {
		args[i] = expand(a, known)
	}
	return args
}

func TestManagerArgs_PassTextsUnchanged(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`ep.hostname.endsWith('.prod')`,
		`ep.name == "a,b" && ep.metadata.contains('{"x": [1, 2]}')`,
		"ep.name == 'x' && // a comment\n\tep.port == 80\n",
		`ep.description == "Zürich 日本 🚢"`,
		`ep.name.matches("^a\\d+\\.$")`,
		"$(POD_NAMESPACE) $$ $$$(FAIRLEAD_DESCRIPTION) ${HOME} $ $(",
		"  leading and trailing  ", "'", `"`, `\`, "true", "null", "123", "0x1F", "{{ .Release.Name }}", "# no comment",
		"- a: b", "a: b", "%q %s", "\u2028\u00a0\ufeff|", "&amp;<b>",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			all := render(t, validValues().set("binding.endpointSelector", text).set("description", text).
				set("clusterName", text))
			env := environment(manager(t, all).Spec.Template.Spec.Containers[0])
			if got := env["FAIRLEAD_ENDPOINT_SELECTOR"]; got != text {
				t.Errorf("selector %q became %q", text, got)
			}
			if got := env["FAIRLEAD_DESCRIPTION"]; got != text {
				t.Errorf("description %q became %q", text, got)
			}
			if got := env["FAIRLEAD_CLUSTER_NAME"]; got != text {
				t.Errorf("cluster name %q became %q", text, got)
			}
		})
	}
}

// client-go honours HTTPS_PROXY as well, and a proxy that knows the way to the Kubernetes API is
// rare.
func TestProxy_OnlyForService(t *testing.T) {
	t.Parallel()
	all := render(t, exportingValues().set("proxy.httpsProxy", "http://user:password@proxy.example:3128").
		set("proxy.noProxy", ".corp.example,192.0.2.0/24,a$(POD_NAME)"))
	for _, c := range []corev1.Container{manager(t, all).Spec.Template.Spec.Containers[0],
		forwarder(t, all).Spec.Template.Spec.Containers[0], exporter(t, all).Spec.Template.Spec.Containers[0]} {
		env := environment(c)
		if want := kubernetesHost + ",.corp.example,192.0.2.0/24,a$(POD_NAME)"; env["NO_PROXY"] != want {
			t.Errorf("%s: NO_PROXY is %q, want %q", c.Name, env["NO_PROXY"], want)
		}
		proxyFor := (&httpproxy.Config{HTTPSProxy: env["HTTPS_PROXY"], NoProxy: env["NO_PROXY"]}).ProxyFunc()
		for host, want := range map[string]bool{"fairlead.example.com": true, kubernetesHost + ":443": false,
			"a.corp.example": false, "192.0.2.7:8443": false} {
			if proxy, err := proxyFor(&url.URL{Scheme: "https", Host: host}); err != nil || (proxy != nil) != want {
				t.Errorf("%s: %s goes through %v, %v", c.Name, host, proxy, err)
			}
		}
	}
	for _, o := range all {
		if b, _ := json.Marshal(o.Object); o.GetKind() != "Secret" && strings.Contains(string(b), "user:password") {
			t.Errorf("%s %s holds the proxy's password", o.GetKind(), o.GetName())
		}
	}
}

func TestForwarderArgs_EdgeAddressFollowsAPI(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://fairlead.example.com":       "fairlead.example.com:443",
		"https://fairlead.example.com/":      "fairlead.example.com:443",
		"https://fairlead.example.com:8443/": "fairlead.example.com:8443",
		"https://10.99.0.2:8443":             "10.99.0.2:8443",
		"https://[fd00::1]":                  "[fd00::1]:443",
		"https://[fd00::1]:8443":             "[fd00::1]:8443",
	} {
		args := arguments(forwarder(t, render(t, validValues().set("api.url", url))).Spec.Template.Spec.Containers[0])
		if !slices.Contains(args, "--edge-address="+want) {
			t.Errorf("%s: %v; want %s", url, args, want)
		}
	}
}

// TestForwarderPods_GracePeriodCoversDrain checks that the pod lives long enough for the
// forwarder's shutdown.
func TestForwarderPods_GracePeriodCoversDrain(t *testing.T) {
	t.Parallel()
	for drain, want := range map[string]int64{"0s": 315, "90s": 405, "15m": 1215, "2h": 7515} {
		got := forwarder(t,
			render(t, validValues().set("forwarder.drainTimeout",
				drain))).Spec.Template.Spec.TerminationGracePeriodSeconds
		if got == nil || *got != want {
			t.Errorf("%s: grace period %v, want %d", drain, got, want)
		}
	}
}

// TestSecrets_OnlyInSecret checks that arguments, which every user of the node can read, hold no
// secret.
func TestSecrets_OnlyInSecret(t *testing.T) {
	t.Parallel()
	for _, o := range render(t, exportingValues()) {
		b, err := json.Marshal(o.Object)
		must.Succeed(t, err)
		if o.GetKind() != "Secret" &&
			strings.Contains(string(b), "secret-of-the-") {
			t.Errorf("%s %s holds a secret", o.GetKind(), o.GetName())
		}
	}
}
