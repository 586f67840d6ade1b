// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// attack is what a user of one namespace tries. The last of the objects is an AgentEndpoint or a
// CloudEndpoint.
type attack struct {
	name    string
	objects string
	want    string   // a condition such as "Accepted False UpstreamNotAllowed", or "refused" by the API server
	parts   []string // of the condition's message, or of the API server's
}

// agentEndpoint returns an AgentEndpoint with the URL of its name and the rest of the spec.
func agentEndpoint(name, spec string) string {
	return "kind: AgentEndpoint\nmetadata: {name: " + name + "}\nspec: {url: 'http://" + name + ".$SELF', " + spec + "}"
}

// exports returns an AgentEndpoint of the upstream.
func exports(name, upstream string) string {
	return agentEndpoint(name, "upstream: {url: '"+upstream+"'}")
}

// service returns a Service with the spec, and an AgentEndpoint of it, named as the Service.
func service(name, spec string) string {
	return "kind: Service\nmetadata: {name: " + name + "}\nspec: {ports: [{port: 8080}], " + spec + "}\n---\n" +
		exports(name, "http://"+name+":8080")
}

// addresses returns a Service, an EndpointSlice of it with an address that a user wrote, and an
// AgentEndpoint.
func addresses(name, spec, family, address string, labels ...string) string {
	return "kind: EndpointSlice\nmetadata: {name: " + name + "-x, labels: {" +
		strings.Join(append(labels, "kubernetes.io/service-name: "+name), ", ") + "}}\naddressType: " + family +
		"\nports: [{port: 8080, name: ''}]\nendpoints: [{addresses: ['" + address +
		"'], conditions: {ready: true}}]\n---\n" +
		service(name, spec)
}

// notPublished are attempts to publish what is not the namespace's.
var notPublished = []attack{
	{"a Service of another namespace", exports("by-url", "http://victim.$VICTIM:8080"),
		"Accepted False UpstreamNotAllowed", []string{"$VICTIM", "$SELF", "export.crossNamespace"}},
	{"with .svc", exports("by-svc", "http://victim.$VICTIM.svc:8080"), "Accepted False UpstreamNotAllowed", nil},
	{"with the cluster's domain, in capitals", exports("by-domain", "http://VICTIM.$VICTIM.svc.cluster.local:8080"),
		"Accepted False UpstreamNotAllowed", nil},
	{"with a dot at its end", exports("by-dot", "http://victim.$VICTIM.svc.cluster.local.:8080"),
		"Accepted False UpstreamNotAllowed", nil},
	{"through another domain", exports("by-other-domain", "http://honest.$SELF.svc.example.com:8080"),
		"Accepted False UpstreamNotAllowed", nil},
	{"with an escaped dot", exports("by-escape", "http://victim%2e$VICTIM:8080"),
		"Accepted False UpstreamNotAllowed", nil},
	{"a pod's address", exports("by-ip", "http://"+victimPod+":8080"), "Accepted False UpstreamNotAllowed", nil},
	{"an address as a number", exports("by-number", "http://2130706433:8080"), "Accepted False UpstreamNotFound", nil},
	{"an IPv6 address", exports("by-ipv6", "http://[::1]:8080"), "Accepted False UpstreamNotAllowed", nil},
	{"localhost", exports("by-localhost", "http://localhost:8080"), "Accepted False UpstreamNotFound", nil},
	{"behind a user", exports("by-user", "http://honest@victim.$VICTIM:8080"), "refused", []string{"without user"}},
	{"behind a path", exports("by-path", "http://honest:8080/../victim.$VICTIM"), "refused", []string{"path"}},
	{"another scheme", exports("by-scheme", "unix:///run/x.sock"), "refused", []string{"upstream"}},
	{"the API server", exports("by-kubernetes", "https://kubernetes.default:443"),
		"Accepted False UpstreamNotAllowed", nil},
	{"an ExternalName of another namespace's Service",
		service("by-externalname", "type: ExternalName, externalName: victim.$VICTIM.svc.cluster.local"),
		"Accepted False UnsupportedService", []string{"ExternalName"}},
	{"an external address", service("by-externalip", "externalIPs: ['"+nodeIP+"']"),
		"Accepted False UpstreamNotAllowed", []string{"has no selector"}},
	{"a pod of another namespace by a hand-made slice", addresses("by-slice", "", "IPv4", victimPod),
		"Accepted False UpstreamNotAllowed",
		[]string{"Service $SELF/by-slice has no selector", "export.crossNamespace"}},
	{"a node by a hand-made slice", addresses("by-node-slice", "clusterIP: None", "IPv4", nodeIP),
		"Accepted False UpstreamNotAllowed", nil},
	{"the API server by a hand-made slice", addresses("by-api-slice", "", "IPv4", "10.0.0.1"),
		"Accepted False UpstreamNotAllowed", nil},
	{"a hand-made slice beside a selector", addresses("by-second-slice", "selector: {app: none}", "IPv4", victimPod),
		"UpstreamReady False NoReadyEndpoints",
		[]string{"EndpointSlice by-second-slice-x is not of Kubernetes' own controller"}},
	{"a slice that passes for the controller's", addresses("by-forged-slice", "selector: {app: none}", "IPv4",
		"10.7.7.7", "endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io"),
		"UpstreamReady False NoReadyEndpoints", nil},
	{"names in a slice", addresses("by-fqdn-slice", "", "FQDN", "victim.$VICTIM.svc.cluster.local"),
		"Accepted False UpstreamNotAllowed", nil},
	{"loopback by a slice", addresses("by-loopback", "", "IPv4", "127.0.0.1"), "refused", []string{"loopback"}},
	{"a metadata service by a slice", addresses("by-metadata", "", "IPv4", "169.254.169.254"),
		"refused", []string{"link-local"}},
	{"all addresses by a slice", addresses("by-unspecified", "", "IPv4", "0.0.0.0"), "refused",
		[]string{"unspecified"}},
	{"a group by a slice", addresses("by-multicast", "", "IPv4", "224.0.0.1"), "refused", []string{"multicast"}},
}

// notTaken are attempts to take URLs of others, and what is the account's.
var notTaken = []attack{
	{"a URL of another namespace", "kind: AgentEndpoint\nmetadata: {name: url}\n" +
		"spec: {url: 'http://api.$VICTIM', upstream: {url: 'http://honest:8080'}}",
		"Accepted False URLNotAllowed", []string{"$VICTIM", "$SELF", "export.urls"}},
	{"in capitals, with a port", "kind: AgentEndpoint\nmetadata: {name: url-capitals}\n" +
		"spec: {url: 'tcp://API.$VICTIM:5432', upstream: {url: 'tcp://honest:8080'}}",
		"Accepted False URLNotAllowed", nil},
	{"by a CloudEndpoint", "kind: CloudEndpoint\nmetadata: {name: url}\nspec: {url: 'http://new.$VICTIM'}",
		"Accepted False URLNotAllowed", []string{"$VICTIM", "export.urls"}},
	{"another team's internal URL", "kind: AgentEndpoint\nmetadata: {name: internal}\n" +
		"spec: {url: 'http://shared-$VICTIM.internal', bindings: [internal], upstream: {url: 'http://honest:8080'}}",
		"Bound False URLTaken", []string{"AgentEndpoint $VICTIM/shared"}},
	{"by pooling", "kind: AgentEndpoint\nmetadata: {name: pool}\nspec: {url: 'http://shared-$VICTIM.internal', " +
		"bindings: [internal], poolingEnabled: true, upstream: {url: 'http://honest:8080'}}",
		"Bound False URLTaken", []string{"AgentEndpoint $VICTIM/shared"}},
	{"by a CloudEndpoint of that URL", "kind: CloudEndpoint\nmetadata: {name: internal}\n" +
		"spec: {url: 'http://shared-$VICTIM.internal', bindings: [internal]}",
		"Bound False URLTaken", []string{"AgentEndpoint $VICTIM/shared"}},
	{"a domain that the account has not", "kind: CloudEndpoint\nmetadata: {name: public}\n" +
		"spec: {url: 'https://shop.example.com', bindings: [public]}", "Bound False Rejected", []string{"spec.url"}},
	{"a backend of the account", "kind: CloudEndpoint\nmetadata: {name: backend}\n" +
		"spec: {url: 'http://backend.$SELF', backend: {id: $BACKEND}}", "Bound False Forbidden", []string{"$BACKEND"}},
	{"a backend, by a policy", "kind: CloudEndpoint\nmetadata: {name: backend-policy}\n" +
		"spec: {url: 'http://backend-policy.$SELF', trafficPolicy: {inline: {on_http_request: [{actions: " +
		"[{type: forward-backend, config: {backend_id: $BACKEND}}]}]}}}", "Bound False Forbidden",
		[]string{"$BACKEND"}},
	{"a backend, by the policy of an AgentEndpoint",
		agentEndpoint("agent-backend", "upstream: {url: 'http://honest:8080'}, "+
			"trafficPolicy: {inline: {on_http_request: [{actions: [{type: forward-backend, config: {backend_id: "+
			"$BACKEND}}]}]}}"),
		"Bound False Forbidden", []string{"$BACKEND"}},
	{"another team's internal endpoint", "kind: CloudEndpoint\nmetadata: {name: forward}\n" +
		"spec: {url: 'http://forward.$SELF', trafficPolicy: {inline: {on_http_request: [{actions: " +
		"[{type: forward-internal, config: {url: 'http://shared-$VICTIM.internal'}}]}]}}}",
		"Bound False Forbidden", []string{"shared-$VICTIM.internal"}},
	{"another team's internal endpoint, by a computed URL", agentEndpoint("agent-forward", "upstream: "+
		"{url: 'http://honest:8080'}, trafficPolicy: {inline: {on_http_request: [{actions: [{type: forward-internal, "+
		"config: {url: 'http://${req.headers[\"x\"][0]}.internal'}}]}]}}"), "Bound False Forbidden", nil},
}

// notValid are specs with secrets, and those that are too long.
var notValid = []attack{
	{"a policy with a secret",
		agentEndpoint("secret", "upstream: {url: 'http://honest:8080'}, trafficPolicy: {inline: "+
			"{on_http_request: [{actions: [{type: basic-auth, config: {credentials: ['a:hushhush']}}]}]}}"),
		"Accepted False PolicyInvalid", []string{"credentials: ", "is a secret", "forward-internal"}},
	{"a ConfigMap with a secret", "kind: ConfigMap\nmetadata: {name: secret}\ndata: {policy.yaml: " +
		"\"on_http_request:\\n- actions:\\n  - type: oauth\\n    config: {provider: github, client_id: x, " +
		"client_secret: hush}\"}\n" +
		"---\nkind: CloudEndpoint\nmetadata: {name: secret}\nspec: {url: 'https://login.example.com', bindings: " +
		"[public], " +
		"trafficPolicy: {targetRef: {kind: ConfigMap, name: secret}}}",
		"Accepted False PolicyInvalid", []string{"line 4, column 46: client_secret is a secret"}},
	{"a Secret for a policy", agentEndpoint("of-secret", "upstream: {url: 'http://honest:8080'}, trafficPolicy: "+
		"{targetRef: {kind: Secret, name: x}}"), "refused", []string{"kind"}},
	{"a ConfigMap of another namespace",
		agentEndpoint("of-other", "upstream: {url: 'http://honest:8080'}, trafficPolicy: "+
			"{targetRef: {kind: ConfigMap, name: x, namespace: $VICTIM}}"), "Accepted False PolicyNotFound",
		[]string{"$SELF/x"}},
	{"a policy over the limit", "kind: ConfigMap\nmetadata: {name: long}\ndata: {policy.yaml: '#" +
		strings.Repeat("x", 1<<16) + "'}\n---\n" + agentEndpoint("long-policy",
		"upstream: {url: 'http://honest:8080'}, "+
			"trafficPolicy: {targetRef: {kind: ConfigMap, name: long}}"), "Accepted False PolicyInvalid",
		[]string{"65536"}},
	{"a description over the limit", agentEndpoint("long-description", "upstream: {url: 'http://honest:8080'}, "+
		"description: "+strings.Repeat("x", 256)), "refused", []string{"spec.description"}},
	{"metadata over the limit in bytes", agentEndpoint("long-metadata", "upstream: {url: 'http://honest:8080'}, "+
		"metadata: "+strings.Repeat("é", 4096)), "Bound False Rejected", []string{"metadata", "4096"}},
	{"the same of a CloudEndpoint", "kind: CloudEndpoint\nmetadata: {name: long-metadata}\n" +
		"spec: {url: 'http://cloud-metadata.$SELF', metadata: " + strings.Repeat("é", 4096) + "}",
		"Bound False Rejected", []string{"spec.metadata", "4096"}},
	{"a URL over the limit", exports("long-url", "http://"+strings.Repeat("x", 300)), "refused",
		[]string{"spec.upstream.url"}},
}

// TestHostile_NamespaceUser checks that each attempt of a namespace's user fails with a sentence,
// that no address outside of the user's namespace is dialed for it, and that the endpoints of
// others, and the user's own, work meanwhile.
func TestHostile_NamespaceUser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	forwarder := w.Service.StartForwarder()
	w.mustApply(w.victim, "kind: AgentEndpoint\nmetadata: {name: api}\n"+
		"spec: {url: 'http://api.$VICTIM', upstream: {url: 'http://victim:8080'}}")
	w.mustApply(w.victim, "kind: AgentEndpoint\nmetadata: {name: shared}\n"+
		"spec: {url: 'http://shared-$VICTIM.internal', bindings: [internal], upstream: {url: 'http://victim:8080'}}")
	w.waitGet(forwarder, w.victim, "http://api."+w.victim, "victim")
	w.expectBound(w.victim, 2)
	w.takeDials()

	for _, a := range slices.Concat(notPublished, notTaken, notValid) {
		w.attempt(a)
	}
	w.mustApply(w.self, exports("honest", "http://honest:8080"))
	w.waitGet(forwarder, w.self, "http://honest."+w.self, "mallory")
	for _, e := range w.endpoints(w.self) {
		if strings.HasSuffix(e.URL, ".internal") || strings.HasSuffix(e.URL, ".example.com") {
			t.Errorf("mallory has the URL %s", e.URL)
			continue
		}
		if status, body := w.get(forwarder, &e); e.Owner.Name != "honest" &&
			(status < 500 || strings.Contains(body, "victim")) {
			t.Errorf("%s of %s answers %d %q", e.URL, e.Owner, status, body)
		}
	}
	if dialed := w.takeDials(); !slices.Equal(dialed, []string{attackerPod + ":8080"}) {
		t.Errorf("the exporter dialed %v", dialed)
	}
	w.waitGet(forwarder, w.victim, "http://api."+w.victim, "victim")
}

// attempt makes the objects of an attack and checks what comes of it.
func (w *world) attempt(a attack) {
	w.Helper()
	failed := w.Failed()
	o, err := w.apply(w.mallory, w.self, a.objects)
	switch {
	case a.want != "refused" && err != nil:
		w.Errorf("the API server refuses it: %v", err)
	case a.want != "refused":
		w.expect(o, a.want, a.parts...)
	case err == nil:
		w.Error("the API server takes it")
	default:
		for _, part := range a.parts {
			if !strings.Contains(err.Error(), w.replaced(part)) {
				w.Errorf("the API server says %v, want %q", err, part)
			}
		}
	}
	if !failed && w.Failed() {
		w.Errorf("above: %s", a.name)
	}
}

// mustApply makes objects of a team.
func (w *world) mustApply(namespace, text string) *unstructured.Unstructured {
	w.Helper()
	o, err := w.apply(w.Kube, namespace, text)
	must.Succeed(w, err)
	return o
}

// expectBound waits until the objects of a namespace have n endpoints.
func (w *world) expectBound(namespace string, n int) {
	w.Helper()
	wait.Until(w, "the endpoints of "+namespace, func() bool {
		time.Sleep(pollInterval)
		return len(w.endpoints(namespace)) == n
	})
}

// TestHostile_ServiceThatChanges checks that a Service which loses its selector, or becomes an
// ExternalName, after it was exported is dialed no more.
func TestHostile_ServiceThatChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	forwarder := w.Service.StartForwarder()
	o := w.mustApply(w.self, exports("honest", "http://honest:8080"))
	w.expect(o, "Ready True Ready") // without a call, whose connection would be kept
	for _, change := range []struct{ spec, want string }{
		{`{"spec":{"selector":null}}`, "Accepted False UpstreamNotAllowed"},
		{`{"spec":{"type":"ExternalName","externalName":"victim.` + w.victim +
			`.svc","clusterIP":"","clusterIPs":null}}`,
			"Accepted False UnsupportedService"},
	} {
		spec, want := change.spec, change.want
		s := &unstructured.Unstructured{}
		s.SetAPIVersion("v1")
		s.SetKind("Service")
		s.SetNamespace(w.self)
		s.SetName("honest")
		must.Succeed(t, w.mallory.Patch(t.Context(), s,
			client.RawPatch("application/merge-patch+json", []byte(spec))))
		w.expect(o, want)
		w.takeDials()
		for _, e := range w.endpoints(w.self) {
			if status, body := w.get(forwarder, &e); status < 500 {
				t.Errorf("%s: %d %q", spec, status, body)
			}
		}
		if dialed := w.takeDials(); len(dialed) > 0 {
			t.Errorf("%s: the exporter dialed %v", spec, dialed)
		}
	}
}

// TestHostile_CrossNamespace checks what --cross-namespace admits, and what it never does.
func TestHostile_CrossNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *exporter.Options) {
		o.CrossNamespace, o.URLPatterns = true, []string{"http://*.shared"}
	})
	forwarder := w.Service.StartForwarder()
	for _, text := range []string{exports("by-url", "http://victim.$VICTIM:8080"),
		addresses("by-slice", "", "IPv4", victimPod)} {
		o := w.mustApply(w.self, text)
		w.expect(o, "Ready True Ready")
		w.waitGet(forwarder, w.self, "http://"+o.GetName()+"."+w.self, "victim")
	}
	w.expect(w.mustApply(w.self, "kind: AgentEndpoint\nmetadata: {name: shared}\n"+
		"spec: {url: 'http://"+w.self+".shared', upstream: {url: 'http://honest:8080'}}"), "Ready True Ready")
	w.attempt(attack{"a URL that no pattern admits", "kind: CloudEndpoint\nmetadata: {name: url}\n" +
		"spec: {url: 'http://new.$VICTIM'}", "Accepted False URLNotAllowed", nil})
	w.attempt(attack{"an ExternalName",
		service("by-externalname", "type: ExternalName, externalName: victim.$VICTIM.svc"),
		"Accepted False UnsupportedService", nil})
	w.attempt(attack{"a backend", "kind: CloudEndpoint\nmetadata: {name: backend}\n" +
		"spec: {url: 'http://backend.$SELF', backend: {id: $BACKEND}}", "Bound False Forbidden", nil})
}
