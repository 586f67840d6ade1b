// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterset_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
)

var start = time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC)

// port returns a port without an application protocol.
func port(name string, number int32, protocol string) account.ServiceExportPort {
	return account.ServiceExportPort{Name: name, Protocol: protocol, Port: number}
}

// export returns that of the n-th cluster (a, b, ...) which exported the Service n-th.
func export(n int, change func(*account.ServiceExport), ports ...account.ServiceExportPort) clusterset.Export {
	id := string(rune('a' + n))
	e := clusterset.Export{ID: "ep-" + id, ClusterUID: "uid-" + id, ClusterID: id, Namespace: "demo", Name: "hello",
		CreatedAt: start.Add(time.Duration(n) * time.Second), Spec: account.ServiceExport{
			Type: account.ExportClusterSetIP, Ports: ports, SessionAffinity: "None", InternalTrafficPolicy: "Cluster"}}
	if change != nil {
		change(&e.Spec)
	}
	return e
}

func TestMerge_Ports(t *testing.T) {
	t.Parallel()
	tcp, udp, stcp := port("tcp", 42, "TCP"), port("udp", 42, "UDP"), port("stcp", 142, "SCTP")
	web := account.ServiceExportPort{Name: "web", Protocol: "TCP", Port: 80, AppProtocol: "http"}
	type ports = []account.ServiceExportPort
	headless := func(s *account.ServiceExport) { s.Type = account.ExportHeadless }
	for _, c := range []struct {
		name    string
		exports []clusterset.Export // oldest first
		union   ports
		served  []ports // of each export
	}{
		{"one cluster", []clusterset.Export{export(0, nil, tcp, udp)}, ports{tcp, udp}, []ports{{tcp, udp}}},
		{"no ports", []clusterset.Export{export(0, nil)}, nil, []ports{nil}},
		{"union", []clusterset.Export{export(0, nil, tcp, udp), export(1, nil, tcp, stcp)},
			ports{tcp, udp, stcp}, []ports{{tcp, udp}, {tcp, stcp}}},
		{"same name, other number", []clusterset.Export{export(0, nil, tcp, udp),
			export(1, nil, port("tcp", 43, "TCP"))},
			ports{tcp, udp}, []ports{{tcp, udp}, nil}},
		{"same name, other protocol", []clusterset.Export{export(0, nil, tcp), export(1, nil, port("tcp", 42, "SCTP"))},
			ports{tcp}, []ports{{tcp}, nil}},
		{"same number, other name", []clusterset.Export{export(0, nil, tcp),
			export(1, nil, port("x", 42, "TCP"), stcp)},
			ports{tcp, stcp}, []ports{{tcp}, {stcp}}},
		{"port of another number under another name", []clusterset.Export{export(0, nil, tcp, udp),
			export(1, nil, port("tcp2", 4242, "TCP"))},
			ports{tcp, udp, port("tcp2", 4242, "TCP")}, []ports{{tcp, udp}, {port("tcp2", 4242, "TCP")}}},
		{"a port that is left out takes no place", []clusterset.Export{export(0, nil, tcp),
			export(1, nil, port("tcp", 43, "TCP")), export(2, nil, port("x", 43, "TCP"))},
			ports{tcp, port("x", 43, "TCP")}, []ports{{tcp}, nil, {port("x", 43, "TCP")}}},
		{"the oldest has no port name",
			[]clusterset.Export{export(0, nil, port("", 80, "TCP")), export(1, nil, web, tcp)},
			ports{port("", 80, "TCP")}, []ports{{port("", 80, "TCP")}, nil}},
		{"a later one has no port name", []clusterset.Export{export(0, nil, web), export(1, nil, port("", 81, "TCP"))},
			ports{web}, []ports{{web}, nil}},
		{"application protocol", []clusterset.Export{export(0, nil, web), export(1, nil, port("web", 80, "TCP"))},
			ports{web}, []ports{{web}, {web}}},
		{"headless beside ClusterSetIP", []clusterset.Export{export(0, nil, tcp), export(1, headless, tcp, stcp),
			export(2, nil, tcp, port("stcp", 143, "SCTP"))},
			ports{tcp, port("stcp", 143, "SCTP")}, []ports{{tcp}, nil, {tcp, port("stcp", 143, "SCTP")}}},
		{"ClusterSetIP beside headless", []clusterset.Export{export(0, headless, tcp), export(1, nil, tcp, stcp)},
			ports{tcp}, []ports{{tcp}, nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			i := clusterset.Merge(c.exports)
			if d := cmp.Diff(c.union, i.Spec.Ports); d != "" {
				t.Errorf("union: %s", d)
			}
			for n, e := range c.exports {
				if d := cmp.Diff(c.served[n], i.Ports(e.ClusterID)); d != "" {
					t.Errorf("ports of %s: %s", e.ClusterID, d)
				}
			}
			if got := i.Ports("z"); got != nil {
				t.Errorf("ports of a cluster that exports nothing: %v", got)
			}
		})
	}
}

// Everything but the ports is the oldest export's, by the time at the service, then by id.
func TestMerge_OldestTakesPrecedence(t *testing.T) {
	t.Parallel()
	seconds := int32(10)
	oldest := export(0, func(s *account.ServiceExport) {
		s.Type, s.SessionAffinity, s.SessionAffinitySeconds = account.ExportHeadless, "ClientIP", &seconds
		s.InternalTrafficPolicy, s.TrafficDistribution, s.IPFamilies = "Local", "PreferClose", []string{"IPv6", "IPv4"}
		s.Labels, s.Annotations = map[string]string{"tier": "gold"}, map[string]string{"note": "first"}
	})
	younger := export(1, func(s *account.ServiceExport) {
		s.Ready = true
		s.Labels = map[string]string{"team": "b"}
	})
	younger.ID = "ep-0"
	i := clusterset.Merge([]clusterset.Export{younger, oldest})
	want := oldest.Spec
	want.Ready = true // some export is
	if d := cmp.Diff(clusterset.Import{Namespace: "demo", Name: "hello", Spec: want,
		Exports: []clusterset.Export{oldest, younger}}, i); d != "" {
		t.Error(d)
	}

	younger.CreatedAt = oldest.CreatedAt
	if i = clusterset.Merge([]clusterset.Export{oldest, younger}); i.Spec.Type != account.ExportClusterSetIP {
		t.Errorf("of two exports of one moment, the smaller id counts; got the type of %s", i.Exports[0].ID)
	}
}

func TestMerge_CountsAClusterOnce(t *testing.T) {
	t.Parallel()
	first, again, other := export(0, nil), export(1, nil), export(2, nil)
	again.ClusterID = first.ClusterID
	i := clusterset.Merge([]clusterset.Export{other, again, first})
	if d := cmp.Diff([]clusterset.Export{first, other}, i.Exports); d != "" {
		t.Error(d)
	}
}

func TestExportOf(t *testing.T) {
	t.Parallel()
	record := func(change func(*account.Endpoint)) *account.Endpoint {
		e := &account.Endpoint{ID: "ep-a", Type: account.TypeCloud, Bindings: []string{account.BindingClusterset},
			URL: "service://hello.demo.a", CreatedAt: start, ServiceExport: &account.ServiceExport{Ready: true},
			Owner: &account.Owner{Cluster: "uid-a", Kind: account.KindServiceExport, Namespace: "demo", Name: "hello"}}
		if change != nil {
			change(e)
		}
		return e
	}
	got, ok := clusterset.ExportOf(record(nil))
	want := clusterset.Export{ID: "ep-a", ClusterUID: "uid-a", ClusterID: "a", Namespace: "demo", Name: "hello",
		CreatedAt: start, Spec: account.ServiceExport{Ready: true}}
	if d := cmp.Diff(want, got); d != "" || !ok {
		t.Errorf("ok = %v: %s", ok, d)
	}
	for name, change := range map[string]func(*account.Endpoint){
		"no export":       func(e *account.Endpoint) { e.ServiceExport = nil },
		"a carried port":  func(e *account.Endpoint) { e.Type = account.TypeAgent },
		"other binding":   func(e *account.Endpoint) { e.Bindings = []string{account.BindingInternal} },
		"no binding":      func(e *account.Endpoint) { e.Bindings = nil },
		"no owner":        func(e *account.Endpoint) { e.Owner = nil },
		"other kind":      func(e *account.Endpoint) { e.Owner.Kind = account.KindCloudEndpoint },
		"other namespace": func(e *account.Endpoint) { e.Owner.Namespace = "prod" },
		"other name":      func(e *account.Endpoint) { e.Owner.Name = "hell" },
		"a port's URL":    func(e *account.Endpoint) { e.URL = "tcp://hello.demo.a:42" },
		"no cluster":      func(e *account.Endpoint) { e.URL = "service://hello.demo" },
		"no URL":          func(e *account.Endpoint) { e.URL = "" },
	} {
		if got, ok := clusterset.ExportOf(record(change)); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// permutations calls f with every order of exports.
func permutations(exports []clusterset.Export, f func([]clusterset.Export)) {
	var place func(done, left []clusterset.Export)
	place = func(done, left []clusterset.Export) {
		if len(left) == 0 {
			f(slices.Clone(done))
		}
		for n := range left {
			place(append(slices.Clone(done), left[n]), slices.Delete(slices.Clone(left), n, n+1))
		}
	}
	place(nil, exports)
}

// Of any exports, the import is the same in any order, is valid as a Service, and a younger export
// takes nothing from older ones.
func TestMerge_Properties(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		exports := randomExports(seed)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { checkMerge(t, exports) })
	}
}
