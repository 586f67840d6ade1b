// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package exporter_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// serviceExport returns a ServiceExport with a spec.
func serviceExport(name, spec string) string {
	return "kind: ServiceExport\nmetadata: {name: " + name + "}\nspec: {" + spec + "}"
}

// exportOf returns a Service with the spec, and its ServiceExport.
func exportOf(name, spec string) string {
	return "kind: Service\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n---\n" + serviceExport(name, "")
}

// withSlice returns a Service with port 8080, an EndpointSlice of it with an address that a user
// wrote, and its ServiceExport.
func withSlice(name, spec, address string, labels ...string) string {
	return "kind: EndpointSlice\nmetadata: {name: " + name + "-x, labels: {" +
		strings.Join(append(labels, "kubernetes.io/service-name: "+name), ", ") + "}}\naddressType: IPv4" +
		"\nports: [{port: 8080, name: ''}]\nendpoints: [{addresses: ['" + address +
		"'], conditions: {ready: true}}]\n---\n" + exportOf(name, "ports: [{port: 8080}], "+spec)
}

// manyPorts returns n ports of a Service.
func manyPorts(n int) string {
	var ports []string
	for i := range n {
		ports = append(ports, fmt.Sprintf("{name: p%d, port: %d}", i, 1000+i))
	}
	return "selector: {app: none}, ports: [" + strings.Join(ports, ", ") + "]"
}

// notExported are attempts to export what is not the namespace's, or more than may be.
var notExported = []attack{
	{"a Service of another namespace", serviceExport("victim", ""), "Valid False NoService",
		[]string{"there is no Service $SELF/victim"}},
	{"a name that looks like a hostname", serviceExport("victim.$VICTIM", ""), "Valid False NoService", nil},
	{"a name with the other cluster's id", serviceExport("victim.$VICTIM.a", ""), "Valid False NoService", nil},
	{"a long name", serviceExport(strings.Repeat("long.", 50)+"x", ""), "Valid False NoService", nil},
	{"an ExternalName of another namespace's Service",
		exportOf("e-external", "type: ExternalName, externalName: victim.$VICTIM.svc, ports: [{port: 8080}]"),
		"Valid False InvalidServiceType", []string{"is of type ExternalName"}},
	{"a pod of another namespace by a hand-made slice", withSlice("e-slice", "", victimPod),
		"fairlead.dev/Carried False EndpointsNotUsed", []string{"Service $SELF/e-slice has no selector",
			"export.crossNamespace"}},
	{"a node by a hand-made slice", withSlice("e-node", "", nodeIP), "fairlead.dev/Carried False EndpointsNotUsed",
		nil},
	{"a hand-made slice beside a selector", withSlice("e-second", "selector: {app: none}", victimPod),
		"fairlead.dev/Carried False EndpointsNotUsed",
		[]string{"EndpointSlice e-second-x is not of Kubernetes' own controller"}},
	{"a slice that passes for the controller's", withSlice("e-forged", "selector: {app: none}", "10.7.7.7",
		"endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io"), "Ready True Exported", nil},
	{"too many ports", exportOf("e-ports", manyPorts(101)), "Ready False Failed",
		[]string{"the Service's spec.ports", "at most 100"}},
	{"a label that is none",
		"kind: Service\nmetadata: {name: e-label}\nspec: {selector: {app: none}, ports: [{port: 1}]}" +
			"\n---\n" + serviceExport("e-label", "exportedLabels: {'a b': c}"), "Ready False Failed",
		[]string{"spec.exportedLabels", "a b"}},
	{"annotations over the limit", "kind: Service\nmetadata: {name: e-long}\nspec: {selector: {app: none}, " +
		"ports: [{port: 1}]}\n---\n" + serviceExport("e-long", "exportedAnnotations: {a: "+strings.Repeat("x", 33<<10)+
		"}"),
		"Ready False Failed", []string{"at most 32768", "export fewer labels and annotations"}},
	{"another team's export, by an AgentEndpoint", "kind: AgentEndpoint\nmetadata: {name: e-agent}\n" +
		"spec: {url: 'tcp://victim.$VICTIM.a:8080', bindings: [clusterset], upstream: {url: 'tcp://honest:8080'}}",
		"refused", []string{"bindings"}},
	{"another team's record, by a CloudEndpoint", "kind: CloudEndpoint\nmetadata: {name: e-cloud}\n" +
		"spec: {url: 'service://victim.$VICTIM.a', bindings: [clusterset]}", "refused", nil},
}

// TestHostile_ServiceExports checks that each attempt to export what is not the user's fails with a
// sentence, and that nothing is dialed for it.
func TestHostile_ServiceExports(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *exporter.Options) { o.Services, o.ClusterID = true, "a" })
	forwarder := w.Service.StartForwarder()
	w.expect(w.mustApply(w.victim, serviceExport("victim", "")), "Ready True Exported")
	for _, a := range notExported {
		w.attempt(a)
	}
	w.expect(w.mustApply(w.self, serviceExport("honest", "")), "fairlead.dev/Carried True Carried")
	wait.Until(t, "the honest port, which is bound after those of e-ports", func() bool {
		time.Sleep(pollInterval)
		return slices.ContainsFunc(w.endpoints(w.self), func(e account.Endpoint) bool {
			return e.Type == account.TypeAgent && e.Owner.Name == "honest"
		})
	})
	w.takeDials()
	for _, e := range w.endpoints(w.self) {
		if !strings.HasPrefix(e.Host, e.Owner.Name+"."+w.self+".a") {
			t.Errorf("%s has %s", e.Owner, e.URL)
		}
		answer := ""
		if e.Type == account.TypeAgent {
			answer = callPort(t, forwarder, &e)
		}
		if (strings.HasSuffix(answer, "mallory")) != (e.Type == account.TypeAgent && e.Owner.Name == "honest") ||
			strings.Contains(answer, "victim") {
			t.Errorf("%s of %s answers %q", e.URL, e.Owner, answer)
		}
	}
	if dialed := w.takeDials(); !slices.Equal(dialed, []string{attackerPod + ":8080"}) {
		t.Errorf("the exporter dialed %v", dialed)
	}
	for _, e := range w.endpoints(w.victim) {
		if e.Type == account.TypeAgent && !strings.HasSuffix(callPort(t, forwarder, &e), "victim") {
			t.Errorf("%s does not work any more", e.URL)
		}
	}
}

// callPort calls the port of an export as a forwarder does, and returns the whole answer, "" for
// none.
func callPort(t *testing.T, f *servicetest.Forwarder, e *account.Endpoint) string {
	t.Helper()
	s, err := f.Wait(t.Context())
	must.Succeed(t, err)
	st, err := s.Open(t.Context(), tunnel.OpenHeader{EndpointID: e.ID, Scheme: "tcp", Host: e.Host, Port: e.Port,
		ClientAddr: servicetest.PodAddr})
	must.Succeed(t, err)
	defer func() { _ = st.Close() }()
	_, _ = io.WriteString(st, "GET / HTTP/1.0\r\n\r\n")
	answer, _ := io.ReadAll(st) // a refusal is no answer
	return string(answer)
}
