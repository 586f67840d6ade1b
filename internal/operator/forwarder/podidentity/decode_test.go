// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package podidentity

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	k8sprotobuf "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
)

// encode returns the API server's response for an object.
func encode(t testing.TB, object k8sruntime.Object) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := k8sprotobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// frame returns the API server's frame for an event.
func frame(t testing.TB, kind watch.EventType, object k8sruntime.Object) []byte {
	t.Helper()
	event := metav1.WatchEvent{Type: string(kind), Object: k8sruntime.RawExtension{Raw: encode(t, object)}}
	message, err := event.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
}

// read returns the fields that a decoder must read of a pod.
func read(p *corev1.Pod, wanted Annotations) *corev1.Pod {
	q := &corev1.Pod{}
	q.Namespace, q.Name, q.ResourceVersion = p.Namespace, p.Name, p.ResourceVersion
	if p.DeletionTimestamp != nil {
		q.DeletionTimestamp = &metav1.Time{}
	}
	q.Labels = p.Labels
	if all := wanted.selectFrom(p); len(all) > 0 {
		q.Annotations = all
	}
	q.Spec.ServiceAccountName, q.Spec.HostNetwork = p.Spec.ServiceAccountName, p.Spec.HostNetwork
	q.Status = corev1.PodStatus{
		Phase: p.Status.Phase, HostIP: p.Status.HostIP, HostIPs: p.Status.HostIPs,
		PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs,
	}
	return q
}

// Pods with any content are read as Kubernetes's own decoder reads them, from lists and from
// watches.
func TestDecoder_ReadsKubernetesEncoding(t *testing.T) {
	t.Parallel()
	filler := randfill.NewWithSeed(1).NilChance(.3).NumElements(0, 4).MaxDepth(20).Funcs(
		func(v *metav1.FieldsV1, _ randfill.Continue) { v.SetRawString("{}") },
		func(v *k8sruntime.RawExtension, _ randfill.Continue) { *v = k8sruntime.RawExtension{} },
	)
	wanted := Annotations{"team", "example.com/*"}
	for range 50 {
		list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "next"}}
		var want []*corev1.Pod
		for range rand.IntN(5) {
			p := corev1.Pod{}
			filler.Fill(&p)
			p.Annotations = map[string]string{"team": "red", "secret": strings.Repeat("s", 1000), "example.com/a": ""}
			list.Items = append(list.Items, p)
			want = append(want, read(&p, wanted))
		}
		d := decoder{selected: wanted}
		var got []*corev1.Pod
		meta, err := d.list(bytes.NewReader(encode(t, list)), func(p *corev1.Pod) { got = append(got, p.DeepCopy()) })
		diff := cmp.Diff(want, got, cmpopts.EquateEmpty())
		if diff += cmp.Diff(list.ListMeta, meta); diff != "" || err != nil {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
		for i := range list.Items {
			kind, p, status, err := d.event(bytes.NewReader(frame(t, watch.Modified, &list.Items[i])))
			diff := cmp.Diff(want[i], p, cmpopts.EquateEmpty())
			if diff != "" || err != nil || kind != watch.Modified || status != nil {
				t.Fatalf("%s, %v, %v (-want +got):\n%s", kind, status, err, diff)
			}
		}
	}
}

func TestDecoder_ReadsErrorEvents(t *testing.T) {
	t.Parallel()
	gone := apierrors.NewResourceExpired("too old").Status()
	kind, _, status, err := new(decoder).event(bytes.NewReader(frame(t, watch.Error, &gone)))
	if err != nil || kind != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(status)) {
		t.Errorf("%s, %+v, %v", kind, status, err)
	}
}

// TestDecoder_RejectsTruncatedInput checks that truncated input is an error, not a shorter list,
// and that input of another format is no list.
func TestDecoder_RejectsTruncatedInput(t *testing.T) {
	t.Parallel()
	whole := encode(t, &corev1.PodList{Items: []corev1.Pod{*newPod("a", "10.0.0.1"), *newPod("b", "10.0.0.2")}})
	size := bytes.LastIndex(whole, []byte("sa-b")) // what follows is what the envelope says of the content
	for n := range size {
		if _, err := new(decoder).list(bytes.NewReader(whole[:n]), func(*corev1.Pod) {}); err == nil && n > 0 {
			t.Errorf("%d of %d bytes were taken for a list", n, len(whole))
		}
	}
	event := frame(t, watch.Added, newPod("a", "10.0.0.1"))
	for n := range event {
		_, _, _, err := new(decoder).event(bytes.NewReader(event[:n]))
		if err == nil || n == 0 && !errors.Is(err, io.EOF) {
			t.Errorf("%d of %d bytes of an event: %v", n, len(event), err)
		}
	}
	junk := []string{`{"kind":"PodList"}`, "k8s\x00{}", "k8s\x00\x12\xff\xff\xff\xff\x0f", "\xff\xff\xff\xffx"}
	for _, text := range junk {
		if _, err := new(decoder).list(strings.NewReader(text), func(*corev1.Pod) {}); err == nil {
			t.Errorf("%q was taken for a list", text)
		}
		if _, _, _, err := new(decoder).event(strings.NewReader(text)); err == nil {
			t.Errorf("%q was taken for an event", text)
		}
	}
}

func FuzzDecoder_NeverPanics(f *testing.F) {
	f.Add(encode(f, &corev1.PodList{Items: []corev1.Pod{*newPod("a", "10.0.0.1")}}))
	f.Add(frame(f, watch.Added, newPod("a", "10.0.0.1")))
	f.Fuzz(func(_ *testing.T, b []byte) {
		d := decoder{selected: Annotations{"a*"}}
		_, _ = d.list(bytes.NewReader(b), func(*corev1.Pod) {})
		_, _, _, _ = d.event(bytes.NewReader(b))
	})
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

// A pod costs what is kept of it and little more while it is read: garbage of a list, and of
// changes, would be most of the process's memory. This test runs beside no other, as it counts what
// the process allocates.
func TestDecoder_AllocatesLittle(t *testing.T) {
	const pods, perPod, kept = 4000, 1500, 800 // bytes
	page := encode(t, largePods(pods))
	event := frame(t, watch.Modified, &largePods(1).Items[0])
	var m runtime.MemStats
	measure := func() (allocated, live uint64) {
		runtime.GC()
		runtime.GC() // what was pooled goes with the second
		runtime.ReadMemStats(&m)
		return m.TotalAlloc, m.HeapAlloc
	}
	allocated, live := measure()
	d, table := decoder{}, newTable(nil)
	list := map[key]pod{}
	if _, err := d.list(bytes.NewReader(page), func(p *corev1.Pod) {
		k, e := table.newEntry(p)
		list[k] = *e
	}); err != nil || len(list) != pods {
		t.Fatalf("%d pods, %v", len(list), err)
	}
	table.replace(list)
	list = nil
	allocatedByList, liveAfter := measure()
	if all := (allocatedByList - allocated) / pods; all > perPod {
		t.Errorf("a list allocates %d bytes a pod, of %d; want at most %d", all, len(page)/pods, perPod)
	}
	if all := (liveAfter - live) / pods; all > kept {
		t.Errorf("%d bytes a pod are kept, want at most %d", all, kept)
	}
	for range pods {
		if _, p, _, err := d.event(bytes.NewReader(event)); err == nil {
			table.set(p)
		}
	}
	allocatedByEvents, _ := measure()
	if all := (allocatedByEvents - allocatedByList) / pods; all > perPod {
		t.Errorf("a change allocates %d bytes, of %d; want at most %d", all, len(event), perPod)
	}
	t.Logf("allocated %d bytes a pod by the list, %d by a change; %d kept",
		(allocatedByList-allocated)/pods, (allocatedByEvents-allocatedByList)/pods, (liveAfter-live)/pods)
	runtime.KeepAlive([]any{table, page, event})
}
