// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package account_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/accounttest"
)

// recordOf returns the endpoint of an export that breaks no rule.
func recordOf(export *account.ServiceExport) *account.Endpoint {
	u := account.ServiceExportURL("hello", "demo", "a")
	return &account.Endpoint{URL: u.String(), Scheme: u.Scheme, Host: u.Host, Port: u.Port,
		Bindings: []string{account.BindingClusterset}, ServiceExport: export,
		Owner: accounttest.ExportOwner("demo", "hello")}
}

// exportCase is a change of an export, and the field whose rule it breaks, if any.
type exportCase struct {
	change func(*account.ServiceExport)
	field  string
}

func checkExports(t *testing.T, cases map[string]exportCase) {
	t.Helper()
	for name, c := range cases {
		export := accounttest.ServiceExport()
		c.change(export)
		fields := account.FieldsOf(recordOf(export).Validate())
		if c.field == "" && len(fields) > 0 || c.field != "" && (len(fields) == 0 || fields[0].Field != c.field) {
			t.Errorf("%s: %+v, want %q", name, fields, c.field)
		}
	}
}

func TestServiceExport_ChecksFields(t *testing.T) {
	t.Parallel()
	checkExports(t, map[string]exportCase{
		"as it is":     {func(*account.ServiceExport) {}, ""},
		"no port":      {func(s *account.ServiceExport) { s.Ports = nil }, ""},
		"headless":     {func(s *account.ServiceExport) { s.Type = account.ExportHeadless }, ""},
		"another type": {func(s *account.ServiceExport) { s.Type = "ExternalName" }, "service_export.type"},
		"another affinity": {func(s *account.ServiceExport) {
			s.SessionAffinity = ""
		}, "service_export.session_affinity"},
		"seconds without affinity": {func(s *account.ServiceExport) { s.SessionAffinity = "None" },
			"service_export.session_affinity_seconds"},
		"a long affinity": {func(s *account.ServiceExport) { s.SessionAffinitySeconds = new(int32(86401)) },
			"service_export.session_affinity_seconds"},
		"another policy": {func(s *account.ServiceExport) { s.InternalTrafficPolicy = "cluster" },
			"service_export.internal_traffic_policy"},
		"another distribution": {func(s *account.ServiceExport) { s.TrafficDistribution = "\x00" },
			"service_export.traffic_distribution"},
		"a family twice": {func(s *account.ServiceExport) {
			s.IPFamilies[1] = "IPv4"
		}, "service_export.ip_families[1]"},
		"another family": {func(s *account.ServiceExport) {
			s.IPFamilies[1] = "IPv5"
		}, "service_export.ip_families[1]"},
		"another label":       {func(s *account.ServiceExport) { s.Labels["-a"] = "" }, "service_export.labels"},
		"another label value": {func(s *account.ServiceExport) { s.Labels["a"] = "b c" }, "service_export.labels.a"},
		"another annotation": {func(s *account.ServiceExport) {
			s.Annotations["a/b/c"] = ""
		}, "service_export.annotations"},
		"annotations in upper": {func(s *account.ServiceExport) { s.Annotations["Example.Com/a"] = "any text, é" }, ""},
		"an annotation that is no text": {func(s *account.ServiceExport) { s.Annotations["a"] = "\x00" },
			"service_export.annotations.a"},
		"32 KiB": {func(s *account.ServiceExport) {
			s.Annotations["a"] = strings.Repeat("b", 32<<10)
		}, "service_export"},
	})
}

func TestServiceExport_ChecksPods(t *testing.T) {
	t.Parallel()
	pods := func(typ string, hostnames ...string) func(*account.ServiceExport) {
		return func(s *account.ServiceExport) {
			s.Type = typ
			for _, name := range hostnames {
				s.Pods = append(s.Pods, account.ServiceExportPod{Hostname: name})
			}
		}
	}
	many := make([]string, account.MaxExportPods+1)
	for i := range many {
		many[i] = fmt.Sprintf("pod-%d", i)
	}
	checkExports(t, map[string]exportCase{
		"of a headless Service":     {pods("Headless", many[1:]...), ""},
		"of a Service with an IP":   {pods("ClusterSetIP", "pod-0"), "service_export.pods"},
		"too many":                  {pods("Headless", many...), "service_export.pods"},
		"one twice":                 {pods("Headless", "pod-0", "pod-0"), "service_export.pods[1].hostname"},
		"two labels":                {pods("Headless", "pod-0.db"), "service_export.pods[0].hostname"},
		"without a hostname":        {pods("Headless", ""), "service_export.pods[0].hostname"},
		"a name that is no label's": {pods("Headless", "pod_0"), "service_export.pods[0].hostname"},
	})
}

// TestPodPort keeps the ports: exporters and importers of different versions derive them.
func TestPodPort(t *testing.T) {
	t.Parallel()
	for hostname, want := range map[string]int32{"db-0": 7669, "db-1": 55953, "10-1-0-1": 44326} {
		if got := account.PodPort(hostname, 42); got != want {
			t.Errorf("%s: %d, want %d", hostname, got, want)
		}
	}
}

func TestServiceExport_ChecksPorts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64)
	checkExports(t, map[string]exportCase{
		"one port without a name": {func(s *account.ServiceExport) {
			s.Ports = []account.ServiceExportPort{{Protocol: "TCP", Port: 80}}
		}, ""},
		"two ports, one without a name": {func(s *account.ServiceExport) {
			s.Ports[1].Name = ""
		}, "service_export.ports[1].name"},
		"one name twice": {func(s *account.ServiceExport) {
			s.Ports[1].Name = "tcp"
		}, "service_export.ports[1].name"},
		"a long name": {func(s *account.ServiceExport) {
			s.Ports[0].Name = long
		}, "service_export.ports[0].name"},
		"upper case": {func(s *account.ServiceExport) {
			s.Ports[0].Name = "TCP"
		}, "service_export.ports[0].name"},
		"one number twice": {func(s *account.ServiceExport) {
			s.Ports[1].Protocol = "TCP"
		}, "service_export.ports[1].port"},
		"port 0":     {func(s *account.ServiceExport) { s.Ports[0].Port = 0 }, "service_export.ports[0].port"},
		"port 65536": {func(s *account.ServiceExport) { s.Ports[0].Port = 65536 }, "service_export.ports[0].port"},
		"another protocol": {func(s *account.ServiceExport) {
			s.Ports[0].Protocol = "tcp"
		}, "service_export.ports[0].protocol"},
		"kubernetes.io/h2c": {func(s *account.ServiceExport) { s.Ports[0].AppProtocol = "kubernetes.io/h2c" },
			""},
		"another application": {func(s *account.ServiceExport) { s.Ports[0].AppProtocol = "a b" },
			"service_export.ports[0].app_protocol"},
		"101 ports": {func(s *account.ServiceExport) {
			s.Ports = make([]account.ServiceExportPort, account.MaxExportPorts+1)
		}, "service_export.ports"},
	})
}

func TestServiceExport_BelongsToBinding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*account.Endpoint)
		field  string
	}{
		"no export":         {func(e *account.Endpoint) { e.ServiceExport = nil }, "service_export"},
		"no owner":          {func(e *account.Endpoint) { e.Owner = nil }, "owner"},
		"another Service":   {func(e *account.Endpoint) { e.Owner.Name = "hell" }, "owner"},
		"another namespace": {func(e *account.Endpoint) { e.Owner.Namespace = "dem" }, "owner"},
		"another kind":      {func(e *account.Endpoint) { e.Owner.Kind = account.KindCloudEndpoint }, "owner.kind"},
		"a port": {func(e *account.Endpoint) {
			e.URL, e.Scheme, e.Port = "tcp://hello.demo.a:42", "tcp", 42
		}, "url"},
		"a policy":  {func(e *account.Endpoint) { e.TrafficPolicy = "a: b" }, "traffic_policy"},
		"a backend": {func(e *account.Endpoint) { e.BackendID = "x" }, "backend_id"},
		"a pool":    {func(e *account.Endpoint) { e.PoolingEnabled = true }, "pooling_enabled"},
		"another binding": {func(e *account.Endpoint) {
			e.Bindings, e.URL, e.Scheme, e.Host, e.Port = []string{"kubernetes"}, "http://hello.demo", "http",
				"hello.demo", 80
			e.Owner = nil
		}, "service_export"},
	} {
		e := recordOf(accounttest.ServiceExport())
		c.change(e)
		if fields := account.FieldsOf(e.Validate()); len(fields) != 1 || fields[0].Field != c.field {
			t.Errorf("%s: %+v, want %s", name, fields, c.field)
		}
	}
	if err := recordOf(accounttest.ServiceExport()).Validate(); err != nil {
		t.Error(err)
	}
}

func TestServiceExport_PortsAreBoundByOwner(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*account.BindRequest)
		field  string // "" = no rule is broken
	}{
		"as it is":        {func(*account.BindRequest) {}, ""},
		"no owner":        {func(r *account.BindRequest) { r.Owner = nil }, "owner"},
		"another Service": {func(r *account.BindRequest) { r.Owner.Name = "other" }, "owner"},
		"another kind":    {func(r *account.BindRequest) { r.Owner.Kind = account.KindAgentEndpoint }, "owner.kind"},
		"the export": {func(r *account.BindRequest) {
			r.Endpoint = account.NewEndpoint(account.BindingClusterset, account.ServiceExportURL("hello", "demo", "a"))
			r.Owner = accounttest.ExportOwner("demo", "hello")
		}, "url"},
		"a pool": {func(r *account.BindRequest) { r.PoolingEnabled = true }, "pooling_enabled"},
		"a policy": {func(r *account.BindRequest) {
			r.TrafficPolicy, r.PolicyFacts.Digest = "a: b", "x"
		}, "traffic_policy"},
	} {
		r := account.BindRequest{Endpoint: account.NewEndpoint(account.BindingClusterset,
			account.ExportedPortURL("hello", "demo", "a", 42))}
		r.Owner = accounttest.ExportOwner("demo", "hello")
		c.change(&r)
		fields := account.FieldsOf(r.Validate())
		if c.field == "" && len(fields) > 0 || c.field != "" && (len(fields) != 1 || fields[0].Field != c.field) {
			t.Errorf("%s: %+v, want %q", name, fields, c.field)
		}
	}
}

func TestServiceExport_NormalHasNoNil(t *testing.T) {
	t.Parallel()
	var none *account.ServiceExport
	if none.Normal() != nil {
		t.Error("no export has a normal form")
	}
	text, err := json.Marshal((&account.ServiceExport{}).Normal())
	for _, field := range []string{`"ports":[]`, `"ip_families":[]`, `"labels":{}`, `"annotations":{}`,
		`"session_affinity_seconds":null`} {
		if err != nil || !strings.Contains(string(text), field) {
			t.Errorf("%s, %v has no %s", text, err, field)
		}
	}
	export := accounttest.ServiceExport()
	normal := export.Normal()
	if !reflect.DeepEqual(normal, export) {
		t.Errorf("%+v is %+v", export, normal)
	}
	export.Ports[0].Name, export.IPFamilies[0], *export.SessionAffinitySeconds = "changed", "changed", 1
	export.Labels["changed"], export.Annotations["changed"] = "", ""
	if !reflect.DeepEqual(normal, accounttest.ServiceExport()) {
		t.Error("the normal form shares memory with the original")
	}
}

// TestExporterACL_HasNoClustersetURL holds that a rule is refused that could never count: export
// rules decide what is exported under the binding clusterset.
func TestExporterACL_HasNoClustersetURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"tcp://hello.demo.a:42", "service://hello.demo.a"} {
		_, exporter := account.NormaliseExporterACL([]string{"export:*", "bind:*", "bind:" + url})
		_, agent := account.NormaliseACL([]string{"bind:" + url})
		for _, err := range []error{exporter, agent} {
			if err == nil || !strings.Contains(account.FirstRule(err), "could never match") {
				t.Errorf("%s: %v", url, err)
			}
		}
	}
}

func TestEndpointURL_OfExportHasNoPort(t *testing.T) {
	t.Parallel()
	u := account.ServiceExportURL("hello", "demo", "a")
	if got := fmt.Sprint(u, " ", u.HostPort(), " ", u.ClusterID()); got != "service://hello.demo.a hello.demo.a a" {
		t.Error(got)
	}
	u = account.ExportedPortURL("hello", "demo", "a", 42)
	if got := fmt.Sprint(u, " ", u.HostPort(), " ", u.ClusterID()); got != "tcp://hello.demo.a:42 hello.demo.a:42 a" {
		t.Error(got)
	}
}

// FuzzServiceExport: what is accepted Kubernetes accepts, too, as the fields of a Service.
func FuzzServiceExport(f *testing.F) {
	f.Add("tcp", "kubernetes.io/h2c", "example.com/a", "b", "Example.com/a")
	f.Add("", "a/b/c", "-", " ", "é")
	f.Add("a-", "a..b/c", "a.b/", "_a", "/a")
	f.Fuzz(func(t *testing.T, port, application, label, value, annotation string) {
		export := &account.ServiceExport{Type: account.ExportClusterSetIP, SessionAffinity: "None",
			Ports:  []account.ServiceExportPort{{Name: port, Protocol: "TCP", Port: 1, AppProtocol: application}},
			Labels: map[string]string{label: value}, Annotations: map[string]string{annotation: value}}
		var problems []string
		if port != "" {
			problems = append(problems, validation.IsDNS1123Label(port)...)
		}
		if application != "" {
			problems = append(problems, validation.IsQualifiedName(application)...)
		}
		problems = append(problems, validation.IsQualifiedName(label)...)
		problems = append(problems, validation.IsValidLabelValue(value)...)
		problems = append(problems, validation.IsQualifiedName(strings.ToLower(annotation))...)
		if err := recordOf(export).Validate(); (err == nil) != (len(problems) == 0) {
			t.Fatalf("%+v: %v; Kubernetes: %v", export, err, problems)
		}
	})
}
