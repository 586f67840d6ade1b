// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newPod makes a running pod on the node 192.0.2.1.
func newPod(name string, ips ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: name}}
	p.Spec.ServiceAccountName = "sa-" + name
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "192.0.2.1"}
	for i, ip := range ips {
		if i == 0 {
			p.Status.PodIP = ip
		}
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

// who returns the name of the pod that has the address now, or "".
func (t *table) who(ip string) string {
	k, _, _ := t.lookup(canonical(netip.MustParseAddr(ip)))
	return k.name
}

// model is the simplest computation of an address's pod.
func model(pods map[string]*corev1.Pod, ip string) string {
	var holders []*corev1.Pod
	for _, p := range pods {
		if p.Status.HostIP == ip {
			return ""
		}
		for _, own := range p.Status.PodIPs {
			if own.IP == ip && !p.Spec.HostNetwork {
				holders = append(holders, p)
			}
		}
	}
	if len(holders) != 1 || holders[0].DeletionTimestamp != nil {
		return ""
	}
	return holders[0].Name
}

var modelIPs = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "192.0.2.1", "192.0.2.2"}

// play performs the steps that the bytes encode, two for each, and compares after each.
func play(t *testing.T, steps []byte) {
	t.Helper()
	table, pods := newTable(nil), map[string]*corev1.Pod{}
	table.markAlive()
	for i := 0; i+1 < len(steps); i += 2 {
		what, how := steps[i], steps[i+1]
		name := fmt.Sprintf("p%d", what%5)
		p := newPod(name, modelIPs[how%4])
		if how&0x10 != 0 {
			p = newPod(name, modelIPs[how%3], "fd00::1")
		}
		p.Status.HostIP = modelIPs[4+how>>7]
		now := metav1.Now()
		switch what / 5 % 8 {
		case 0:
			delete(pods, name)
			table.remove(p)
		case 1:
			p.Status.Phase = []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}[how%2]
			delete(pods, name)
			table.set(p)
		case 2:
			p.Spec.HostNetwork = true
			p.Status.PodIP, p.Status.PodIPs = p.Status.HostIP, []corev1.PodIP{{IP: p.Status.HostIP}}
			pods[name] = p
			table.set(p)
		case 3:
			p.DeletionTimestamp = &now
			pods[name] = p
			table.set(p)
		case 4: // not started yet
			p.Status.PodIP, p.Status.PodIPs = "", nil
			pods[name] = p
			table.set(p)
		case 5: // the watch broke: everything is listed anew
			list := map[key]pod{}
			for _, p := range pods {
				k, e := table.newEntry(p)
				list[k] = *e
			}
			table.replace(list)
		default:
			pods[name] = p
			table.set(p)
		}
		for _, ip := range modelIPs {
			if got, want := table.who(ip), model(pods, ip); got != want {
				t.Fatalf("after step %d of %x: %s is %q, want %q", i/2, steps, ip, got, want)
			}
		}
	}
	for _, p := range pods {
		table.remove(p)
	}
	if len(table.pods)+len(table.byIP)+len(table.nodeIPs) > 0 {
		t.Fatalf("left behind: %+v", table)
	}
}

func TestTable_AddressesAreCorrectOrUnknown(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		steps := make([]byte, 200)
		for i := range steps {
			steps[i] = byte(random.Uint32())
		}
		play(t, steps)
	}
}

func FuzzAddressesAreRightOrUnknown(f *testing.F) {
	f.Add([]byte{30, 0, 31, 0, 0, 0, 15, 0, 30, 0x10, 25, 0, 10, 0x80})
	f.Fuzz(play)
}

func TestTable_CanonicalAddresses(t *testing.T) {
	t.Parallel()
	table := newTable(nil)
	table.markAlive()
	table.set(newPod("a", "10.0.0.1", "fd00::1"))
	for _, ip := range []string{"10.0.0.1", "::ffff:10.0.0.1", "fd00::1", "fd00:0:0::0001", "fd00::1%eth0"} {
		if got := table.who(ip); got != "a" {
			t.Errorf("%s: %q", ip, got)
		}
	}
}

// BenchmarkTable_Memory10000Pods measures the table without labels, with those of Deployments, which
// three pods share, and with those of StatefulSets, of which each pod has its own.
func BenchmarkTable_Memory10000Pods(b *testing.B) {
	for _, c := range []struct {
		name   string
		labels func(i int) map[string]string
	}{
		{"WithoutLabels", func(int) map[string]string { return nil }},
		{"Deployments", func(i int) map[string]string {
			name := fmt.Sprintf("deployment-%d", i/3)
			return map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/instance": name,
				"app.kubernetes.io/component": "api", "team": "shop", "pod-template-hash": "7d4b9c6f5"}
		}},
		{"StatefulSets", func(i int) map[string]string {
			return map[string]string{"app.kubernetes.io/name": "db", "app.kubernetes.io/instance": "db", "team": "shop",
				"statefulset.kubernetes.io/pod-name": fmt.Sprintf("db-%d", i),
				"apps.kubernetes.io/pod-index":       fmt.Sprint(i), "controller-revision-hash": "db-7d4b9c6f5"}
		}},
	} {
		b.Run(c.name, func(b *testing.B) { measureTable(b, c.labels) })
	}
}

func measureTable(b *testing.B, labels func(i int) map[string]string) {
	b.Helper()
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const pods = 10_000
	for b.Loop() {
		before := heap()
		table := newTable(nil)
		for i := range pods {
			p := newPod(fmt.Sprintf("deployment-%d-7d4b9c6f5-x2k%d", i/3, i%3),
				fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), fmt.Sprintf("fd00::%x", i))
			p.Namespace, p.Spec.ServiceAccountName, p.Status.HostIP = fmt.Sprintf("team-%d", i%100),
				fmt.Sprintf("account-%d", i%300), fmt.Sprintf("192.0.2.%d", i%200)
			p.Labels = labels(i)
			table.set(p)
		}
		b.ReportMetric(float64(heap()-before), "B/10000-pods")
		runtime.KeepAlive(table)
	}
}

// largePods are pods with annotations, containers and managed fields as clusters with sidecars have
// them, about 6 KB each.
func largePods(n int) *corev1.PodList {
	list := &corev1.PodList{}
	for i := range n {
		ip := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		p := newPod(fmt.Sprintf("deployment-%d-7d4b9c6f5-x2k%d", i/3, i%3), ip)
		p.Namespace, p.Spec.ServiceAccountName = fmt.Sprintf("team-%d", i%100), fmt.Sprintf("account-%d", i%300)
		p.Annotations = map[string]string{"example.com/configuration": strings.Repeat("x", 2600)}
		managed := metav1.NewFieldsV1(strings.Repeat("f", 2000))
		p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", FieldsV1: managed}}
		for c := range 4 {
			args := strings.Fields(strings.Repeat("argument ", 20))
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint(c), Args: args})
		}
		list.Items = append(list.Items, *p)
	}
	return list
}

// TestTable_KeepsLittle counts what is kept of a pod, whose strings are the API's. It runs beside no
// other test, as it measures the heap.
func TestTable_KeepsLittle(t *testing.T) {
	const pods, most = 4000, 800 // bytes of a pod
	encoded, err := largePods(pods).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var m runtime.MemStats
	live := func() uint64 {
		runtime.GC()
		runtime.GC() // what was pooled goes with the second
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, table := live(), newTable(nil)
	func() {
		list, entries := new(corev1.PodList), map[key]pod{}
		if err := list.Unmarshal(encoded); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			k, e := table.newEntry(&list.Items[i])
			entries[k] = *e
		}
		table.replace(entries)
	}() // nothing of the list is reachable any more
	if kept := (live() - before) / pods; kept > most {
		t.Errorf("%d bytes a pod are kept, want at most %d", kept, most)
	} else {
		t.Logf("%d bytes a pod are kept, of %d", kept, len(encoded)/pods)
	}
	runtime.KeepAlive([]any{table, encoded})
}
