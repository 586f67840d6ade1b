// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fairlead-dev/fairlead/api/v1alpha1"
	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/installation"
)

// lifecycle is an account and the objects made of it, in memory: it does what Reconcile does,
// without the API server.
type lifecycle struct {
	t         *testing.T
	rng       *rand.Rand
	now       time.Time
	own       installation.Installation
	within    PortRange
	seq       int64
	endpoints map[string]account.Endpoint
	objects   map[string]*v1alpha1.BoundEndpoint
	r         *Reconciler

	lastBound map[int32]time.Time // when a target port was last in a Service
	lastUser  map[int32]portKey
}

func newLifecycle(t *testing.T, seed uint64, within PortRange) *lifecycle {
	l := &lifecycle{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), within: within,
		own:       installation.Installation{Namespace: "fairlead", Release: "fairlead"},
		endpoints: map[string]account.Endpoint{}, objects: map[string]*v1alpha1.BoundEndpoint{},
		lastBound: map[int32]time.Time{}, lastUser: map[int32]portKey{},
	}
	l.restart()
	return l
}

// restart makes a manager that knows the objects and the account's list.
func (l *lifecycle) restart() {
	l.r = &Reconciler{
		Set: NewSet(SetOptions{Selector: admitFunc(all), Clusterset: true, RemovalDelay: 30 * time.Second,
			Clock: clockAt{&l.now}}),
		Ports:  NewPorts(l.within, time.Minute, clockAt{&l.now}),
		Delays: Delays{Removal: 30 * time.Second, Rest: time.Minute},
		Report: NewReporter(l.t.Context(), events.NewFakeRecorder(1), fake.NewClientBuilder().Build(), l.own),
	}
	l.list()
	var objects []v1alpha1.BoundEndpoint
	projected := map[string][]int32{}
	for hostname, o := range l.objects {
		objects = append(objects, *o)
		projected[hostname] = portsOf(&o.Spec)
	}
	l.r.Ports.seed(l.own, objects, nil)
	l.r.Set.Seed(projected)
}

func (l *lifecycle) list() []string {
	var endpoints []account.Endpoint
	for _, e := range l.endpoints {
		endpoints = append(endpoints, e)
	}
	return l.r.Set.Replace(listed(endpoints...), l.now).Hostnames
}

func (l *lifecycle) event(typ account.EventType, e account.Endpoint) {
	l.seq++
	e.ResourceVersion = version(l.seq)
	if typ == account.Deleted {
		delete(l.endpoints, e.ID)
	} else {
		l.endpoints[e.ID] = e
	}
	l.r.Set.Apply(account.EndpointEvent{Type: typ, ResourceVersion: e.ResourceVersion, Endpoint: &e})
}

// reconcile does to one hostname what Reconcile does, and checks what is written.
func (l *lifecycle) reconcile(hostname string) {
	var current *v1alpha1.BoundEndpointSpec
	old := l.objects[hostname]
	if old != nil {
		current = old.Spec.DeepCopy()
	}
	desired := l.r.Set.Desired(hostname)
	next, exhausted := planner{now: l.now, delays: l.r.Delays, ports: l.r.Ports, hostname: hostname,
		desired: desired}.plan(current)
	if len(exhausted) > 0 {
		l.t.Fatalf("%s: no port is free", hostname)
	}
	l.check(hostname, current, next)
	switch {
	case next == nil:
		delete(l.objects, hostname)
	case old == nil:
		o := &v1alpha1.BoundEndpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "fairlead", Name: hostname,
			CreationTimestamp: metav1.NewTime(l.now)}, Spec: *next}
		l.own.Mark(o)
		l.objects[hostname] = o
	default:
		old.Spec = *next
	}
	l.r.finish(hostname, next, desired, l.now, false)
}

// check compares a planned spec with the account's endpoints themselves, not with the Set's view.
func (l *lifecycle) check(hostname string, current, next *v1alpha1.BoundEndpointSpec) {
	l.t.Helper()
	wanted, bound, targets := map[int32]bool{}, map[int32]bool{}, map[int32]int32{}
	for _, e := range l.endpoints {
		if u, err := account.ParseAnyURL(e.URL); err == nil && u.Host == hostname {
			wanted[int32(u.Port)] = true
		}
	}
	if current != nil {
		for _, p := range current.Ports {
			targets[p.Port] = p.TargetPort
		}
	}
	if next != nil {
		for _, p := range next.Ports {
			bound[p.Port] = p.State == v1alpha1.StateBound
			if wanted[p.Port] && p.RemoveAfter != nil {
				l.t.Fatalf("%s: port %d has an endpoint and is to be removed", hostname, p.Port)
			}
			if before, had := targets[p.Port]; had && before != p.TargetPort {
				l.t.Fatalf("%s: port %d moved from %d to %d", hostname, p.Port, before, p.TargetPort)
			}
			l.use(portKey{hostname, p.Port}, p)
		}
	}
	for port := range wanted {
		if !bound[port] {
			l.t.Fatalf("%s: port %d has an endpoint and is not in the spec", hostname, port)
		}
	}
}

// use checks that a target port rests for a minute between two hostnames.
func (l *lifecycle) use(key portKey, p v1alpha1.BoundPort) {
	if user, used := l.lastUser[p.TargetPort]; used && user != key &&
		l.now.Sub(l.lastBound[p.TargetPort]) < time.Minute {
		l.t.Fatalf("%v has target port %d, which %v had %s ago", key, p.TargetPort, user,
			l.now.Sub(l.lastBound[p.TargetPort]))
	}
	if p.State == v1alpha1.StateBound {
		l.lastUser[p.TargetPort], l.lastBound[p.TargetPort] = key, l.now
	}
}

// unique checks that no two objects name one target port.
func (l *lifecycle) unique() {
	l.t.Helper()
	seen := map[int32]string{}
	for hostname, o := range l.objects {
		for _, p := range o.Spec.Ports {
			if other, taken := seen[p.TargetPort]; taken {
				l.t.Fatalf("%s and %s both have target port %d", hostname, other, p.TargetPort)
			}
			seen[p.TargetPort] = hostname
		}
	}
}

func TestPlanner_PortsComeAndGoInAnyOrder(t *testing.T) {
	t.Parallel()
	t.Run("of an endpoint", func(t *testing.T) {
		portsComeAndGo(t, "db.prod", func(l *lifecycle, port int) account.Endpoint {
			e := agentEndpoint(fmt.Sprintf("ep-%d-%d", port, l.rng.IntN(2)), fmt.Sprintf("http://db.prod:%d", port))
			if l.rng.IntN(2) == 0 {
				e.Type = account.TypeCloud
			}
			return e
		})
	})
	t.Run("of an exported Service", func(t *testing.T) {
		portsComeAndGo(t, "db.prod.eu-1", func(l *lifecycle, port int) account.Endpoint {
			e := agentEndpoint(fmt.Sprintf("ep-%d-%d", port, l.rng.IntN(2)), fmt.Sprintf("tcp://db.prod.eu-1:%d", port))
			e.Bindings = []string{account.BindingClusterset}
			return e
		})
	})
}

// portsComeAndGo lets endpoints of six ports of the hostname come and go.
func portsComeAndGo(t *testing.T, hostname string, endpoint func(l *lifecycle, port int) account.Endpoint) {
	t.Parallel()
	for seed := range uint64(10) {
		l := newLifecycle(t, seed, PortRange{20000, 20099})
		for range 500 {
			l.now = l.now.Add(time.Duration(l.rng.IntN(25)) * time.Second)
			e := endpoint(l, 80+l.rng.IntN(6))
			switch _, exists := l.endpoints[e.ID]; {
			case l.rng.IntN(20) == 0:
				l.restart()
			case l.rng.IntN(10) == 0: // a list brings what the watch missed
				delete(l.endpoints, e.ID)
				l.list()
			case exists:
				l.event(account.Deleted, e)
			default:
				l.event(account.Added, e)
			}
			l.reconcile(hostname)
			l.unique()
		}
		clear(l.endpoints)
		l.list()
		for range 3 {
			l.reconcile(hostname)
			l.now = l.now.Add(time.Minute)
		}
		if len(l.objects) > 0 {
			t.Fatalf("seed %d: the hostname has no endpoint, and still %+v", seed, l.objects[hostname].Spec)
		}
	}
}

func TestPlanner_TargetPortsOf10000Hostnames(t *testing.T) {
	t.Parallel()
	const hostnames = 10_000
	l := newLifecycle(t, 7, PortRange{10000, 32767})
	name := func(i int) string { return fmt.Sprintf("h%05d.x", i) }
	of := func(i int) account.Endpoint { return agentEndpoint(fmt.Sprintf("ep-%05d", i), "http://"+name(i)) }
	for i := range hostnames {
		e := of(i)
		l.endpoints[e.ID] = e
	}
	l.list()
	for i := range hostnames {
		l.reconcileQuick(name(i))
	}
	l.unique()
	for round := range 3 {
		for range 1000 { // some go, some come, of a few more than there are
			l.now = l.now.Add(100 * time.Millisecond)
			i := l.rng.IntN(hostnames + 1000)
			if _, exists := l.endpoints[of(i).ID]; exists {
				l.event(account.Deleted, of(i))
			} else {
				l.event(account.Added, of(i))
			}
			l.reconcileQuick(name(i))
			i = l.rng.IntN(hostnames + 1000) // a deadline
			l.reconcileQuick(name(i))
		}
		l.unique()
		if round%2 == 1 {
			l.restart()
		}
	}
	if l.r.Set.Removals().Held {
		t.Error("no mass was removed")
	}
}

// reconcileQuick is reconcile without the comparison with the whole account.
func (l *lifecycle) reconcileQuick(hostname string) {
	mine := map[string]account.Endpoint{}
	id := "ep-" + hostname[1:6]
	if e, ok := l.endpoints[id]; ok {
		mine[id] = e
	}
	all := l.endpoints
	l.endpoints = mine
	l.reconcile(hostname)
	l.endpoints = all
}
