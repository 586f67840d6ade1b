// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceexport

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
)

const (
	valid      = "Valid=True Valid"
	noConflict = "Conflict=False NoConflicts, "
)

var (
	udp  = corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}
	sctp = corev1.ServicePort{Name: "sig", Port: 42, Protocol: corev1.ProtocolSCTP}
)

// services are Services of all kinds, and what becomes of their exports.
var services = map[string]struct {
	export  string // name; "" = hello
	ports   []corev1.ServicePort
	change  func(*corev1.Service)
	want    string
	message string
	typ     string // of the record; "" = none
	bound   int
}{
	"TCP": {ports: []corev1.ServicePort{tcp("a", 42), tcp("b", 43)}, want: exportedWell,
		typ: "ClusterSetIP", bound: 2},
	"no protocol": {ports: []corev1.ServicePort{{Port: 42}}, want: exportedWell, typ: "ClusterSetIP", bound: 1},
	"UDP and SCTP": {ports: []corev1.ServicePort{udp, sctp}, typ: "ClusterSetIP",
		want:    noConflict + "Ready=True Exported, " + valid + ", fairlead.dev/Carried=False NotCarried",
		message: "no port is carried: udp/53 (dns) is listed, but only TCP is carried; sctp/42 (sig) is"},
	"one number, two protocols": {ports: []corev1.ServicePort{tcp("tcp", 42), sctp}, typ: "ClusterSetIP", bound: 1,
		want:    noConflict + "Ready=True Exported, " + valid + ", fairlead.dev/Carried=False PartlyCarried",
		message: "Carried: sctp/42 (sig) is listed"},
	"no ports": {change: func(s *corev1.Service) {}, typ: "ClusterSetIP",
		want:    noConflict + "Ready=True Exported, " + valid + ", fairlead.dev/Carried=False NoPorts",
		message: "the Service has no ports"},
	"headless": {ports: []corev1.ServicePort{tcp("a", 42)}, typ: "Headless", bound: 1, // of its pod
		change: func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }, want: exportedWell},
	"headless, no selector": {ports: []corev1.ServicePort{tcp("a", 42)}, typ: "Headless",
		change:  func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.Selector = corev1.ClusterIPNone, nil },
		want:    noConflict + "Ready=True Exported, " + valid + ", fairlead.dev/Carried=False EndpointsNotUsed",
		message: "no endpoint of the Service is used: Service demo/hello has no selector"},
	"ExternalName with ports": {ports: []corev1.ServicePort{tcp("a", 42)},
		change:  func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName },
		want:    "Ready=False Pending, Valid=False InvalidServiceType",
		message: "nothing is exported: Service demo/hello is of type ExternalName"},
	"none": {export: "other", want: "Ready=False Pending, Valid=False NoService",
		message: "there is no Service demo/other"},
	"no selector": {ports: []corev1.ServicePort{tcp("a", 42)}, typ: "ClusterSetIP", bound: 1,
		change:  func(s *corev1.Service) { s.Spec.Selector = nil },
		want:    noConflict + "Ready=True Exported, " + valid + ", fairlead.dev/Carried=False EndpointsNotUsed",
		message: "no endpoint of the Service is used: Service demo/hello has no selector"},
	"a name that begins with a digit": {export: "9hello", ports: []corev1.ServicePort{tcp("a", 42)},
		change:  func(s *corev1.Service) { s.Name = "9hello" },
		want:    noConflict + "Ready=False Failed, " + valid + ", fairlead.dev/Carried=True Carried",
		message: "the service begins with a letter"},
}

// TestReconcile_Services exports Services of all kinds.
func TestReconcile_Services(t *testing.T) {
	for name, tt := range services {
		t.Run(name, func(t *testing.T) {
			run(t, func(h *harness) {
				of := hello
				if tt.export != "" {
					of.Name = tt.export
				}
				if tt.ports != nil || tt.change != nil {
					s := h.service(types.NamespacedName{Namespace: "demo", Name: "hello"}, tt.ports...)
					if tt.change != nil {
						tt.change(s)
					}
					if s.Name != hello.Name {
						s.ResourceVersion = ""
						h.must(h.kube.Create(h.Context(), s))
					} else {
						h.must(h.kube.Update(h.Context(), s))
					}
				}
				h.export(of)
				h.expect(of, tt.want, tt.message)
				own := h.account.of(ownCluster, of)
				if len(own) > 0 != (tt.typ != "") || len(own) > 0 && own[0].ServiceExport.Type != tt.typ {
					t.Errorf("records %+v, want type %q", own, tt.typ)
				}
				if n := len(h.ports.urls(of)); n != tt.bound {
					t.Errorf("%d ports are bound: %v", n, h.ports.urls(of))
				}
			})
		})
	}
}

// TestReconcile_PodsThatShareAPort leaves one of two pods with the same PodPort out, the same in every
// replica: a connection must not reach the other one.
func TestReconcile_PodsThatShareAPort(t *testing.T) {
	run(t, func(h *harness) {
		s := h.service(hello, tcp("a", 42))
		s.Spec.ClusterIP = corev1.ClusterIPNone
		h.must(h.kube.Update(h.Context(), s))
		var slice discoveryv1.EndpointSlice
		h.must(h.kube.Get(h.Context(), hello, &slice))
		slice.Endpoints = nil
		for i, hostname := range []string{"db-524", "db-314", "db-1"} {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Hostname: &hostname,
				Addresses: []string{fmt.Sprintf("10.1.0.%d", i)}})
		}
		h.must(h.kube.Update(h.Context(), &slice))
		h.export(hello)
		h.expect(hello, noConflict+"Ready=True Exported, "+valid+", fairlead.dev/Carried=False PartlyCarried",
			"1 pods are left out")
		want := []string{"clusterset tcp://hello.demo.a:1275 -> db-314.hello.demo.svc:42",
			"clusterset tcp://hello.demo.a:55953 -> db-1.hello.demo.svc:42"}
		if got := h.ports.urls(hello); !slices.Equal(slices.Sorted(slices.Values(got)), want) {
			t.Errorf("bound %v, want %v", got, want)
		}
		pods := h.account.of(ownCluster, hello)[0].ServiceExport.Pods
		if len(pods) != 2 || pods[0].Hostname != "db-1" || pods[1].Hostname != "db-314" {
			t.Errorf("the record has the pods %v", pods)
		}
	})
}

// TestReconciler_SealsAllPortsOrNone holds that an export is sealed once a certificate that was mounted
// later names all of its ports, and that nothing of it is served before.
func TestReconciler_SealsAllPortsOrNone(t *testing.T) {
	run(t, func(h *harness) {
		h.service(hello, tcp("a", 42), tcp("b", 43))
		h.export(hello, func(o *v1beta1.ServiceExport) {
			o.Annotations = map[string]string{AnnotationSealed: "true"}
		})
		for named, missing := range map[string]string{"tcp://hello.demo.a:42": "43", "tcp://hello.demo.a:43": "42"} {
			h.ports.name(named)
			h.request(hello)
			h.expect(hello, strings.Replace(exportedWell, "True Exported", "False SealUnavailable", 1),
				"no certificate names tcp://hello.demo.a:"+missing)
			if h.ports.Serves(hello) || !h.ports.isWithheld(hello) {
				t.Errorf("serves %v", h.ports.urls(hello))
			}
		}
		h.ports.name("tcp://hello.demo.a:42", "tcp://hello.demo.a:43")
		time.Sleep(SealRecheck)
		h.settle()
		h.expect(hello, exportedWell)
		for port, e := range h.ports.served[hello] {
			if e.Seal == nil || e.Upstream.Scheme != "tcp" {
				t.Errorf("port %d: %+v", port, e)
			}
		}
	})
}
