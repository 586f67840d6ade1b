// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterset_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
)

// choices are random, or a fuzzer's.
type choices func(n int) int

func randomExports(seed uint64) []clusterset.Export {
	r := rand.New(rand.NewPCG(seed, 1))
	return someExports(r.IntN)
}

// someExports returns one to four exports of few names, numbers and values, so that they collide.
func someExports(pick choices) []clusterset.Export {
	exports := make([]clusterset.Export, 1+pick(4))
	for n := range exports {
		e := export(pick(5), nil) // now and then, one cluster twice
		e.ID = string(rune('0'+pick(3))) + string(rune('0'+n))
		e.CreatedAt = start.Add(time.Duration(pick(3)) * time.Second)
		names := []string{"", "tcp", "udp", "web"}
		for range pick(4) {
			at := pick(len(names))
			e.Spec.Ports = append(e.Spec.Ports, account.ServiceExportPort{Name: names[at], Port: int32(1 + pick(3)),
				Protocol: []string{"TCP", "UDP", "SCTP"}[pick(3)], AppProtocol: []string{"", "http"}[pick(2)]})
			names = slices.Delete(names, at, at+1)
		}
		s := &e.Spec
		s.Type = []string{account.ExportClusterSetIP, account.ExportHeadless}[pick(2)]
		s.SessionAffinity = []string{"None", "ClientIP"}[pick(2)]
		if seconds := int32(pick(3)); seconds > 0 {
			s.SessionAffinitySeconds = &seconds
		}
		s.InternalTrafficPolicy = []string{"", "Cluster", "Local"}[pick(3)]
		s.TrafficDistribution = []string{"", "PreferClose"}[pick(2)]
		s.Labels = []map[string]string{nil, {}, {"a": ""}, {"a": "x"}}[pick(4)]
		s.Annotations = []map[string]string{nil, {}, {"b": strings.Repeat("é", 1000)}}[pick(3)]
		s.Ready = pick(2) == 1
		exports[n] = e
	}
	return exports
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte("any bytes are choices"))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkMerge(t, someExports(func(n int) int {
			if len(data) == 0 {
				return 0
			}
			choice := int(data[0]) % n
			data = data[1:]
			return choice
		}))
	})
}

func checkMerge(t *testing.T, exports []clusterset.Export) {
	t.Helper()
	want := clusterset.Merge(exports)
	reason, message := want.Conflict()
	permutations(exports, func(order []clusterset.Export) {
		got := clusterset.Merge(order)
		if !reflect.DeepEqual(want, got) {
			t.Fatalf("another order: %s", cmp.Diff(want, got))
		}
		if r, m := got.Conflict(); r != reason || m != message {
			t.Fatalf("another order: %s %q, not %s %q", r, m, reason, message)
		}
	})
	checkServable(t, &want)
	if (reason == "") != (message == "") || len(message) > 10<<10 || !utf8.ValidString(message) {
		t.Errorf("reason %q, message %q", reason, message)
	}
	if parts := strings.Split(reason, ","); !slices.IsSorted(parts) ||
		len(slices.Compact(slices.Clone(parts))) < len(parts) {
		t.Errorf("reasons %q: not sorted, or not each once", reason)
	}
	older := want.Exports[:len(want.Exports)-1]
	if len(older) == 0 {
		if reason != "" {
			t.Errorf("one export conflicts with itself: %s %s", reason, message)
		}
		return
	}
	checkYoungest(t, clusterset.Merge(older), &want)
}

// checkServable checks that the ports of an import are valid as a Service's, each served by a
// cluster.
func checkServable(t *testing.T, i *clusterset.Import) {
	t.Helper()
	served := map[account.ServiceExportPort]bool{}
	for n, e := range i.Exports {
		ports := i.Ports(e.ClusterID)
		for _, p := range ports {
			served[p] = true
			if !slices.Contains(i.Spec.Ports, p) {
				t.Errorf("%s serves %v, which the import does not have", e.ClusterID, p)
			}
		}
		if n == 0 && len(ports) != len(i.Spec.Ports) && len(i.Exports) == 1 {
			t.Errorf("the only cluster serves %v of %v", ports, i.Spec.Ports)
		}
		if e.Spec.Type != i.Spec.Type && len(ports) > 0 {
			t.Errorf("%s serves %v with another type", e.ClusterID, ports)
		}
	}
	for n, p := range i.Spec.Ports {
		if !served[p] {
			t.Errorf("no cluster serves %v", p)
		}
		if p.Name == "" && len(i.Spec.Ports) > 1 {
			t.Errorf("a port without a name is one of %v", i.Spec.Ports)
		}
		for _, q := range i.Spec.Ports[:n] {
			if p.Name == q.Name || p.Port == q.Port && p.Protocol == q.Protocol {
				t.Errorf("a Service cannot have both %v and %v", p, q)
			}
		}
	}
}

// checkYoungest checks what the youngest export changes of the import without it: it can add ports,
// and Ready.
func checkYoungest(t *testing.T, without clusterset.Import, with *clusterset.Import) {
	t.Helper()
	for _, e := range without.Exports {
		if d := cmp.Diff(without.Ports(e.ClusterID), with.Ports(e.ClusterID)); d != "" {
			t.Errorf("the youngest export changes the ports of %s: %s", e.ClusterID, d)
		}
	}
	if n := len(without.Spec.Ports); n > len(with.Spec.Ports) ||
		!slices.Equal(without.Spec.Ports, with.Spec.Ports[:n]) {
		t.Errorf("the youngest export changes the ports %v to %v", without.Spec.Ports, with.Spec.Ports)
	}
	a, b := without.Spec, with.Spec
	if a.Ready && !b.Ready {
		t.Error("the youngest export makes the import not ready")
	}
	a.Ports, b.Ports, a.Ready, b.Ready = nil, nil, false, false
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("the youngest export changes the import: %s", d)
	}
}
