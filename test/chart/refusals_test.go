// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// refusal is a chart's values that cannot work, and the expected error.
type refusal struct {
	values values
	want   string
}

// TestRefusals checks that every value that cannot work is refused before anything is installed,
// with a sentence, and without showing a secret.
func TestRefusals(t *testing.T) {
	t.Parallel()
	set := func(path string, value any) values { return validValues().set(path, value) }
	checkRefusals(t, template, map[string]refusal{
		"unknown value":        {set("bindings", map[string]any{}), "additional properties 'bindings' not allowed"},
		"unknown nested value": {set("binding.selector", "true"), "additional properties 'selector' not allowed"},
		"unknown deep value": {set("manager.resources.limit", map[string]any{}),
			"additional properties 'limit' not allowed"},
		"removed value":      {set("binding.enabled", nil), "missing property 'enabled'"},
		"removed group":      {set("api", nil), "missing property 'api'"},
		"text for a boolean": {set("binding.enabled", "yes"), "'/binding/enabled': got string, want boolean"},
		"number for a text":  {set("description", 7), "'/description': got number, want string"},
		"text for replicas":  {set("manager.replicas", "two"), "'/manager/replicas': got string, want integer"},
		"no replicas":        {set("forwarder.replicas", 0), "'/forwarder/replicas': minimum: got 0, want 1"},
		"pull policy":        {set("image.pullPolicy", "Sometimes"), "'/image/pullPolicy': value must be one of"},
		"pull secret without name": {set("imagePullSecrets", []any{map[string]any{"secret": "x"}}),
			"'/imagePullSecrets/0'"},

		"no API URL": {set("api.url", ""), "api.url is required: give the address of your fairlead-server"},
		"API URL http": {set("api.url", "http://a.example"),
			`api.url "http://a.example": give it as https://HOST[:PORT]`},
		"API URL with path":    {set("api.url", "https://a.example/v1"), "without user, path or query"},
		"API URL with user":    {set("api.url", "https://u:p@a.example"), "give it as https://HOST[:PORT]"},
		"API URL without host": {set("api.url", "https://:8443"), "give it as https://HOST[:PORT]"},
		"API URL, port": {set("api.url", "https://a.example:70000"),
			"the port must be a number from 1 to 65535"},
		"API URL, port 0":   {set("api.url", "https://a.example:0"), "give it as https://HOST[:PORT]"},
		"API URL, line end": {set("api.url", "https://a.example\n--x"), "give it as https://HOST[:PORT]"},
		"edge without port": {set("edge.address", "edge.example"),
			`edge.address "edge.example": give it as HOST:PORT`},
		"edge with scheme": {set("edge.address", "https://edge.example:443"), "give it as HOST:PORT"},
		"edge, port": {set("edge.address", "edge.example:65536"),
			"the port must be a number from 1 to 65535"},
		"CA without certs": {set("api.caBundle", "ca.crt"), "api.caBundle holds no PEM certificate"},
		"CA with a private key": {set("api.caBundle",
			"-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\nflk_secret"),
			"api.caBundle holds a private key"},
		"sealed for no account": {set("binding.sealed", "require"),
			"binding.sealAccount is required with binding.sealed=require"},
		"no Secret's name for a seal": {set("export.sealSecret", "My Secret"),
			`export.sealSecret "My Secret" is no name of a Secret`},
		"no ConfigMap's name for callers": {set("export.sealSecret", "seal").set("export.sealCallers", "a/b"),
			`export.sealCallers "a/b" is no name of a ConfigMap`},
		"callers of nothing sealed": {set("export.sealCallers", "callers"),
			"export.sealCallers has no effect without export.sealSecret"},
		"sealed, no account's id": {set("binding.sealAccount", "ac 1"), `binding.sealAccount "ac 1" is no id`},
		"authority of no account": {set("binding.sealAuthority", "-----BEGIN CERTIFICATE-----\n"),
			"binding.sealAuthority has no effect without binding.sealAccount"},
		"authority without certs": {set("binding.sealAccount", "ac-1").set("binding.sealAuthority", "ca.crt"),
			"binding.sealAuthority holds no PEM certificate"},
		"unknown mode": {set("binding.sealed", "on"), "/binding/sealed"},
		"preferred":    {set("binding.sealed", "prefer"), "give EndpointTrust objects mode: Prefer"},
		"caller of no account": {set("binding.sealCallerSecret", "seal-caller"),
			"binding.sealCallerSecret has no effect without binding.sealAccount"},
		"token of no account": {set("binding.sealCallerToken", true),
			"binding.sealCallerToken has no effect without binding.sealAccount"},
		"token for no agent": {set("binding.sealCallerToken", true).set("binding.sealAccount", "ac-1"),
			"binding.sealCallerToken has no effect without binding.sealAuthority"},
		"no name of a Secret": {set("binding.sealCallerSecret", "a/b"), "/binding/sealCallerSecret"},
	})
}

func TestRefusals_CredentialsAndBinding(t *testing.T) {
	t.Parallel()
	set := func(path string, value any) values { return validValues().set(path, value) }
	checkRefusals(t, template, map[string]refusal{
		"no API key": {set("credentials.apiKey", ""), "credentials.apiKey is required"},
		"no authtoken": {set("credentials.authtoken", ""),
			"credentials.authtoken is required while binding.enabled is true"},
		"authtoken as API key": {set("credentials.apiKey", "flt_secret"), "credentials.apiKey holds an authtoken"},
		"API key as authtoken": {set("credentials.authtoken", "flk_secret"), "credentials.authtoken holds an API key"},
		"secret with line end": {set("credentials.apiKey", "flk_secret\n"), "must not contain spaces or line ends"},
		"both kinds": {set("credentials.existingSecret", "mine"),
			`credentials.existingSecret "mine" excludes credentials.apiKey`},
		"exporter's key and Secret": {values{}.set("api.url", "https://a.example").set("credentials",
			map[string]any{"existingSecret": "mine", "exporterApiKey": "flk_secret"}),
			"excludes credentials.apiKey, credentials.authtoken and credentials.exporterApiKey"},
		"bad Secret name": {validValues().set("credentials", map[string]any{"existingSecret": "My Secret"}),
			`credentials.existingSecret "My Secret" is no name of a Secret`},

		"long description": {set("description", strings.Repeat("ü", 128)),
			"description has 256 bytes: shorten it to at most 255"},
		"cluster domain": {set("clusterDomain", "cluster.local."), `clusterDomain "cluster.local." is no DNS domain`},
		"delay without unit": {set("binding.removalDelay", "30"),
			`binding.removalDelay "30" is no duration: give a whole number with s, m or h`},
		"delay in days":       {set("binding.removalDelay", "1d"), "is no duration"},
		"negative delay":      {set("binding.removalDelay", "-1s"), "is no duration"},
		"delay with an octal": {set("binding.removalDelay", "010s"), "is no duration"},
		"long delay": {set("binding.removalDelay", "25h"),
			`binding.removalDelay "25h" is too long: give at most 24h`},
		"accepted account": {set("binding.acceptAccount", "ac 2"), `binding.acceptAccount "ac 2" is no id`},
		"drain":            {set("forwarder.drainTimeout", "15 min"), `forwarder.drainTimeout "15 min" is no duration`},
		"long cluster name": {set("clusterName", strings.Repeat("ü", 127)),
			"clusterName has 254 bytes: shorten it to at most 253"},
		"number as a label": {set("manager.podLabels", map[string]any{"a": 1}),
			"'/manager/podLabels/a': got number, want string"},
		"long drain": {set("forwarder.drainTimeout", "86401s"), "is too long"},
		"list and selector": {set("binding.namespaces", map[string]any{"allow": []string{"a"}, "selector": "a=b"}),
			"binding.namespaces.allow and binding.namespaces.selector exclude each other"},
		"list and identity": {set("binding.namespaces.allow", []string{"a"}).set("forwarder.podIdentity.enabled", true),
			"forwarder.podIdentity.enabled and binding.namespaces.allow exclude each other"},
		"identity's notes": {set("forwarder.podIdentity.annotations", []string{"a"}),
			"forwarder.podIdentity.annotations needs forwarder.podIdentity.enabled"},
		"all annotations": {set("forwarder.podIdentity.annotations", []string{"*"}).set("forwarder.podIdentity.enabled",
			true), `forwarder.podIdentity.annotations "*": give names of annotations, or beginnings`},
		"own namespace listed": {set("binding.namespaces.allow", []string{namespace}),
			"is the operator's own namespace"},
		"listed and denied": {set("binding.namespaces.allow", []string{"kube-public"}),
			`binding.namespaces.allow "kube-public" is denied by "kube-*"`},
		"listed no name": {set("binding.namespaces.allow", []string{"team-*"}),
			`binding.namespaces.allow "team-*" is no name of a namespace`},
		"listed twice": {set("binding.namespaces.allow", []string{"a", "a"}),
			"'/binding/namespaces/allow': items at 0 and 1 are equal"},
		"denied no pattern": {set("binding.namespaces.deny", []string{"*-prod"}),
			`binding.namespaces.deny "*-prod": give names of namespaces, or prefixes such as kube-*`},
		"namespace selector": {set("binding.namespaces.selector", "team in a"),
			`binding.namespaces.selector "team in a" is no label selector`},
		"takeover delay": {set("binding.takeoverDelay", "1 min"), `binding.takeoverDelay "1 min" is no duration`},
	})
}

func TestRefusals_Export(t *testing.T) {
	t.Parallel()
	set := func(path string, value any) values { return exportingValues().set(path, value) }
	checkRefusals(t, template, map[string]refusal{
		"no key": {set("credentials.exporterApiKey", ""), "credentials.exporterApiKey is required while " +
			"export.enabled is true: make one with `fairlead-server api-key create --scope exporter`"},
		"authtoken as key": {set("credentials.exporterApiKey", "flt_secret"),
			"credentials.exporterApiKey holds an authtoken"},
		"the manager's key": {set("credentials.exporterApiKey", "flk_secret-of-the-key"),
			"credentials.exporterApiKey is the same as credentials.apiKey"},
		"key with line end": {set("credentials.exporterApiKey", "flk_secret\n"),
			"must not contain spaces or line ends"},
		"no replicas":     {set("export.replicas", 0), "'/export/replicas': minimum: got 0, want 1"},
		"drain":           {set("export.drainTimeout", "15"), `export.drainTimeout "15" is no duration`},
		"text for a list": {set("export.urls", "http://*.shared"), "'/export/urls': got string, want array"},
		"no scheme":       {set("export.urls", []string{"*.shared"}), `export.urls "*.shared": give patterns of URLs`},
		"path": {set("export.urls", []string{"http://a.shared/x"}),
			`export.urls "http://a.shared/x": give patterns of URLs`},
		"line end": {set("export.urls", []string{"http://a.b\n--x"}), "give patterns of URLs"},
		"services without exporters": {validValues().set("export.services", true),
			"export.services needs export.enabled"},
		"id without services": {set("export.clusterID", "eu-1"),
			`export.clusterID "eu-1" has no effect without export.services`},
		"id, no label": {clustersetValues().set("export.clusterID", "EU.1"), `export.clusterID "EU.1" is no DNS label`},
		"id, too long": {clustersetValues().set("export.clusterID", strings.Repeat("a", 64)), "is no DNS label"},
		"no id with listed namespaces": {set("binding.namespaces.allow", []string{"a"}).set("export.services", true),
			"export.clusterID is required with export.services and binding.namespaces.allow"},
		"imports with listed namespaces": {validValues().set("binding.namespaces.allow", []string{"a"}).
			set("clusterset.enabled", true), "clusterset.enabled and binding.namespaces.allow exclude each other"},
		"imports without projection": {clustersetValues().set("binding.enabled", false),
			"clusterset.enabled needs binding.enabled"},
		"domain with dot": {clustersetValues().set("clusterset.domain", "a."),
			`clusterset.domain "a." is no DNS domain`},
		"label taken": {set("export.podLabels", map[string]any{"app.kubernetes.io/name": "x"}),
			`export.podLabels holds "app.kubernetes.io/name", which the chart sets itself`},
		"port of the Kubernetes API": {set("networkPolicy.apiServerPorts", []int{0}),
			"'/networkPolicy/apiServerPorts/0': minimum: got 0, want 1"},
		"no port of it": {set("networkPolicy.apiServerPorts", []int{}),
			"'/networkPolicy/apiServerPorts': minItems: got 0, want 1"},
	})
}

func TestRefusals_PortsAndProxy(t *testing.T) {
	t.Parallel()
	set := func(path string, value any) values { return validValues().set(path, value) }
	checkRefusals(t, template, map[string]refusal{
		"version header": {set("api.versionHeader", "Service Version"),
			`api.versionHeader "Service Version" is no name of a header`},
		"no version header": {set("api.versionHeader", ""), `api.versionHeader "" is no name of a header`},
		"range": {set("binding.portRange", "10000"),
			`binding.portRange "10000": give the first and the last port as FIRST-LAST`},
		"range backwards": {set("binding.portRange", "20000-10000"),
			"give the first and the last port as FIRST-LAST"},
		"range too low":     {set("binding.portRange", "1000-2000"), "both from 1024 to 65535"},
		"range too high":    {set("binding.portRange", "60000-70000"), "both from 1024 to 65535"},
		"range, octal":      {set("binding.portRange", "010000-20000"), "FIRST-LAST"},
		"range with health": {set("binding.portRange", "8000-9000"), `binding.portRange "8000-9000" holds port 8081`},
		"range with metrics": {set("binding.portRange", "8080-8080"),
			`metrics.port 8080 lies within binding.portRange "8080-8080"`},
		"metrics in range":  {set("metrics.port", 10000), "metrics.port 10000 lies within"},
		"metrics on health": {set("metrics.port", 8081), "metrics.port 8081 is where the pods' health is asked for"},
		"metrics, low":      {set("metrics.port", 80), "'/metrics/port': minimum: got 80, want 1,024"},
		"monitor alone": {set("metrics",
			map[string]any{"enabled": false, "podMonitor": map[string]any{"enabled": true}}),
			"metrics.podMonitor.enabled needs metrics"},
		"monitor's interval": {set("metrics.podMonitor.interval", "30"),
			`metrics.podMonitor.interval "30" is no duration`},
		"monitor's label": {set("metrics.podMonitor.labels", map[string]any{"helm.sh/chart": "x"}),
			`metrics.podMonitor.labels holds "helm.sh/chart", which the chart sets itself`},

		"proxy": {set("proxy.httpsProxy", "proxy.example:3128"),
			"proxy.httpsProxy: give it as http://[USER:PASSWORD@]HOST[:PORT]"},
		"proxy of another scheme": {set("proxy.httpsProxy", "ftp://u:secret-of-the-proxy@proxy.example"),
			"https://... or socks5://..."},
		"proxy with path": {set("proxy.httpsProxy", "http://u:secret-of-the-proxy@proxy.example/x"),
			"proxy.httpsProxy: give it as"},
		"exceptions alone": {set("proxy.noProxy", "a.example"),
			`proxy.noProxy "a.example" has no effect without a proxy`},
		"exceptions, space": {set("proxy", map[string]any{"httpsProxy": "http://p", "noProxy": "a, b"}),
			`proxy.noProxy "a, b" holds spaces`},
	})
}

func TestRefusals_Pods(t *testing.T) {
	t.Parallel()
	set := func(path string, value any) values { return validValues().set(path, value) }
	text := func(name, value string) map[string]any { return map[string]any{name: value} }
	checkRefusals(t, template, map[string]refusal{
		"image with a tag": {set("image.repository", "registry:5000/x:1"),
			`image.repository "registry:5000/x:1" holds a tag: give it in image.tag`},
		"image with a digest": {set("image.repository", "x@sha256:00"),
			`image.repository "x@sha256:00" is no name of an image`},
		"tag": {set("image.tag", "a b"), `image.tag "a b" is no tag`},
		"digest": {set("image.digest", "sha256:00"),
			`image.digest "sha256:00" is no digest: give it as sha256: and 64 hexadecimal digits`},

		"taken variable": {set("forwarder.extraEnv", []any{text("name", "POD_IPS")}),
			`forwarder.extraEnv holds "POD_IPS", which the chart sets itself`},
		"scaled down to more": {set("forwarder.autoscaling.minReplicas", 11),
			"forwarder.autoscaling.minReplicas 11 is more than maxReplicas 10"},
		"scaled by nothing": {set("forwarder.autoscaling", map[string]any{"enabled": true, "targetCPU": 0}),
			"forwarder.autoscaling.enabled needs a target"},
		"scaled by CPU without a request": {set("forwarder.autoscaling.enabled", true).
			set("forwarder.resources.requests.cpu", nil), "forwarder.resources.requests.cpu, which is missing"},
		"scaled without metrics": {set("forwarder.autoscaling",
			map[string]any{"enabled": true, "targetConnections": 9}).set("metrics.enabled", false),
			"targetConnections needs metrics"},
		"priority class": {set("manager.priorityClassName", "High Priority"),
			`manager.priorityClassName "High Priority" is no name of a PriorityClass`},
		"label taken": {set("forwarder.podLabels", text("app.kubernetes.io/name", "x")),
			`forwarder.podLabels holds "app.kubernetes.io/name", which the chart sets itself`},
		"Services' label taken": {set("binding.services.labels", text("app.kubernetes.io/managed-by", "x")),
			`binding.services.labels holds "app.kubernetes.io/managed-by", which the chart sets itself`},
		"label's value": {set("manager.podLabels", text("team", "a b")),
			`manager.podLabels: "a b" is no value of the label "team"`},
		"annotation taken": {set("forwarder.podAnnotations", text("checksum/ca", "x")),
			`forwarder.podAnnotations holds "checksum/ca", which the chart sets itself`},
		"toleration": {set("manager.tolerations", []any{text("effect", "Never")}),
			"'/manager/tolerations/0/effect': value must be one of"},
		"affinity": {set("manager.affinity", map[string]any{"node": map[string]any{}}),
			"additional properties 'node' not allowed"},
		"spread": {set("forwarder.topologySpreadConstraints", []any{text("topologyKey", "zone")}),
			"missing properties 'maxSkew', 'whenUnsatisfiable'"},
	})
}

// renderer renders a chart, or returns an error of helm.
type renderer func(t *testing.T, v values, args ...string) (string, error)

// checkRefusals renders a chart with each case's values and checks that it fails with the expected
// error, which shows no secret.
func checkRefusals(t *testing.T, render renderer, cases map[string]refusal) {
	t.Helper()
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := render(t, tt.values)
			if err == nil {
				t.Fatalf("rendered:\n%s", out)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %q; want %q", err, tt.want)
			}
			for _, secret := range []string{"secret-of", "flk_secret", "flt_secret"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("shows a secret: %s", err)
				}
			}
		})
	}
}

func TestRefusals_Cluster(t *testing.T) {
	t.Parallel()
	const versions = "chart requires kubeVersion: >=1.31.0-0 <2.0.0-0 which is incompatible with Kubernetes "
	for want, args := range map[string][]string{
		versions + "v1.30.9":                          {release, "--kube-version", "1.30.9"},
		versions + "v2.0.0":                           {release, "--kube-version", "2.0.0"},
		"has 41 characters: choose one of at most 40": {strings.Repeat("r", 41), "--kube-version", kubeVersion},
	} {
		all := append([]string{"template", args[0], chartDir, "--namespace", namespace}, args[1:]...)
		if out, err := helm(t, os.DevNull, validValues(), all...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v\n%s\nwant %q", err, out, want)
		}
	}
}

// TestChart_KubernetesVersions renders for both ends of the range of Kubernetes versions, and for
// versions as managed clusters have them.
func TestChart_KubernetesVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.31.0", "1.32.9-gke.1", "1.33.4-eks-a5df82a", kubeVersion, "1.99.0"} {
		out, err := helm(t, os.DevNull, validValues(), "template", release, chartDir, "--namespace", namespace,
			"--kube-version", version)
		if err != nil {
			t.Errorf("%s: %v", version, err)
		}
		old := version < "1.34"
		if comparesAddresses := strings.Contains(out, "-slices-addresses"); comparesAddresses == old {
			t.Errorf("%s: the policy of addresses, which API servers before 1.34 lose sight of: %t", version,
				comparesAddresses)
		}
	}
}

// TestValues_Accepted renders values at the limits of the rules above.
func TestValues_Accepted(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]values{
		"port":           validValues().set("api.url", "https://10.99.0.2:8443"),
		"trailing slash": validValues().set("api.url", "https://a.example/"),
		"IPv6":           validValues().set("api.url", "https://[fd00::1]"),
		"IPv6 edge":      validValues().set("edge.address", "[fd00::1]:8443"),
		"no delay":       validValues().set("binding.removalDelay", "0s"),
		"longest delay":  validValues().set("binding.removalDelay", "24h"),
		"label selectors": validValues().set("binding.namespaces.selector",
			"fairlead=yes, example.com/team in (a, b),!x,y notin (c),z!=1, w"),
		"everything denied": validValues().set("binding.namespaces.deny", []string{"*"}),
		"parent's globals":  validValues().set("global", map[string]any{"anything": 1}),
		"no limits":         validValues().set("manager.resources", map[string]any{}),
		"extended resource": validValues().set("forwarder.resources.limits", map[string]any{"example.com/nic": 1}),
		"long description":  validValues().set("description", strings.Repeat("x", 255)),
		"one port":          validValues().set("binding.portRange", "10000-10000"),
		"all high ports":    validValues().set("binding.portRange", "8082-65535"),
		"IPv6 proxy":        validValues().set("proxy.httpsProxy", "http://[fd00::1]:3128"),
		"proxy with TLS":    validValues().set("proxy.httpsProxy", "https://u:p@proxy.example"),
		"SOCKS proxy":       validValues().set("proxy.httpsProxy", "socks5://proxy.example:1080"),
		"tag and digest": validValues().
			set("image", map[string]any{"tag": "v1", "digest": "sha256:" + strings.Repeat("0", 64)}),
		"exporter without projection": exportingValues().set("binding.enabled", false).set("credentials.authtoken", ""),
		"exporter, own Secret": values{}.set("api.url", "https://a.example").set("export.enabled", true).
			set("credentials.existingSecret", "mine"),
		"listed namespaces, cluster's name": exportingValues().set("export.services", true).set("clusterName", "eu-1").
			set("binding.namespaces.allow", []string{"a"}),
		"imports alone":        validValues().set("clusterset.enabled", true),
		"exporter's key alone": validValues().set("credentials.exporterApiKey", "flk_other"),
		"port of registry":     validValues().set("image.repository", "localhost:5000/x"),
	} {
		if _, err := template(t, v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSchema_IsClosed checks that an object of the schema allows any key only if it is listed here,
// and then restricts the values.
func TestSchema_IsClosed(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(chartDir, "values.schema.json"))
	must.Succeed(t, err)
	var schema map[string]any
	must.Succeed(t, json.Unmarshal(b, &schema))
	open := map[string]bool{"/properties/global": true, "/$defs/quantities": true, "/$defs/texts": true,
		"/$defs/term": true}
	var walk func(path string, node any)
	walk = func(path string, node any) {
		object, ok := node.(map[string]any)
		if !ok {
			return
		}
		if object["type"] == "object" && object["additionalProperties"] != false && !open[path] {
			t.Errorf("%s: additionalProperties is not false", path)
		}
		for key, child := range object {
			walk(path+"/"+key, child)
		}
	}
	walk("", schema)
}
