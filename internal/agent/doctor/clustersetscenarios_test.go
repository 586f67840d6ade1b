// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/path"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// The requests of the checks of the Service demo/hello, which clusters export to each other.
const (
	askImport       = "get serviceimports.v1beta1.multicluster.x-k8s.io hello --namespace demo"
	askDerived      = "get services derived-0123456789 --namespace demo"
	askCorefile     = "get configmaps coredns --namespace kube-system"
	askImportSlices = "get endpointslices.discovery.k8s.io --namespace demo -l " +
		"multicluster.kubernetes.io/service-name=hello"
	askCarried = "get boundendpoints.bindings.fairlead.dev hello.demo.a --namespace fairlead"
	askOfB     = "get boundendpoints.bindings.fairlead.dev hello.demo.b --namespace fairlead"

	askServiceExport = "get serviceexports.v1beta1.multicluster.x-k8s.io hello --namespace demo"
	askHello         = "get services hello --namespace demo"
	askHelloReady    = "get endpointslices.discovery.k8s.io --namespace demo -l kubernetes.io/service-name=hello"

	execHello = "exec --namespace demo web-0 -- getent ahosts hello.demo.svc.clusterset.local"
)

const importObject = `{"metadata":{"namespace":"demo","name":"hello",
		"labels":{"bindings.fairlead.dev/installation":"i"},
		"annotations":{"multicluster.kubernetes.io/derived-service":"derived-0123456789"}},
	"spec":{"type":"ClusterSetIP","ips":["10.96.7.7"],"ports":[{"name":"tcp","protocol":"TCP","port":42},
		{"name":"udp","protocol":"UDP","port":42}]},
	"status":{"clusters":[{"cluster":"a"}],
		"conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"it is"}]}}`

const exportObject = `{"metadata":{"namespace":"demo","name":"hello"},"status":{"conditions":[
	{"type":"Valid","status":"True","reason":"Valid","message":"the Service can be exported"},
	{"type":"Ready","status":"True","reason":"Exported","message":"the account has the export"},
	{"type":"Conflict","status":"False","reason":"NoConflicts","message":"the clusters agree"},
	{"type":"fairlead.dev/Carried","status":"True","reason":"Carried","message":"all ports"}]}}`

const corefile = `{"data":{"Corefile":"clusterset.local:53 {\n kubernetes clusterset.local {\n  multicluster\n }\n}"}}`

// ofHello records a cluster b that imports demo/hello, which cluster a exports.
func ofHello(f *fake) {
	f.o.URL, f.o.ServiceImport, f.o.Context, f.o.ExportContext = account.EndpointURL{}, "demo/hello", "b", "a"
	f.replace(askOps, `"conditions": [`, `"conditions": [{"type": "ServiceImportsReady", "status": "True",
		"reason": "Ready", "message": "1 import"},`)
	f.put(askImport, importObject)
	f.put(askDerived, `{"metadata":{"namespace":"demo","name":"derived-0123456789"},"spec":{"clusterIP":"10.96.7.7",
		"clusterIPs":["10.96.7.7"],"ports":[{"port":42}]}}`)
	f.put(askCorefile, corefile)
	f.put(askImportSlices, `{"items":[{"metadata":{"labels":{"multicluster.kubernetes.io/source-cluster":"a"}},
		"endpoints":[{"addresses":["10.244.0.6"],"conditions":{"ready":true}},
			{"addresses":["10.244.0.4"],"conditions":{"ready":true}}],
		"ports":[{"name":"tcp","protocol":"TCP","port":22240}]}]}`)
	f.put(askCarried, `{"metadata":{"namespace":"fairlead","name":"hello.demo.a"},"status":{"conditions":[
		{"type":"Reachable","status":"True","reason":"Reachable","message":"it is"}]}}`)
	f.recordServiceExport(atExport)
}

// recordServiceExport records a cluster that exports demo/hello, with the prefix of its requests.
func (f *fake) recordServiceExport(prefix string) {
	f.put(prefix+askServiceExport, exportObject)
	f.put(prefix+askExporters, strings.ReplaceAll(exporterPods, `"status":{"phase"`,
		`"spec":{"containers":[{"args":["exporter","--services","--cluster-id=a"]}]},"status":{"phase"`))
	f.put(prefix+askHello, `{"metadata":{"namespace":"demo","name":"hello"},
		"spec":{"type":"ClusterIP","clusterIP":"10.96.1.1","ports":[{"port":42},{"port":42}]}}`)
	f.put(prefix+askHelloReady, `{"items":[{"endpoints":[{"addresses":["10.244.0.9"],"conditions":{"ready":true}}]}]}`)
}

// notExported makes the import not exist, and the ServiceExport say why, if it does.
func (f *fake) notExported(typ, reason, message string) {
	f.none(askImport)
	f.replace(atExport+askServiceExport, `"type":"`+typ+`","status":"True"`, `"type":"`+typ+`","status":"False",
		"reason":"`+reason+`","message":"`+message+`","was":""`)
	f.answers[atExport+askServiceExport].out = dropWas(f.answers[atExport+askServiceExport].out)
}

// dropWas removes the reason and message that follow "was", which JSON would take instead.
func dropWas(text string) string {
	before, after, _ := strings.Cut(text, `,"was":""`)
	_, after, _ = strings.Cut(after, "}")
	return before + "}" + after
}

const noImports = `error: the server doesn't have a resource type "serviceimports"`

func importScenarios() []scenario {
	return []scenario{
		{"imported Service", "", func(*fake) {}},
		{"import cluster gone", path.HopCluster, func(f *fake) {
			f.refuse(askImport, "Unable to connect to the server: dial tcp: i/o timeout")
		}},
		{"import cluster knows no such user", path.HopCluster, func(f *fake) {
			f.refuse(askImport, "error: You must be logged in to the server (Unauthorized)")
		}},
		{"no CRDs where it is imported", path.HopCRDs, func(f *fake) {
			f.refuse(askImport, noImports)
			f.replace(askOps, `"ServiceImportsReady", "status": "True"`, `"ServiceImportsReady", "status": "False"`)
		}},
		{"no namespace for the import", path.HopNamespace, func(f *fake) { f.none(askImport, askNS) }},
		{"namespace of the import ends", path.HopNamespace, func(f *fake) {
			f.replace(askNS, `"Active"`, `"Terminating"`)
		}},
		{"clusterset not enabled", path.HopOperator, func(f *fake) {
			f.none(askImport)
			f.replace(askOps, `"ServiceImportsReady"`, `"Other"`)
		}},
		{"imports not ready", path.HopOperator, func(f *fake) {
			f.none(askImport)
			f.replace(askOps, `"ServiceImportsReady", "status": "True"`, `"ServiceImportsReady", "status": "False"`)
		}},
		{"operator of the import missing", path.HopOperator, func(f *fake) { f.none(askOps) }},
		{"import missing though exported", path.HopServiceImport, func(f *fake) { f.none(askImport) }},
		{"foreign ServiceImport", path.HopServiceImport, func(f *fake) {
			f.replace(askImport, `"bindings.fairlead.dev/installation":"i"`,
				`"app.kubernetes.io/managed-by":"submariner"`)
		}},
		{"import not ready", path.HopServiceImport, func(f *fake) {
			f.replace(askImport, `"Ready","status":"True","reason":"Ready"`,
				`"Ready","status":"False","reason":"Pending"`)
		}},
		{"import waits for forwarders", path.HopForwarders, func(f *fake) {
			f.replace(askImport, `"Ready","status":"True","reason":"Ready"`,
				`"Ready","status":"False","reason":"Pending"`)
			f.replace(askImportSlices, `"ready":true`, `"ready":false`)
			f.none(askAnyPods)
		}},
		{"another import not ready", "", func(f *fake) {
			f.replace(askOps, `"ServiceImportsReady", "status": "True"`, `"ServiceImportsReady", "status": "False"`)
		}},
		{"server without exports", path.HopOperator, func(f *fake) {
			f.replace(askOps, `"reason": "Online"`, `"reason": "ClusterSetUnknown"`)
		}},
		{"headless import", "", func(f *fake) { f.replace(askImport, "ClusterSetIP", "Headless") }},
		{"derived Service missing", path.HopDerivedService, func(f *fake) { f.none(askDerived) }},
		{"derived Service of other addresses", path.HopDerivedService, func(f *fake) {
			f.replace(askDerived, "10.96.7.7", "10.96.7.8")
		}},
		{"import forbidden", "", func(f *fake) {
			f.forbid(askImport, askNS, askOps, askCorefile, askImportSlices, atExport+askServiceExport,
				atExport+askExporters, atExport+askHello)
		}},
	}
}

func importPathScenarios() []scenario {
	return []scenario{
		{"DNS without the domain", path.HopDNS, func(f *fake) {
			f.replace(askCorefile, "clusterset.local", "cluster.local")
		}},
		{"DNS without multicluster", path.HopDNS, func(f *fake) { f.replace(askCorefile, "multicluster", "") }},
		{"DNS of imports elsewhere", "", func(f *fake) { f.none(askCorefile) }},
		{"pod resolves the import", "", func(f *fake) {
			f.o.FromPod = "demo/web-0"
			f.put(execHello, "10.96.7.7 STREAM")
		}},
		{"pod does not resolve the import", path.HopDNS, func(f *fake) {
			f.o.FromPod = "demo/web-0"
			f.refuse(execHello, "command terminated with exit code 2")
		}},
		{"import without EndpointSlices", path.HopEndpointSlices, func(f *fake) { f.none(askImportSlices) }},
		{"import's EndpointSlices not ready", path.HopEndpointSlices, func(f *fake) {
			f.replace(askImportSlices, `"ready":true`, `"ready":false`)
		}},
		{"one cluster of two carried", "", func(f *fake) {
			f.replace(askImport, `{"cluster":"a"}`, `{"cluster":"a"},{"cluster":"b"}`)
			f.none(askOfB)
		}},
		{"import's port not open", path.HopListener, func(f *fake) { f.replace(askImportSlices, "22240", "22241") }},
		{"import's exporter offline", path.HopBoundEndpoint, func(f *fake) {
			f.replace(askCarried, `"True","reason":"Reachable"`, `"False","reason":"AgentOffline"`)
		}},
		{"no BoundEndpoint of the import", path.HopBoundEndpoint, func(f *fake) {
			f.none(askCarried, askImportSlices)
		}},
	}
}

func serviceExportScenarios() []scenario {
	return []scenario{
		{"exporting cluster of the import gone", path.HopExportCluster, func(f *fake) {
			f.none(askImport)
			f.refuse(atExport+askServiceExport, "Unable to connect to the server: dial tcp: i/o timeout")
		}},
		{"no CRDs where it is exported", path.HopServiceExport, func(f *fake) {
			f.none(askImport)
			f.refuse(atExport+askServiceExport, `error: the server doesn't have a resource type "serviceexports"`)
		}},
		{"no ServiceExport", path.HopServiceExport, func(f *fake) { f.none(askImport, atExport+askServiceExport) }},
		{"ServiceExport not read", path.HopServiceExport, func(f *fake) {
			f.none(askImport)
			f.put(atExport+askServiceExport, `{"metadata":{"name":"hello"}}`)
		}},
		{"export without Service", path.HopExportService, func(f *fake) {
			f.notExported("Valid", "NoService", "there is no Service demo/hello")
			f.none(atExport + askHello)
		}},
		{"export of an ExternalName", path.HopExportService, func(f *fake) {
			f.notExported("Valid", "InvalidServiceType", "Service demo/hello is an ExternalName")
			f.replace(atExport+askHello, `"ClusterIP"`, `"ExternalName"`)
		}},
		{"export of a headless Service", "", func(f *fake) {
			f.replace(atExport+askHello, "10.96.1.1", "None")
			f.replace(askImport, "ClusterSetIP", "Headless")
		}},
		{"exported Service has no ready endpoint", path.HopExportService, func(f *fake) {
			f.replace(atExport+askHelloReady, `"ready":true`, `"ready":false`)
		}},
		{"export refused by the account", path.HopServiceExport, func(f *fake) {
			f.notExported("Ready", "Failed", "the cluster id a is taken by cluster 1f0c")
		}},
		{"exporters without services", path.HopExporter, func(f *fake) {
			f.none(askImport)
			f.put(atExport+askServiceExport, `{"metadata":{"name":"hello"}}`)
			f.replace(atExport+askExporters, `"--services",`, `"--services=false",`)
		}},
		{"no exporter for the import", path.HopExporter, func(f *fake) {
			f.replace(askCarried, `"True","reason":"Reachable"`, `"False","reason":"AgentOffline"`)
			f.none(atExport + askExporters)
		}},
		{"exports in conflict", "", func(f *fake) {
			f.replace(atExport+askServiceExport, `"type":"Conflict","status":"False","reason":"NoConflicts",`+
				`"message":"the clusters agree"`, `"type":"Conflict","status":"True","reason":"PortConflict",`+
				`"message":"The clusters differ in port tcp: 42/TCP (b), 43/TCP (a)."`)
			f.replace(atExport+askServiceExport, `Carried","status":"True","reason":"Carried","message":"all ports"`,
				`Carried","status":"False","reason":"Partly","message":"42/UDP is listed, but only TCP is carried"`)
		}},
	}
}

// rows makes the account answer with the endpoints.
func (f *fake) rows(all ...account.Endpoint) {
	f.account("", all...)
}

// record is the export of demo/hello by a cluster, and carried a port of it.
func record(cluster string, ports ...account.ServiceExportPort) account.Endpoint {
	return account.Endpoint{ID: "ep-" + cluster, Type: account.TypeCloud, Status: account.StatusOnline,
		URL: account.ServiceExportURL("hello", "demo", cluster).String(), CreatedAt: now.Add(-time.Hour),
		Owner:         &account.Owner{Kind: account.KindServiceExport, Namespace: "demo", Name: "hello"},
		ServiceExport: &account.ServiceExport{Type: account.ExportClusterSetIP, Ports: ports}}
}

func carried(cluster, status string, port int) account.Endpoint {
	e := record(cluster)
	e.Type, e.Status, e.ServiceExport = account.TypeAgent, status, nil
	e.URL = account.ExportedPortURL("hello", "demo", cluster, port).String()
	return e
}

func exportAccountScenarios() []scenario {
	tcp := account.ServiceExportPort{Name: "tcp", Protocol: "TCP", Port: 42}
	udp := account.ServiceExportPort{Name: "udp", Protocol: "UDP", Port: 42}
	other := record("z", tcp)
	other.Owner = &account.Owner{Kind: account.KindServiceExport, Namespace: "demo", Name: "other"}
	return []scenario{
		{"account has the export", "", func(f *fake) {
			younger := record("b", tcp)
			younger.CreatedAt = now
			f.rows(younger, record("a", tcp, udp), carried("a", account.StatusOnline, 42),
				carried("b", account.StatusOnline, 42), other)
		}},
		{"account has no export", path.HopRecords, func(f *fake) {
			f.none(askImport)
			f.rows(other)
		}},
		{"exporter of a port offline", path.HopCarriedPorts, func(f *fake) {
			f.replace(askCarried, `"True","reason":"Reachable"`, `"False","reason":"AgentOffline"`)
			f.rows(record("a", tcp, udp), carried("a", account.StatusOffline, 42))
		}},
		{"only UDP", path.HopCarriedPorts, func(f *fake) {
			f.rows(record("a", udp))
			f.none(askImportSlices, askCarried)
		}},
		{"account does not know exports", "", func(f *fake) {
			f.o.Account = &fakeAccount{err: errors.New("binding clusterset: must be kubernetes, internal or public")}
		}},
		{"exports of another account", "", func(f *fake) {
			f.account("ac-2")
		}},
	}
}

// checkScenario runs the checks of a scenario and compares what is printed.
func checkScenario(t *testing.T, f *fake, s scenario) path.Report {
	t.Helper()
	r := Run(t.Context(), f.o)
	if r.Broken != s.broken || r.OK != (s.broken == "") {
		t.Errorf("broken is %q, want %q", r.Broken, s.broken)
	}
	if h := r.Hop(r.Broken); h != nil && (h.Detail == "" || h.Fix == "") {
		t.Errorf("a broken hop without words: %+v", h)
	}
	var b bytes.Buffer
	must.Succeed(t, Print(&b, r, PrintOptions{}))
	fitsTerminal(t, b.String())
	golden(t, s.name+".txt", b.Bytes())
	f.checkCalls()
	return r
}

func TestRun_OfClusterset(t *testing.T) {
	t.Parallel()
	for _, s := range slices.Concat(importScenarios(), importPathScenarios(), serviceExportScenarios(),
		exportAccountScenarios()) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f := recorded(t)
			ofHello(f)
			s.change(f)
			r := checkScenario(t, f, s)
			if len(r.Hops) != 18 {
				t.Errorf("%d hops", len(r.Hops))
			}
			if r.URL != "hello.demo.svc.clusterset.local" {
				t.Errorf("the name is %s", r.URL)
			}
		})
	}
}

// TestRun_OfServiceExport checks an export alone, an import alone, and both by the export's name.
func TestRun_OfServiceExport(t *testing.T) {
	t.Parallel()
	alone := func(f *fake) {
		f.o.ServiceImport, f.o.ServiceExport, f.o.Context, f.o.ExportContext = "", "demo/hello", "a", ""
		f.recordServiceExport("")
	}
	for _, s := range []struct {
		scenario
		hops int
	}{
		{scenario{"ServiceExport alone", "", alone}, 6},
		{scenario{"ServiceExport alone missing", path.HopServiceExport, func(f *fake) {
			alone(f)
			f.none(askServiceExport)
		}}, 6},
		{scenario{"ServiceImport alone", "", func(f *fake) { f.o.ExportContext = "" }}, 14},
		{scenario{"ServiceImport alone missing", path.HopServiceImport, func(f *fake) {
			f.o.ExportContext, f.o.ClustersetDomain = "", "mesh.example"
			f.none(askImport)
		}}, 14},
		{scenario{"ServiceExport and its import", "", func(f *fake) {
			f.o.ServiceImport, f.o.ServiceExport = "", "demo/hello"
		}}, 18},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f := recorded(t)
			ofHello(f)
			s.change(f)
			if r := checkScenario(t, f, s.scenario); len(r.Hops) != s.hops {
				t.Errorf("%d hops, want %d", len(r.Hops), s.hops)
			}
		})
	}
}

// TestRun_OfClustersetSurvivesInvalidOutput: the report has every hop, whichever answer is invalid.
func TestRun_OfClustersetSurvivesInvalidOutput(t *testing.T) {
	t.Parallel()
	for _, ask := range []string{askImport, askNS, askOps, askManagers, askDerived, askCorefile, askImportSlices,
		askAnyPods, askOne, askTwo, askCarried, atExport + askServiceExport, atExport + askExporters,
		atExport + askHello, atExport + askHelloReady} {
		for _, junk := range invalidAnswers {
			f := recorded(t)
			ofHello(f)
			f.put(ask, junk)
			r := Run(t.Context(), f.o)
			for _, h := range r.Hops {
				if h.Status == "" || h.Detail == "" || len(r.Hops) != 18 {
					t.Errorf("%s answers %q: %d hops, %+v", ask, junk, len(r.Hops), h)
				}
			}
		}
	}
}
