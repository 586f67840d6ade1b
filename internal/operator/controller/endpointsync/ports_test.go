// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// clockAt is a clock that shows the time it points to.
type clockAt struct{ now *time.Time }

func (c clockAt) Now() time.Time                  { return *c.now }
func (c clockAt) Since(t time.Time) time.Duration { return c.now.Sub(t) }

func TestPorts_UniqueStableAndRest(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	p := NewPorts(PortRange{20000, 20002}, time.Minute, clockAt{&now})
	seen := map[int32]bool{}
	for i := range int32(3) {
		target, ok := p.allocate(portKey{"a.b", i})
		if !ok || seen[target] || target < 20000 || target > 20002 {
			t.Fatalf("got %d, %v", target, ok)
		}
		seen[target] = true
		if again, _ := p.allocate(portKey{"a.b", i}); again != target {
			t.Errorf("asked again: got %d, want %d", again, target)
		}
	}
	if _, ok := p.allocate(portKey{"c.d", 1}); ok {
		t.Error("a port of a full range was handed out")
	}
	p.releaseExcept("a.b", func(port int32) bool { return port != 1 })
	now = now.Add(59 * time.Second)
	if _, ok := p.allocate(portKey{"c.d", 1}); ok {
		t.Error("a port that rests was handed out")
	}
	now = now.Add(time.Second)
	if _, ok := p.allocate(portKey{"c.d", 1}); !ok {
		t.Error("a port that has rested was not handed out")
	}
}

func TestPorts_NoTargetPortIsShared(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(0, 0)
	p := NewPorts(PortRange{20000, 20009}, time.Second, clockAt{&now})
	for range 20_000 {
		now = now.Add(time.Duration(rng.IntN(300)) * time.Millisecond)
		key := portKey{fmt.Sprintf("h%d.x", rng.IntN(4)), int32(rng.IntN(4))}
		switch rng.IntN(3) {
		case 0:
			p.allocate(key)
		case 1:
			p.reserve(key, 20000+rng.Int32N(10))
		default:
			p.releaseExcept(key.hostname, func(port int32) bool { return port != key.port })
		}
		held := map[int32]portKey{}
		for hostname, ports := range p.byHostname {
			for port, target := range ports {
				this := portKey{hostname, port}
				if other, taken := held[target]; taken {
					t.Fatalf("%v and %v both hold %d", this, other, target)
				}
				if p.holder[target] != this {
					t.Fatalf("%d is held by %v and booked for %v", target, this, p.holder[target])
				}
				held[target] = this
			}
		}
		if len(held) != len(p.holder) {
			t.Fatalf("%d held, %d booked", len(held), len(p.holder))
		}
	}
}

func TestParsePortRange(t *testing.T) {
	t.Parallel()
	if r, err := ParsePortRange("--port-range", "10000-32767"); err != nil || r != (PortRange{10000, 32767}) ||
		r.String() != "10000-32767" {
		t.Errorf("got %v, %v", r, err)
	}
	for _, bad := range []string{"", "10000", "10000-", "32767-10000", "80-90", "10000-70000", "a-b", "-1-5",
		"1024-2000-3000"} {
		if _, err := ParsePortRange("--port-range", bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestPorts_ReplacesPortOutsideRange(t *testing.T) {
	t.Parallel()
	l := newLifecycle(t, 1, PortRange{20000, 20009})
	l.event(account.Added, agentEndpoint("ep-1", "http://a.b"))
	l.reconcile("a.b")
	before := l.objects["a.b"].Spec.Ports[0]
	l.within = PortRange{30000, 30009}
	l.restart()
	after, _ := planner{now: l.now, ports: l.r.Ports, hostname: "a.b", desired: l.r.Set.Desired("a.b")}.plan(
		&l.objects["a.b"].Spec)
	if moved := after.Ports[0].TargetPort; moved < 30000 || moved > 30009 || before.TargetPort >= 30000 {
		t.Errorf("it was %d and is %d", before.TargetPort, moved)
	}
}

// TestPorts_SeedFromServices checks that a hostname whose object is lost keeps the target port of
// its upstream Service, or of its target Service with EndpointSlices.
func TestPorts_SeedFromServices(t *testing.T) {
	t.Parallel()
	own := installation.Installation{Namespace: "fairlead", Release: "fairlead"}
	service := func(namespace, name, hostname string, typ corev1.ServiceType, target int32) corev1.Service {
		s := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Annotations: map[string]string{installation.AnnotationHostname: hostname}},
			Spec: corev1.ServiceSpec{Type: typ,
				Ports: []corev1.ServicePort{{Port: 20005, TargetPort: intstr.FromInt32(target)}}}}
		own.Mark(&s)
		return s
	}
	p := NewPorts(PortRange{20000, 20009}, time.Minute, clock.RealClock{})
	p.seed(own, nil, []corev1.Service{
		service("demo", "api", "api.demo", corev1.ServiceTypeExternalName, 20005),
		service("fairlead", "ep-1", "api.demo", corev1.ServiceTypeClusterIP, 20001),
		service("demo", "web", "web.demo", corev1.ServiceTypeClusterIP, 20002),
	})
	for hostname, want := range map[string]int32{"api.demo": 20001, "web.demo": 20002} {
		if got, _ := p.allocate(portKey{hostname, 20005}); got != want {
			t.Errorf("%s: got %d, want %d", hostname, got, want)
		}
	}
	if p.isHeldBy(portKey{"api.demo", 20005}, 20005) {
		t.Error("the port of an ExternalName was taken for a target port")
	}
}
