// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/exporter/accountclient"
)

func TestReconcile_Exports(t *testing.T) {
	run(t, func(h *harness) {
		web, dns := tcp("web", 80), corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}
		web.AppProtocol = ptr.To("http")
		s := h.service(hello, web, dns)
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](10)}}
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		s.Spec.TrafficDistribution = ptr.To("PreferClose")
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
		h.must(h.kube.Update(h.Context(), s))
		o := h.export(hello, func(o *v1beta1.ServiceExport) {
			o.Spec.ExportedLabels, o.Spec.ExportedAnnotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
		})
		h.expect(hello, "Conflict=False NoConflicts, Ready=True Exported, Valid=True Valid, "+
			"fairlead.dev/Carried=False PartlyCarried", "udp/53 (dns) is listed, but only TCP is carried",
			"clusters of the account import hello.demo from this cluster, a")
		e := h.record(hello)
		if want := (account.ServiceExport{Type: account.ExportClusterSetIP, Ports: []account.ServiceExportPort{
			{Name: "web", Protocol: "TCP", Port: 80, AppProtocol: "http"}, {Name: "dns", Protocol: "UDP", Port: 53}},
			SessionAffinity: "ClientIP", SessionAffinitySeconds: ptr.To[int32](10), InternalTrafficPolicy: "Local",
			TrafficDistribution: "PreferClose", IPFamilies: []string{"IPv6", "IPv4"},
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Ready: true,
		}); !equality.Semantic.DeepEqual(*e.ServiceExport, want) {
			t.Errorf("exported %+v, want %+v", *e.ServiceExport, want)
		}
		want := account.Owner{Cluster: ownCluster, Kind: "ServiceExport", Namespace: "demo", Name: "hello",
			UID: string(o.UID)}
		if e.URL != "service://hello.demo.a" || *e.Owner != want || !slices.Equal(e.Bindings, []string{"clusterset"}) {
			t.Errorf("record %+v, owner %+v", e, e.Owner)
		}
		ports := h.ports.urls(hello)
		if !slices.Equal(ports, []string{"clusterset tcp://hello.demo.a:80 -> hello.demo.svc:80"}) {
			t.Errorf("ports %v", ports)
		}
		owner := h.ports.served[hello][80].Owner
		if owner == nil || owner.Kind != want.Kind || owner.Namespace != "demo" || owner.Name != "hello" ||
			owner.UID != string(o.UID) {
			t.Errorf("owner of the port %+v", owner)
		}
	})
}

// TestReconcile_FollowsService changes a Service that is exported.
func TestReconcile_FollowsService(t *testing.T) {
	run(t, func(h *harness) {
		s := h.service(hello, tcp("web", 80))
		h.export(hello)
		h.expect(hello, exportedWell)
		id := h.record(hello).ID
		h.expectCalls("POST service://hello.demo.a")
		s.Spec.Ports = append(s.Spec.Ports, tcp("more", 81))
		h.must(h.kube.Update(h.Context(), s))
		h.request(hello)
		h.expectCalls("PATCH " + id)
		if e := h.record(hello); len(e.ServiceExport.Ports) != 2 || len(h.ports.urls(hello)) != 2 {
			t.Errorf("ports %+v, bound %v", e.ServiceExport.Ports, h.ports.urls(hello))
		}
		s.Spec.Type = corev1.ServiceTypeExternalName
		h.must(h.kube.Update(h.Context(), s))
		h.request(hello)
		h.expectCalls("DELETE " + id)
		h.expect(hello, "Ready=False Pending, Valid=False InvalidServiceType")
		if h.ports.Serves(hello) {
			t.Error("the ports of an ExternalName Service are bound")
		}
		s.Spec.Type = corev1.ServiceTypeClusterIP
		h.must(h.kube.Update(h.Context(), s))
		h.request(hello)
		h.expectCalls("POST service://hello.demo.a")
		h.must(h.kube.Delete(h.Context(), s))
		h.request(hello)
		h.expect(hello, "Ready=False Pending, Valid=False NoService")
		if own := h.account.of(ownCluster, hello); len(own) > 0 || h.ports.Serves(hello) {
			t.Errorf("without the Service: %+v, bound %v", own, h.ports.urls(hello))
		}
	})
}

// TestReconcile_WritesOnDifference reconciles what is as it should be.
func TestReconcile_WritesOnDifference(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		h.export(hello)
		h.expect(hello, exportedWell)
		h.account.take()
		before := h.writes
		for range 3 {
			h.request(hello)
			time.Sleep(time.Hour)
		}
		h.expectCalls()
		if h.writes != before || before != 1 {
			t.Errorf("%d writes of the status, then %d", before, h.writes-before)
		}
		if n := len(h.events.Events); n != 1 {
			t.Errorf("%d events", n)
		}
	})
}

func TestReconcile_EndsWithObject(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		o := h.export(hello, func(o *v1beta1.ServiceExport) { o.Finalizers = []string{"example.com/slow"} })
		id := h.record(hello).ID
		h.account.take()
		h.must(h.kube.Delete(h.Context(), o)) // is being deleted
		h.request(hello)
		h.expectCalls("DELETE " + id)
		if h.ports.Serves(hello) {
			t.Error("the ports are bound")
		}
		h.must(h.kube.Get(h.Context(), hello, o))
		o.Finalizers = nil
		h.must(h.kube.Update(h.Context(), o))
		h.request(hello)
		h.expectCalls()

		again := h.export(hello)
		id = h.record(hello).ID
		h.must(h.kube.Delete(h.Context(), again))
		h.account.set(func(string, string) error { return account.Errorf(account.CodeUnreachable, "away") }, nil)
		h.request(hello)
		time.Sleep(time.Minute)
		if len(h.account.of(ownCluster, hello)) != 1 || h.ports.Serves(hello) {
			t.Error("while the account is away, the record is gone, or the ports are bound")
		}
		h.account.set(nil, nil)
		time.Sleep(accountclient.UnansweredRetry * 2)
		if own := h.account.of(ownCluster, hello); len(own) > 0 {
			t.Errorf("after the account's return: %+v of %s", own, id)
		}
	})
}

// TestReconcile_CacheThatLacksObjects: the API server itself must say that something is gone.
func TestReconcile_CacheThatLacksObjects(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		o := h.export(hello)
		h.account.take()
		for _, kind := range []string{"Service", "ServiceExport"} {
			h.locked(func() { h.stale = kind })
			h.request(hello)
			time.Sleep(time.Minute)
			h.expectCalls()
			h.expect(hello, exportedWell)
			if !h.ports.Serves(hello) {
				t.Errorf("a %s that the API server has is not served any more", kind)
			}
		}
		h.must(h.kube.Delete(h.Context(), o))
		time.Sleep(liveRetry)
		h.settle()
		if own := h.account.of(ownCluster, hello); len(own) > 0 || h.ports.Serves(hello) {
			t.Errorf("an object that is gone: %+v", own)
		}
	})
}

func TestReconcile_ReadyFallsLate(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		h.export(hello)
		expect := func(what string, ready bool, patches int) {
			t.Helper()
			h.settle()
			if got := h.record(hello).ServiceExport.Ready; got != ready {
				t.Errorf("%s: ready %v", what, got)
			}
			if n := len(h.account.take()); n != patches {
				t.Errorf("%s: %d calls", what, n)
			}
		}
		expect("ready", true, 1)
		h.setReady(hello, false)
		expect("just fallen", true, 0)
		time.Sleep(readyFallDelay - time.Millisecond)
		h.setReady(hello, true)
		time.Sleep(time.Minute)
		expect("back in time", true, 0)
		h.setReady(hello, false)
		time.Sleep(readyFallDelay - time.Millisecond)
		expect("not for long", true, 0)
		time.Sleep(time.Millisecond)
		expect("fallen", false, 1)
		h.setReady(hello, true)
		expect("risen", true, 1)
		h.expect(hello, exportedWell)
	})
}

func TestReconcile_NotReadyFromStart(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		h.setReady(hello, false)
		h.export(hello)
		if h.record(hello).ServiceExport.Ready {
			t.Error("a Service without ready endpoints is ready")
		}
		h.expect(hello, exportedWell) // which does not depend on endpoints
	})
}

// other returns the record of another cluster's export of demo/hello.
func other(change func(*account.ServiceExport)) account.Endpoint {
	s := &account.ServiceExport{Type: account.ExportClusterSetIP, SessionAffinity: "None",
		Ports: []account.ServiceExportPort{{Name: "web", Protocol: "TCP", Port: 80}}, Ready: true}
	if change != nil {
		change(s)
	}
	return account.Endpoint{URL: "service://hello.demo.b", Bindings: []string{account.BindingClusterset},
		ServiceExport: s, Owner: &account.Owner{Cluster: "uid-b", Kind: account.KindServiceExport, Namespace: "demo",
			Name: "hello", UID: "u-b"}}
}

func TestReconcile_Conflicts(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("web", 80))
		h.export(hello)
		h.expect(hello, exportedWell)
		const rest = ", Ready=True Exported, Valid=True Valid, fairlead.dev/Carried="
		e := h.account.add(other(func(s *account.ServiceExport) { s.Labels = map[string]string{"x": "y"} }))
		h.settle()
		h.expect(hello, "Conflict=True LabelsConflict"+rest+"True Carried", "cluster a is the oldest")
		h.account.Delete(e.ID)
		h.settle()
		h.expect(hello, exportedWell)
		h.account.add(other(nil))
		h.settle()
		h.expect(hello, exportedWell)
		if n := len(h.events.Events); n != 3 {
			t.Errorf("%d events", n)
		}
	})
}

// TestReconcile_OlderExportWins: this cluster's ports that the import does not have are not
// carried.
func TestReconcile_OlderExportWins(t *testing.T) {
	for name, tt := range map[string]struct {
		change           func(*account.ServiceExport)
		conflict, reason string
		part             string
	}{
		"port": {func(s *account.ServiceExport) { s.Ports[0].Port = 81 }, "PortConflict", "PartlyCarried",
			"tcp/80 (web) is not in the import"},
		"all ports": {func(s *account.ServiceExport) {
			s.Ports = []account.ServiceExportPort{{Name: "web", Protocol: "TCP", Port: 1},
				{Name: "more", Protocol: "TCP", Port: 2}}
		}, "PortConflict", "NotCarried", "no port is carried: tcp/80 (web) is not in the import"},
		"type": {func(s *account.ServiceExport) {
			s.Type = account.ExportHeadless
		}, "PortConflict,TypeConflict", "TypeConflict",
			"the import is of type Headless, as the oldest export, of cluster b"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				h.account.add(other(tt.change))
				time.Sleep(time.Second)
				h.service(hello, tcp("web", 80), tcp("more", 82))
				h.export(hello)
				h.expect(hello, "Conflict=True "+tt.conflict+", Ready=True Exported, Valid=True Valid, "+
					"fairlead.dev/Carried=False "+tt.reason, tt.part)
			})
		})
	}
}

func TestReconcile_OnlyLeaderWrites(t *testing.T) {
	run(t, func(h *harness) {
		h.locked(func() { h.follows = true })
		h.service(hello, tcp("web", 80))
		o := h.export(hello)
		h.expectCalls()
		h.expect(hello, "")
		if !h.ports.Serves(hello) {
			t.Error("a replica that does not lead has not bound the port")
		}
		h.locked(func() { h.follows = false })
		h.r.EnqueueAll()
		h.settle()
		h.expectCalls("POST service://hello.demo.a")
		h.locked(func() { h.follows = true })
		h.must(h.kube.Delete(h.Context(), o))
		h.request(hello)
		h.expectCalls()
		if h.ports.Serves(hello) {
			t.Error("the port of an object that is gone is bound")
		}
	})
}
