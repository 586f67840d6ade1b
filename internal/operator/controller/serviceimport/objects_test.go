// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceimport

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/clusterset"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/owned"
	"github.com/fairlead-dev/fairlead/internal/operator/kube/status"
)

var own = installation.Installation{Namespace: "fairlead", Release: "fairlead"}

func TestDerivedName(t *testing.T) {
	t.Parallel()
	// The name of other implementations, by which people find the Service.
	if got := DerivedName(types.NamespacedName{Namespace: "demo", Name: "hello"}); len(got) != 18 ||
		got != DerivedName(types.NamespacedName{Namespace: "demo", Name: "hello"}) ||
		got == DerivedName(types.NamespacedName{Namespace: "demo-hello"}) {
		t.Errorf("got %q", got)
	}
}

func TestNewImport_DropsWhatTheAPIServerWouldRefuse(t *testing.T) {
	t.Parallel()
	long := make([]byte, 64)
	for i := range long {
		long[i] = 'x'
	}
	i := clusterset.Import{Namespace: "demo", Name: "hello", Spec: account.ServiceExport{
		Type: account.ExportClusterSetIP, SessionAffinity: "None",
		Labels: map[string]string{"team": "a", "bad key": "x", "size": string(long), "a/b/c": "x",
			installation.Label: "theirs", "app.kubernetes.io/managed-by": "theirs"},
		Annotations: map[string]string{"Example.com/note": string(long), "": "x",
			installation.AnnotationPlace: "theirs", AnnotationDerivedService: "theirs"},
	}}
	s := newImport(own, &i, []metav1.OwnerReference{{Name: "anchor"}})
	if !own.Owns(s) || s.Labels["team"] != "a" || len(s.Labels) != 3 {
		t.Errorf("labels %v", s.Labels)
	}
	if s.Annotations[AnnotationDerivedService] != DerivedName(types.NamespacedName{Namespace: "demo", Name: "hello"}) ||
		s.Annotations["Example.com/note"] == "" || len(s.Annotations) != 5 {
		t.Errorf("annotations %v", s.Annotations)
	}
	if s.Spec.Ports == nil || s.Spec.SessionAffinityConfig != nil || s.Spec.InternalTrafficPolicy != nil ||
		s.Spec.TrafficDistribution != nil {
		t.Errorf("spec %+v", s.Spec)
	}
}

func TestLeavingPorts(t *testing.T) {
	t.Parallel()
	port := func(name string, number int32, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, Protocol: protocol}
	}
	for name, tt := range map[string]struct{ live, desired, want []corev1.ServicePort }{
		"one goes": {[]corev1.ServicePort{port("a", 1, "TCP"), port("b", 2, "TCP")},
			[]corev1.ServicePort{port("a", 1, "TCP")}, []corev1.ServicePort{port("b", 2, "TCP")}},
		"another number": {[]corev1.ServicePort{port("a", 1, "TCP")}, []corev1.ServicePort{port("a", 2, "TCP")}, nil},
		"another name":   {[]corev1.ServicePort{port("b", 1, "TCP")}, []corev1.ServicePort{port("a", 1, "TCP")}, nil},
		"another protocol": {[]corev1.ServicePort{port("b", 1, "UDP")}, []corev1.ServicePort{port("a", 1, "TCP")},
			[]corev1.ServicePort{port("b", 1, "UDP")}},
		"none had a name":  {[]corev1.ServicePort{port("", 1, "TCP")}, []corev1.ServicePort{port("a", 2, "TCP")}, nil},
		"none has a name":  {[]corev1.ServicePort{port("a", 1, "TCP")}, []corev1.ServicePort{port("", 2, "TCP")}, nil},
		"nothing desired?": {[]corev1.ServicePort{port("a", 1, "TCP")}, nil, []corev1.ServicePort{port("a", 1, "TCP")}},
	} {
		if diff := cmp.Diff(tt.want, leavingPorts(tt.live, tt.desired)); diff != "" && len(tt.want) > 0 ||
			len(leavingPorts(tt.live, tt.desired)) != len(tt.want) {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// boundEndpoint returns one whose forwarders listen, or not yet.
func boundEndpoint(listen bool, ports ...v1alpha1.BoundPort) *v1alpha1.BoundEndpoint {
	b := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Generation: 2},
		Spec: v1alpha1.BoundEndpointSpec{Ports: ports}}
	b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionServicesReady, ObservedGeneration: 2},
		{Type: v1alpha1.ConditionReady, ObservedGeneration: 1}}
	if listen {
		b.Status.Conditions[1].ObservedGeneration = 2
	}
	return b
}

func TestEndpointPorts(t *testing.T) {
	t.Parallel()
	ports := []account.ServiceExportPort{{Name: "tcp", Protocol: "TCP", Port: 42},
		{Name: "udp", Protocol: "UDP", Port: 42}, {Name: "web", Protocol: "TCP", Port: 80, AppProtocol: "http"}}
	bound := func(port, target int32, state v1alpha1.BoundEndpointState) v1alpha1.BoundPort {
		return v1alpha1.BoundPort{Port: port, TargetPort: target, Scheme: "tcp", State: state}
	}
	live := func(name string, target int32) []discoveryv1.EndpointPort {
		return []discoveryv1.EndpointPort{{Name: ptr.To(name), Port: ptr.To(target)}}
	}
	for name, tt := range map[string]struct {
		b    *v1alpha1.BoundEndpoint
		live []discoveryv1.EndpointPort
		want map[string]int32
	}{
		"both": {boundEndpoint(true, bound(42, 20042, ""), bound(80, 20080, v1alpha1.StateBound)), nil,
			map[string]int32{"tcp": 20042, "web": 20080}},
		"one that the import lacks": {boundEndpoint(true, bound(43, 20043, "")), nil, map[string]int32{}},
		"one is released": {boundEndpoint(true, bound(42, 20042, ""), bound(80, 20080, v1alpha1.StateReleased)),
			live("web", 20080), map[string]int32{"tcp": 20042}},
		"forwarders do not listen yet": {boundEndpoint(false, bound(42, 20042, "")), nil, map[string]int32{}},
		"one is listed already": {boundEndpoint(false, bound(42, 20042, ""), bound(80, 20080, "")), live("tcp", 20042),
			map[string]int32{"tcp": 20042}},
		"it was listed with another target": {boundEndpoint(false, bound(42, 20042, "")), live("tcp", 20043),
			map[string]int32{}},
	} {
		got := map[string]int32{}
		for _, p := range endpointPorts(ports, tt.b, tt.live) {
			got[*p.Name] = *p.Port
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestSetStandby(t *testing.T) {
	t.Parallel()
	carried := []discoveryv1.EndpointPort{{Port: ptr.To[int32](20042)}}
	for name, tt := range map[string]struct {
		sources []source
		want    []bool
	}{
		"all available": {[]source{{ports: carried, available: true}, {ports: carried, available: true}},
			[]bool{false, false}},
		"one is not": {[]source{{ports: carried, available: true}, {ports: carried}},
			[]bool{false, true}},
		"none is":                    {[]source{{ports: carried}, {ports: carried}}, []bool{false, false}},
		"alone":                      {[]source{{ports: carried}}, []bool{false}},
		"only the one without ports": {[]source{{available: true}, {ports: carried}}, []bool{false, false}},
	} {
		setStandby(tt.sources)
		for i, s := range tt.sources {
			if s.standby != tt.want[i] {
				t.Errorf("%s: source %d on standby: %v", name, i, s.standby)
			}
		}
	}
}

func TestAvailable(t *testing.T) {
	t.Parallel()
	ports := []account.ServiceExportPort{{Name: "tcp", Protocol: "TCP", Port: 42}, {Name: "web", Protocol: "TCP",
		Port: 80}, {Name: "udp", Protocol: "UDP", Port: 53}}
	const host = "hello.demo.a"
	for name, tt := range map[string]struct {
		known     bool
		endpoints int
		offline   []string
		want      bool
	}{
		"online":          {true, 2, nil, true},
		"one is offline":  {true, 2, []string{"tcp://hello.demo.a:42"}, true},
		"all are offline": {true, 2, []string{"tcp://hello.demo.a:42", "tcp://hello.demo.a:80"}, false},
		"no rows":         {true, 0, nil, false},
		"not known":       {false, 0, nil, true},
	} {
		if got := available(host, ports, tt.known, tt.endpoints, tt.offline); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFirst_ReportsBeforeItRetries(t *testing.T) {
	t.Parallel()
	reported := &status.Problem{Reason: "x", RetryAfter: owned.RefusalRetry}
	if got := first(nil, owned.ProblemOf(owned.ErrRepeat), reported, nil); got != reported {
		t.Errorf("got %+v", got)
	}
	if got := first(status.Pending(), nil); got == nil || !got.Quiet {
		t.Errorf("got %+v", got)
	}
	if got := problemOf(errors.New("the connection broke")); got.Quiet || got.RetryAfter != errorRetry {
		t.Errorf("got %+v", got)
	}
}
