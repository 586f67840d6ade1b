// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sprotobuf "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/fairlead-dev/fairlead/internal/endpointaccess"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/caller"
	"github.com/fairlead-dev/fairlead/internal/operator/forwarder/podidentity"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

const (
	benchRules  = 1_000
	benchPods   = 10_000
	benchConns  = 400 // of each variant in a round
	benchRounds = 21
	accessGoal  = 1.05 // of the CPU time of a connection without rules
)

// BenchmarkAccess compares the CPU time of setting up a connection, in one process that is its
// client, the forwarder and the edge: with pod identity alone, without an EndpointAccess, and with
// 1,000 of them in a cluster of 10,000 pods, where one decides. The variants take turns; medians of
// the rounds are compared.
func BenchmarkAccess(b *testing.B) {
	pods := benchmarkPods(b)
	e := startEdge(b, holdOpen)
	empty := newFakeRules(newSnapshot(endpointaccess.Compile(nil, endpointaccess.Allow), nil))
	variants := []string{"without", "0-rules", "1000-rules"}
	forwarders := map[string]*runningForwarder{
		"without":    benchmarkForwarder(b, e, pods, nil),
		"0-rules":    benchmarkForwarder(b, e, pods, empty),
		"1000-rules": benchmarkForwarder(b, e, pods, newFakeRules(benchmarkRules())),
	}
	for b.Loop() {
		cost := map[string][]float64{}
		for round := range benchRounds {
			for i := range variants {
				v := variants[(round+i)%len(variants)]
				cost[v] = append(cost[v], connectMany(b, e, forwarders[v]))
			}
		}
		median := map[string]float64{}
		for _, v := range variants {
			slices.Sort(cost[v])
			median[v] = cost[v][benchRounds/2]
			b.ReportMetric(median[v], v+"-us/conn")
		}
		for _, v := range variants[1:] {
			ratio := median[v] / median["without"]
			b.ReportMetric(ratio, v+"/without")
			if ratio > accessGoal {
				b.Errorf("a connection costs %.3f of one without access control, want at most %v", ratio, accessGoal)
			}
		}
	}
	b.ReportMetric(0, "ns/op")
}

// benchmarkRules restrict 1,000 endpoints of ten namespaces, one of them db.demo, to certain pods.
func benchmarkRules() *caller.Snapshot {
	var policies []endpointaccess.Policy
	namespaces := map[string]map[string]string{"demo": {"team": "shop"}}
	for i := range benchRules {
		p := endpointaccess.Policy{Namespace: fmt.Sprintf("team-%d", i%10), Name: fmt.Sprintf("p%d", i),
			Spec: endpointaccess.Spec{Endpoints: []string{fmt.Sprintf("api-%d", i)}, From: labelled.From}}
		if i%10 == 0 {
			p.Namespace = "demo"
		}
		policies = append(policies, p)
		namespaces[p.Namespace] = map[string]string{"team": "shop"}
	}
	policies[0].Spec.Endpoints = []string{"db"}
	return newSnapshot(endpointaccess.Compile(policies, endpointaccess.Allow), namespaces)
}

// podAddress is the loopback address of a pod, from which a client can connect.
func podAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, byte(1 + i>>16), byte(i >> 8), byte(i)})
}

// benchmarkPods returns the pods of a cluster whose API server is an HTTP server here.
func benchmarkPods(b *testing.B) *podidentity.Pods {
	b.Helper()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range benchPods {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: fmt.Sprintf("web-%d", i),
			Labels: map[string]string{"app": "web", "app.kubernetes.io/name": "web", "pod-template-hash": "7d4b9c6f5",
				"statefulset.kubernetes.io/pod-name": fmt.Sprintf("web-%d", i)}}}
		p.Spec.ServiceAccountName = "default"
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "192.0.2.1", PodIP: podAddress(i).String()}
		list.Items = append(list.Items, p)
	}
	var encoded bytes.Buffer
	if err := k8sprotobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(list, &encoded); err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		switch {
		case r.FormValue("watch") != "":
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(4 * time.Second):
			case <-r.Context().Done():
			}
		default:
			_, _ = w.Write(encoded.Bytes())
		}
	}))
	pods, err := podidentity.New(&rest.Config{Host: server.URL}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); pods.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done; server.CloseClientConnections(); server.Close() })
	wait.Until(b, "the pods", func() bool { return pods.Current(podAddress(benchPods-1)) != nil })
	return pods
}

func benchmarkForwarder(b *testing.B, e *fakeEdge, pods Pods, rules *fakeRules) *runningForwarder {
	b.Helper()
	r := start(b, e, shortTiming(), func(o *Options) {
		o.TLS, o.Pods = &tls.Config{RootCAs: e.roots}, pods
		if rules != nil {
			o.Access = rules
		}
	})
	r.source.update(testObjects())
	wait.Receive(b, "a session", r.edge.connectedOnce)
	return r
}

// connectMany sets up connections from as many pods, one after the other, and returns the CPU time
// of one in microseconds.
func connectMany(b *testing.B, e *fakeEdge, r *runningForwarder) float64 {
	b.Helper()
	begun := processTime(b)
	for i := range benchConns {
		from := &net.TCPAddr{IP: podAddress(i * benchPods / benchConns).AsSlice()}
		c, err := (&net.Dialer{LocalAddr: from}).DialContext(b.Context(), "tcp", r.addr(15432))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			b.Fatal(err)
		}
		if pod := (<-e.streams).Pod; pod == nil {
			b.Fatal("the pod is not known")
		}
		_ = c.Close()
	}
	return float64((processTime(b) - begun).Microseconds()) / benchConns
}

// processTime returns the CPU time that the process has taken.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
