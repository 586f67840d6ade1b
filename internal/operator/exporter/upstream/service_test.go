// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"net"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
)

func describe(r Ref) string {
	return r.Scheme + " " + r.Service.String() + " " + strconv.Itoa(int(r.Port))
}

func hostPort(r Ref) string { return net.JoinHostPort(r.Host(), strconv.Itoa(int(r.Port))) }

// apiRef is port 80 of Service demo/api.
var apiRef = Ref{Scheme: "http", Service: types.NamespacedName{Namespace: "demo", Name: "api"}, Port: 80}

func port(name string, number int32, protocol corev1.Protocol) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, Protocol: protocol, TargetPort: intstr.FromString("http")}
}

func TestResolve_FindsPortOrNamesProblem(t *testing.T) {
	t.Parallel()
	const tcp, udp = corev1.ProtocolTCP, corev1.ProtocolUDP
	for name, tt := range map[string]struct {
		spec     *corev1.ServiceSpec
		portName string
		reason   string
		message  string
	}{
		"the only port": {&corev1.ServiceSpec{Ports: []corev1.ServicePort{port("", 80, tcp)}}, "", "", ""},
		"a port by its name": {
			&corev1.ServiceSpec{Ports: []corev1.ServicePort{port("m", 9, tcp), port("web", 80, tcp)}}, "web", "", ""},
		"no protocol": {&corev1.ServiceSpec{Ports: []corev1.ServicePort{port("web", 80, "")}}, "web", "", ""},
		"headless": {&corev1.ServiceSpec{ClusterIP: "None",
			Ports: []corev1.ServicePort{port("web", 80, tcp)}}, "web", "", ""},
		"TCP beside UDP": {&corev1.ServiceSpec{Ports: []corev1.ServicePort{port("u", 80, udp), port("t", 80, tcp)}},
			"t", "", ""},
		"no Service": {nil, "", v1alpha1.ReasonUpstreamNotFound, "Service demo/api does not exist"},
		"ExternalName": {&corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com",
			Ports: []corev1.ServicePort{port("", 80, tcp)}}, "", v1alpha1.ReasonUnsupportedService, "ExternalName"},
		"no ports": {&corev1.ServiceSpec{ClusterIP: "None"}, "", v1alpha1.ReasonUnsupportedService, "no ports"},
		"UDP only": {&corev1.ServiceSpec{Ports: []corev1.ServicePort{port("", 80, udp)}}, "",
			v1alpha1.ReasonUnsupportedService, "no TCP port"},
		"another port": {&corev1.ServiceSpec{Ports: []corev1.ServicePort{port("a", 8080, tcp), port("b", 9090, tcp)}},
			"", v1alpha1.ReasonPortNotFound, "no TCP port 80; it has 8080, 9090"},
	} {
		var service *corev1.Service
		if tt.spec != nil {
			service = &corev1.Service{Spec: *tt.spec}
		}
		target, problem := apiRef.Resolve(service)
		switch {
		case tt.reason == "" && (problem != nil || target.PortName != tt.portName):
			t.Errorf("%s: port %q, %v", name, target.PortName, problem)
		case tt.reason != "" && (problem == nil || problem.Reason != tt.reason ||
			!strings.Contains(problem.Message, tt.message)):
			t.Errorf("%s: %+v, want %s with %q", name, problem, tt.reason, tt.message)
		}
	}
}
