// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// The requests of the checks to the cluster that exports http://api.demo.
const (
	askExports       = "get agentendpoints.bindings.fairlead.dev --all-namespaces"
	askExportsOfDemo = "get agentendpoints.bindings.fairlead.dev --namespace demo"
	askExport        = "get agentendpoints.bindings.fairlead.dev api --namespace demo"
	askExporters     = "get pods --all-namespaces -l app.kubernetes.io/name=fairlead-exporter"
	askExported      = "get services api --namespace demo"
	askExportedReady = "get endpointslices.discovery.k8s.io --namespace demo -l kubernetes.io/service-name=api"

	// atExport goes before a request in the context of the cluster that exports.
	atExport = "@export "
)

const exportedObject = `{"metadata":{"namespace":"demo","name":"api","generation":2},
	"spec":{"url":"http://api.demo","upstream":{"url":"http://api:8080"}},
	"status":{"observedGeneration":2,"conditions":[
		{"type":"Accepted","status":"True","reason":"Accepted","message":"the spec is valid"},
		{"type":"Bound","status":"True","reason":"Bound","message":"the account has the endpoint"},
		{"type":"UpstreamReady","status":"True","reason":"Ready","message":"2 endpoints are ready"},
		{"type":"Ready","status":"True","reason":"Ready","message":"pods can call it"}]}}`

const exporterPods = `{"items":[
	{"metadata":{"namespace":"fairlead","name":"exporter-one"},
		"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}},
	{"metadata":{"namespace":"fairlead","name":"exporter-two"},
		"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}]}`

// recordExport records a cluster that exports http://api.demo, with the prefix of its requests.
func (f *fake) recordExport(prefix string) {
	f.put(prefix+askExports, `{"items":[`+exportedObject+`]}`)
	f.put(prefix+askExport, exportedObject)
	f.put(prefix+askExporters, exporterPods)
	f.put(prefix+askExportedReady,
		`{"items":[{"endpoints":[{"addresses":["10.244.0.9"],"conditions":{"ready":true}}]}]}`)
	if prefix != "" {
		f.put(prefix+askExported, `{"metadata":{"namespace":"demo","name":"api"},
			"spec":{"type":"ClusterIP","ports":[{"port":8080}]}}`)
	}
}

// exporting is the recorded cluster as caller, and another that exports the endpoint.
func exporting(f *fake) {
	f.o.Context, f.o.ExportContext = "b", "a"
	f.recordExport(atExport)
}

// notBound makes the account lack an agent for the endpoint, and the AgentEndpoint say why.
func (f *fake) notBound(reason, message string) {
	f.offline("no agent is connected for http://api.demo")
	for _, ask := range []string{atExport + askExports, atExport + askExport} {
		f.replace(ask, `"type":"Bound","status":"True","reason":"Bound","message":"the account has the endpoint"`,
			`"type":"Bound","status":"False","reason":"`+reason+`","message":"`+message+`"`)
	}
}

const pod1 = `"name":"exporter-one"},
		"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]`

func exportScenarios() []scenario {
	return slices.Concat(exportObjectScenarios(), exporterScenarios(), exportServiceScenarios())
}

func exportObjectScenarios() []scenario {
	return []scenario{
		{"exported by another cluster", "", exporting},
		{"export cluster gone", path.HopExportCluster, func(f *fake) {
			exporting(f)
			f.offline("no agent is connected for http://api.demo")
			f.refuse(atExport+askExports, "Unable to connect to the server: dial tcp: i/o timeout")
		}},
		{"export cluster knows no such user", path.HopExportCluster, func(f *fake) {
			exporting(f)
			f.refuse(atExport+askExports, "error: You must be logged in to the server (Unauthorized)")
		}},
		{"export cluster without the kinds", path.HopAgentEndpoint, func(f *fake) {
			exporting(f)
			f.refuse(atExport+askExports, `error: the server doesn't have a resource type "agentendpoints"`)
		}},
		{"no AgentEndpoint", path.HopAgentEndpoint, func(f *fake) {
			exporting(f)
			f.none(askBEP, askTarget, askUpstream)
			f.none(atExport + askExports)
		}},
		{"AgentEndpoint's URL is taken", path.HopAgentEndpoint, func(f *fake) {
			exporting(f)
			f.notBound("URLTaken", "http://api.demo is taken by AgentEndpoint team-a/api of cluster 1f0c")
		}},
		{"AgentEndpoint not accepted", path.HopAgentEndpoint, func(f *fake) {
			exporting(f)
			f.replace(atExport+askExports, `"type":"Accepted","status":"True","reason":"Accepted"`,
				`"type":"Accepted","status":"False","reason":"UpstreamNotAllowed"`)
		}},
		{"AgentEndpoint not read yet", path.HopAgentEndpoint, func(f *fake) {
			exporting(f)
			f.replace(atExport+askExports, `"observedGeneration":2`, `"observedGeneration":1`)
		}},
	}
}

func exporterScenarios() []scenario {
	return []scenario{
		{"no exporter", path.HopExporter, func(f *fake) {
			exporting(f)
			f.notBound("Unreachable", "the service does not answer")
			f.none(atExport + askExporters)
		}},
		{"exporter's key refused", path.HopExporter, func(f *fake) {
			exporting(f)
			f.notBound("Unreachable", "the API key is unknown: it was deleted, or is of another service")
			f.replace(atExport+askExporters, `"status":"True"`, `"status":"False","reason":"ContainersNotReady"`)
		}},
		{"exporters not ready", path.HopExporter, func(f *fake) {
			exporting(f)
			f.offline("no agent is connected for http://api.demo")
			f.replace(atExport+askExports, `"observedGeneration":2`, `"observedGeneration":1`)
			f.replace(atExport+askExporters, `"status":"True"`, `"status":"False","reason":"ContainersNotReady"`)
		}},
		{"one exporter ready", "", func(f *fake) {
			exporting(f)
			f.replace(atExport+askExporters, pod1, strings.Replace(pod1, "True", "False", 1))
		}},
	}
}

func exportServiceScenarios() []scenario {
	return []scenario{
		{"exported Service without endpoints", path.HopExportService, func(f *fake) {
			exporting(f)
			f.replace(atExport+askExports, `"type":"UpstreamReady","status":"True","reason":"Ready"`,
				`"type":"UpstreamReady","status":"False","reason":"NoReadyEndpoints"`)
			f.replace(atExport+askExportedReady, `"ready":true`, `"ready":false`)
		}},
		{"exported Service lacks the port", path.HopExportService, func(f *fake) {
			exporting(f)
			f.replace(atExport+askExported, "8080", "9090")
		}},
		{"exported Service is an ExternalName", path.HopExportService, func(f *fake) {
			exporting(f)
			f.replace(atExport+askExported, "ClusterIP", "ExternalName")
		}},
		{"exported Service gone", path.HopExportService, func(f *fake) {
			exporting(f)
			f.none(atExport + askExported)
		}},
		{"export forbidden", "", func(f *fake) {
			exporting(f)
			f.forbid(atExport+askExports, atExport+askExportsOfDemo, atExport+askExporters)
		}},
		{"AgentEndpoints of the namespace only", "", func(f *fake) {
			exporting(f)
			f.forbid(atExport + askExports)
			f.put(atExport+askExportsOfDemo, `{"items":[`+exportedObject+`]}`)
		}},
		{"exported by the cluster itself", path.HopExporter, func(f *fake) {
			f.recordExport("")
			f.offline("no agent is connected for http://api.demo")
			f.none(askExporters)
		}},
	}
}

// TestRun_OfAgentEndpoint checks an AgentEndpoint by its name: alone, or with the path of a call in
// another cluster.
func TestRun_OfAgentEndpoint(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		scenario
		hops int
	}{
		{scenario{"AgentEndpoint", "", func(f *fake) { f.o.Context = "a"; f.recordExport("") }}, 4},
		{scenario{"AgentEndpoint missing", path.HopAgentEndpoint, func(f *fake) {
			f.recordExport("")
			f.none(askExport)
		}}, 4},
		{scenario{"AgentEndpoint without exporters", path.HopExporter, func(f *fake) {
			f.recordExport("")
			f.none(askExporters)
		}}, 4},
		{scenario{"AgentEndpoint and caller", "", exporting}, 17},
		{scenario{"AgentEndpoint and caller without namespace", path.HopNamespace, func(f *fake) {
			exporting(f)
			f.none(askNS, askTarget)
		}}, 17},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f := recorded(t)
			s.change(f)
			f.o.URL, f.o.AgentEndpoint = parse(t, "http://other.demo"), "demo/api"
			if f.o.ExportContext == "" {
				f.put(askExported, `{"spec":{"type":"ClusterIP","ports":[{"port":8080}]}}`)
			}
			r := Run(t.Context(), f.o)
			if r.Broken != s.broken || len(r.Hops) != s.hops {
				t.Errorf("broken is %q, want %q; %d hops, want %d", r.Broken, s.broken, len(r.Hops), s.hops)
			}
			if s.broken != path.HopAgentEndpoint && r.URL != "http://api.demo" {
				t.Errorf("the URL is %q", r.URL)
			}
			var b bytes.Buffer
			must.Succeed(t, Print(&b, r, PrintOptions{}))
			fitsTerminal(t, b.String())
			golden(t, s.name+".txt", b.Bytes())
			f.checkCalls()
		})
	}
}
