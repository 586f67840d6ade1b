// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/testenv"
)

// TestCRDs runs against one API server.
func TestCRDs(t *testing.T) {
	t.Parallel()
	kube, err := client.New(testenv.Start(t), client.Options{})
	must.Succeed(t, err)
	kube = client.WithFieldValidation(kube, "Strict")
	for _, name := range []string{"demo", "prod", "fairlead"} {
		ns := &unstructured.Unstructured{}
		ns.SetAPIVersion("v1")
		ns.SetKind("Namespace")
		ns.SetName(name)
		must.Succeed(t, kube.Create(t.Context(), ns))
	}
	t.Run("samples apply", func(t *testing.T) { samplesApply(t, kube) })
	for _, tt := range created {
		t.Run("create "+tt.kind+" "+tt.name, func(t *testing.T) { tt.check(t, kube) })
	}
	for _, tt := range updated {
		t.Run("update "+tt.kind+" "+tt.name, func(t *testing.T) { tt.check(t, kube) })
	}
	t.Run("bindings have a default", func(t *testing.T) { bindingsDefault(t, kube) })
	t.Run("a BoundEndpoint is named by its spec", func(t *testing.T) { boundEndpointNames(t, kube) })
}

// samplesApply creates every object of config/samples.
func samplesApply(t *testing.T, kube client.Client) {
	files, err := filepath.Glob("../../config/samples/bindings_*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d samples: %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		must.Succeed(t, err)
		for decoder := yaml.NewYAMLToJSONDecoder(bytes.NewReader(raw)); ; {
			var o unstructured.Unstructured
			if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if err := kube.Create(t.Context(), &o); err != nil {
				t.Errorf("%s: %v", filepath.Base(file), err)
			}
		}
	}
}

// specCase is a spec in YAML; refused is what the API server's sentence contains, "" for none.
type specCase struct{ name, kind, spec, refused string }

const (
	agentEndpoint = "AgentEndpoint"
	cloudEndpoint = "CloudEndpoint"
	access        = "EndpointAccess"
	trust         = "EndpointTrust"
	// httpTo and tcpTo are the least of an AgentEndpoint.
	httpTo = "url: http://a.demo\nupstream: {url: http://a}\n"
	tcpTo  = "url: tcp://a.demo:5432\nupstream: {url: tcp://a:5432}\n"
	toA    = "upstream: {url: http://a}\n"
	// requireAPI is the least of an EndpointTrust.
	requireAPI  = "endpoints: [api]\nmode: Require\n"
	aKey        = "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	anAuthority = "'-----BEGIN CERTIFICATE-----'"
)

var created = []specCase{
	{"http", agentEndpoint, httpTo, ""},
	{"tcp", agentEndpoint, tcpTo, ""},
	{"with a slash at its end", agentEndpoint, "url: http://a.demo/\n" + toA, ""},
	{"in upper case", agentEndpoint, "url: http://A.Demo\n" + toA, ""},
	{"https to a public url", agentEndpoint, "url: https://a.example.com\nbindings: [public]\n" + toA, ""},
	{"from https to an http upstream of HTTP/2", agentEndpoint,
		"url: http://a.demo\nupstream: {url: 'https://a:8443', protocol: http2}\n", ""},
	{"of an upstream in another namespace", agentEndpoint,
		"url: http://a.demo\nupstream: {url: 'http://a.b.svc.cluster.local:80'}\n", ""},
	{"with a policy", agentEndpoint, httpTo + "trafficPolicy: {inline: {on_http_request: [{actions: []}]}}", ""},
	{"with a policy's name", agentEndpoint, httpTo + "trafficPolicy: {targetRef: {kind: ConfigMap, name: p}}", ""},
	{"with a longest description", agentEndpoint, httpTo + "description: " + strings.Repeat("x", 255), ""},

	{"without a url", agentEndpoint, toA, "spec.url: Required"},
	{"without an upstream", agentEndpoint, "url: http://a.demo", "spec.upstream: Required"},
	{"without a scheme", agentEndpoint, "url: a.demo\n" + toA, "a url is http://HOST[:PORT]"},
	{"of another scheme", agentEndpoint, "url: ftp://a.demo\n" + toA, "a url is http://HOST[:PORT]"},
	{"with a path", agentEndpoint, "url: http://a.demo/x\n" + toA, "without user, path, query or fragment"},
	{"with a query", agentEndpoint, "url: http://a.demo?x\n" + toA, "without user, path, query or fragment"},
	{"with a fragment", agentEndpoint, "url: 'http://a.demo#x'\n" + toA, "without user, path, query or fragment"},
	{"with a password", agentEndpoint, "url: http://u:p@a.demo\n" + toA, "without user, path, query or fragment"},
	{"too long", agentEndpoint, "url: http://a." + strings.Repeat("x", 300) + "\n" + toA, "Too long"},
	{"of a tcp upstream", agentEndpoint, "url: http://a.demo\nupstream: {url: tcp://a:1}", "must both be tcp://"},
	{"of an http upstream to tcp", agentEndpoint, "url: tcp://a.demo:1\n" + toA, "must both be tcp://"},
	{"tcp with a protocol", agentEndpoint, "url: tcp://a.demo:1\nupstream: {url: tcp://a:1, protocol: http2}",
		"upstream.protocol is for http"},
	{"https of pods", agentEndpoint, "url: https://a.demo\n" + toA, "needs bindings: [public]"},
	{"public tcp", agentEndpoint, "url: tcp://a.example.com:1\nbindings: [public]\nupstream: {url: tcp://a:1}",
		"a public url is http:// or https://"},
	{"two bindings", agentEndpoint, httpTo + "bindings: [kubernetes, internal]", "spec.bindings: Too many"},
	{"no binding", agentEndpoint, httpTo + "bindings: []", "spec.bindings"},
	{"an unknown binding", agentEndpoint, httpTo + "bindings: [private]", "Unsupported value"},
	{"an unknown protocol", agentEndpoint, "url: http://a.demo\nupstream: {url: http://a, protocol: http3}",
		"Unsupported value"},
	{"an upstream with a path", agentEndpoint, "url: http://a.demo\nupstream: {url: http://a/x}",
		"an upstream's url is http://NAME:PORT"},
	{"an upstream without a scheme", agentEndpoint, "url: http://a.demo\nupstream: {url: 'a:80'}",
		"an upstream's url is http://NAME:PORT"},
	{"a tcp upstream without a port", agentEndpoint, "url: tcp://a.demo:1\nupstream: {url: tcp://a}", "needs a port"},
	{"with the certificate of an https upstream", agentEndpoint,
		"url: http://a.demo\nupstream: {url: https://a, tls: {serverName: a.corp, caSHA256: '" +
			strings.Repeat("AB:", 31) + "ab'}}", ""},
	{"with the PROXY protocol", agentEndpoint, "url: tcp://a.demo:1\nupstream: {url: tcp://a:1, proxyProtocol: 2}", ""},
	{"a certificate of an http upstream", agentEndpoint,
		"url: http://a.demo\nupstream: {url: http://a, tls: {serverName: a.corp}}",
		"is for an upstream.url with https://"},
	{"authorities and a fingerprint", agentEndpoint, "url: http://a.demo\nupstream: {url: https://a, tls: {ca: x, " +
		"caSHA256: " + strings.Repeat("ab", 32) + "}}", "exclude each other"},
	{"a short fingerprint", agentEndpoint, "url: http://a.demo\nupstream: {url: https://a, tls: {caSHA256: ab}}",
		"caSHA256"},
	{"the PROXY protocol to http", agentEndpoint, "url: http://a.demo\nupstream: {url: http://a, proxyProtocol: 1}",
		"finds the caller's address in X-Forwarded-For"},
	{"an unknown version of the PROXY protocol", agentEndpoint,
		"url: tcp://a.demo:1\nupstream: {url: tcp://a:1, proxyProtocol: 3}", "Unsupported value"},
	{"an empty policy", agentEndpoint, httpTo + "trafficPolicy: {}", "exactly one of inline and targetRef"},
	{"two policies", agentEndpoint, httpTo + "trafficPolicy: {inline: {}, targetRef: {kind: ConfigMap, name: p}}",
		"exactly one of inline and targetRef"},
	{"a policy in a Secret", agentEndpoint, httpTo + "trafficPolicy: {targetRef: {kind: Secret, name: p}}",
		"Unsupported value"},
	{"a policy that is a text", agentEndpoint, httpTo + "trafficPolicy: {inline: 'x: y'}", "must be of type object"},
	{"a long description", agentEndpoint, httpTo + "description: " + strings.Repeat("x", 256), "Too long"},
	{"long metadata", agentEndpoint, httpTo + "metadata: " + strings.Repeat("x", 4097), "Too long"},
	{"an unknown field", agentEndpoint, httpTo + "upstreams: []", "unknown field"},

	{"with a policy", cloudEndpoint, "url: http://a.demo\ntrafficPolicy: {inline: {}}", ""},
	{"with a backend", cloudEndpoint, "url: http://a.demo\nbackend: {id: bkd-1}", ""},
	{"tcp", cloudEndpoint, "url: tcp://a.demo:1\nbackend: {id: bkd-1}", ""},
	{"public", cloudEndpoint, "url: https://a.example.com\nbindings: [public]\nbackend: {id: bkd-1}", ""},
	{"without a url", cloudEndpoint, "backend: {id: bkd-1}", "spec.url: Required"},
	{"with a path", cloudEndpoint, "url: http://a.demo/x", "without user, path, query or fragment"},
	{"https of pods", cloudEndpoint, "url: https://a.demo", "needs bindings: [public]"},
	{"public tcp", cloudEndpoint, "url: tcp://a.example.com:1\nbindings: [public]", "http:// or https://"},
	{"two bindings", cloudEndpoint, "url: http://a.demo\nbindings: [kubernetes, internal]", "Too many"},
	{"a backend without an id", cloudEndpoint, "url: http://a.demo\nbackend: {}", "spec.backend.id: Required"},
	{"two policies", cloudEndpoint,
		"url: http://a.demo\ntrafficPolicy: {inline: {}, targetRef: {kind: ConfigMap, name: p}}",
		"exactly one of inline and targetRef"},
	{"an upstream", cloudEndpoint, httpTo, "unknown field"},

	{"that no pod passes", access, "endpoints: [api]", ""},
	{"of wildcards and ports", access, "endpoints: ['*', 'a*-x', '*-x']\nports: [80, 65535]\nfrom: []", ""},
	{"with each field of a peer", access, "endpoints: [api]\nfrom: [{namespaceSelector: {matchLabels: {a: b}}, " +
		"podSelector: {}, serviceAccounts: [web]}]", ""},
	{"of a gateway", access, "endpoints: [api]\nfrom: [{serviceAccounts: [nginx], forwardedHeaders: Trust}]", ""},
	{"that trusts everybody", access, "endpoints: [api]\nfrom: [{forwardedHeaders: Trust}]",
		"give namespaceSelector, podSelector or serviceAccounts"},
	{"of unknown trust", access, "endpoints: [api]\nfrom: [{podSelector: {}, forwardedHeaders: Keep}]",
		"Unsupported value"},
	{"of no endpoint", access, "endpoints: []", "spec.endpoints"},
	{"without endpoints", access, "from: []", "spec.endpoints: Required"},
	{"of a hostname", access, "endpoints: [api.demo]", "the first label of a hostname"},
	{"of a URL", access, "endpoints: ['http://api.demo']", "the first label of a hostname"},
	{"of an endpoint twice", access, "endpoints: [api, api]", "Duplicate value"},
	{"of port 0", access, "endpoints: [api]\nports: [0]", "spec.ports[0]"},
	{"of no port", access, "endpoints: [api]\nports: []", "spec.ports"},
	{"with an empty peer", access, "endpoints: [api]\nfrom: [{}]",
		"give namespaceSelector, podSelector or serviceAccounts"},
	{"with no ServiceAccount", access, "endpoints: [api]\nfrom: [{serviceAccounts: []}]", "serviceAccounts"},
	{"with an unknown field", access, "endpoints: [api]\nfrom: [{ipBlock: {}}]", "unknown field"},
	{"of wildcards and ports, with keys", trust,
		"endpoints: ['*', 'a*-x']\nports: [80]\nmode: Require\nkeys: [" + aKey + "]", ""},
	{"with most authorities", trust,
		requireAPI + "authorities: [" + strings.Repeat(anAuthority+",", 8) + "]", ""},
	{"without a mode", trust, "endpoints: [api]", ""},
	{"of an unknown mode", trust, "endpoints: [api]\nmode: Allow", "Unsupported value"},
	{"of no endpoint", trust, "endpoints: []\nmode: Require", "spec.endpoints"},
	{"of a hostname", trust, "endpoints: [api.demo]\nmode: Require", "the first label of a hostname"},
	{"of port 0", trust, requireAPI + "ports: [0]", "spec.ports[0]"},
	{"with authorities and keys", trust, requireAPI + "authorities: [" + anAuthority + "]\nkeys: [" + aKey + "]",
		"give authorities or keys, not both"},
	{"with no authority", trust, requireAPI + "authorities: []", "spec.authorities"},
	{"with too many authorities", trust,
		requireAPI + "authorities: [" + strings.Repeat(anAuthority+",", 9) + "]", "Too many"},
	{"with a long authority", trust, requireAPI + "authorities: ['-----BEGIN CERTIFICATE-----" +
		strings.Repeat("x", 16<<10) + "']", "Too long"},
	{"with what is no authority", trust, requireAPI + "authorities: [x]", "the PEM text of its certificate"},
	{"with a private key", trust, requireAPI + "authorities: ['-----BEGIN CERTIFICATE----------BEGIN PRIVATE " +
		"KEY-----']", "without its key"},
	{"with a key of another form", trust, requireAPI + "keys: [sha256:ab]", "a key is sha256/BASE64"},
	{"with a key twice", trust, requireAPI + "keys: [" + aKey + "," + aKey + "]", "Duplicate value"},
	{"with too many keys", trust, requireAPI + "keys: [" + strings.Repeat(aKey+",", 33) + "]", "Too many"},

	{"with too many peers", access,
		"endpoints: [api]\nfrom: [" + strings.Repeat("{podSelector: {}},", 65) + "]", "Too many"},
}

// check creates an object with the spec.
func (s specCase) check(t *testing.T, kube client.Client) {
	expectError(t, kube.Create(t.Context(), object(t, s.kind, s.spec)), s.refused)
}

// updateCase changes an object's spec from one to another.
type updateCase struct{ name, kind, from, to, refused string }

var updated = []updateCase{
	{"the upstream", agentEndpoint, httpTo, "url: http://a.demo\nupstream: {url: 'http://b:8080'}", ""},
	{"all but url and bindings", agentEndpoint, httpTo,
		httpTo + "trafficPolicy: {inline: {}}\npoolingEnabled: true\ndescription: x\nmetadata: text", ""},
	{"the default binding, spelled out", agentEndpoint, httpTo, httpTo + "bindings: [kubernetes]", ""},
	{"the url", agentEndpoint, httpTo, "url: http://b.demo\n" + toA, "url cannot be changed"},
	{"the bindings", agentEndpoint, httpTo, httpTo + "bindings: [internal]", "bindings cannot be changed"},
	{"the bindings to the default", agentEndpoint, httpTo + "bindings: [internal]", httpTo,
		"bindings cannot be changed"},
	{"the backend", cloudEndpoint, "url: http://a.demo\nbackend: {id: a}", "url: http://a.demo\nbackend: {id: b}", ""},
	{"the url", cloudEndpoint, "url: http://a.demo", "url: http://b.demo", "url cannot be changed"},
	{"the bindings", cloudEndpoint, "url: http://a.demo", "url: http://a.demo\nbindings: [internal]",
		"bindings cannot be changed"},
}

// check updates an object.
func (u updateCase) check(t *testing.T, kube client.Client) {
	o := object(t, u.kind, u.from)
	must.Succeed(t, kube.Create(t.Context(), o))
	o.Object["spec"] = object(t, u.kind, u.to).Object["spec"]
	expectError(t, kube.Update(t.Context(), o), u.refused)
}

func bindingsDefault(t *testing.T, kube client.Client) {
	for kind, spec := range map[string]string{agentEndpoint: httpTo, cloudEndpoint: "url: http://a.demo"} {
		o := object(t, kind, spec)
		must.Succeed(t, kube.Create(t.Context(), o))
		got, _, err := unstructured.NestedStringSlice(o.Object, "spec", "bindings")
		if err != nil || len(got) != 1 || got[0] != "kubernetes" {
			t.Errorf("%s: bindings %v, %v", kind, got, err)
		}
	}
}

// boundEndpointNames makes BoundEndpoints with and without a cluster.
func boundEndpointNames(t *testing.T, kube client.Client) {
	const wrongName = "the name must be <spec.service>.<spec.namespace>[.<spec.cluster>]"
	for _, tt := range []struct{ name, spec, refused string }{
		{"hello.demo", "service: hello\nnamespace: demo\n", ""},
		{"hello.demo.eu-1", "service: hello\nnamespace: demo\ncluster: eu-1\n", ""},
		{"a-a.a.a", "service: a-a\nnamespace: a\ncluster: a\n", ""},
		{"hello.prod.eu-1", "service: hello\nnamespace: prod\n", wrongName},
		{"hello.prod", "service: hello\nnamespace: prod\ncluster: eu-1\n", wrongName},
		{"hello.prod.eu-2", "service: hello\nnamespace: prod\ncluster: eu-1\n", wrongName},
		{"hello.prod-eu-1", "service: hello\nnamespace: prod\ncluster: eu-1\n", wrongName},
		{"hell.o.prod", "service: hello\nnamespace: prod\n", wrongName},
		{"hello.prod.eu.1", "service: hello\nnamespace: prod\ncluster: eu.1\n", "spec.cluster"},
	} {
		o := object(t, "BoundEndpoint",
			tt.spec+"projectionID: x\nports: [{port: 42, scheme: tcp, targetPort: 20042}]\n")
		o.SetGenerateName("")
		o.SetName(tt.name)
		t.Run(tt.name, func(t *testing.T) { expectError(t, kube.Create(t.Context(), o), tt.refused) })
	}
}

func expectError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

// object returns an object of the kind with the spec.
func object(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{}}
	var parsed map[string]any
	must.Succeed(t, yaml.Unmarshal([]byte(spec), &parsed))
	o.SetAPIVersion("bindings.fairlead.dev/v1alpha1")
	o.SetKind(kind)
	o.SetNamespace("demo")
	o.SetGenerateName("test-")
	o.Object["spec"] = parsed
	return o
}
