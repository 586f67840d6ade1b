// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// replicas are several services behind a balancer.
type replicas struct {
	all []*service

	mu   sync.Mutex
	next int
	dead map[*service]bool
}

func startReplicas(t *testing.T, n int) *replicas {
	t.Helper()
	all := &replicas{dead: map[*service]bool{}}
	for i := range n {
		svc := newService(t)
		svc.replica, svc.replicas = fmt.Sprintf("rp-%d", i+1), n
		all.all = append(all.all, svc.start())
	}
	return all
}

// run starts an agent and waits until it has a leg with each replica.
func (all *replicas) run(t *testing.T, change func(*agent.Options)) *running {
	t.Helper()
	r := run(t, all.all[0], "8080", func(o *agent.Options) {
		o.DialServer = all.dial
		if change != nil {
			change(o)
		}
	})
	for next[agent.Replicas](r).Connected < len(all.all) {
		continue
	}
	return r
}

// dial leads to one replica after the other, as a balancer does.
func (all *replicas) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for range all.all {
		all.next++
		if svc := all.all[all.next%len(all.all)]; !all.dead[svc] {
			return new(net.Dialer).DialContext(ctx, network, svc.addr)
		}
	}
	return nil, errors.New("no replica lives")
}

// kill ends a replica.
func (all *replicas) kill(svc *service) {
	all.mu.Lock()
	all.dead[svc] = true
	all.mu.Unlock()
	svc.kill()
}

// session returns the leg of the only session.
func (svc *service) session() *tunnel.Session {
	svc.t.Helper()
	var s *tunnel.Session
	wait.Until(svc.t, "one session on "+svc.replica, func() bool {
		all := svc.server.Sessions()
		if len(all) == 1 {
			s = all[0]
		}
		return len(all) == 1
	})
	return s
}

func TestReplicas_LostOneIsNoAlarm(t *testing.T) {
	t.Parallel()
	all := startReplicas(t, 3)
	r := all.run(t, func(o *agent.Options) { o.PingInterval = time.Millisecond })
	lost := all.all[1]
	all.kill(lost)
	want := agent.Replicas{Connected: 2, Wanted: 3, Lost: []string{"rp-2"}}
	if d := cmp.Diff(want, next[agent.Replicas](r)); d != "" {
		t.Error(d)
	}
	next[agent.Latency](r)
	for _, svc := range []*service{all.all[0], all.all[2]} {
		svc.server.SetReplicas(2)
	}
	for next[agent.Replicas](r).Wanted != 2 {
		continue
	}
	all.kill(all.all[0])
	if e := next[agent.Replicas](r); e.Connected != 1 {
		t.Errorf("%+v", e)
	}
	if e := upset(r); len(e) > 0 {
		t.Errorf("%+v", e)
	}
}

// upset returns the events so far that say that the session ended.
func upset(r *running) []agent.Event {
	var upset []agent.Event
	for _, e := range remaining[agent.Event](r) {
		switch e := e.(type) {
		case agent.Retrying, agent.Draining, agent.Connected:
			upset = append(upset, e)
		}
	}
	return upset
}

func TestReplicas_EachServes(t *testing.T) {
	t.Parallel()
	all := startReplicas(t, 3)
	upstream := httptest.NewServer(http.NotFoundHandler())
	defer upstream.Close()
	all.run(t, func(o *agent.Options) {
		to, err := agent.ParseUpstream("http", upstream.URL)
		must.Succeed(t, err)
		o.Endpoints[0].Upstream = to
	})
	for _, svc := range all.all {
		st := open(t, svc.session(), header())
		if err := st.WaitOpened(t.Context()); err != nil {
			t.Errorf("a stream of %s: %v", svc.replica, err)
		}
		_ = st.Close()
	}
}

func TestReplicas_OneDrains(t *testing.T) {
	t.Parallel()
	all := startReplicas(t, 2)
	r := all.run(t, nil)
	must.Succeed(t, all.all[0].session().Drain(time.Minute))
	want := agent.Replicas{Connected: 1, Wanted: 2, Draining: []string{"rp-1"}}
	if d := cmp.Diff(want, next[agent.Replicas](r)); d != "" {
		t.Error(d)
	}
	if e := upset(r); len(e) > 0 {
		t.Errorf("%+v", e)
	}
}

func TestReplicas_ShutdownTellsEach(t *testing.T) {
	t.Parallel()
	all := startReplicas(t, 3)
	r := all.run(t, nil)
	var legs []*tunnel.Session
	for _, svc := range all.all {
		legs = append(legs, svc.session())
	}
	r.stop()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	unbinds := 0
	for i, svc := range all.all {
		receive(t, legs[i].PeerDraining(), "drain on "+svc.replica)
		unbinds += len(svc.unbinds)
	}
	if stopped := next[agent.Stopped](r); !stopped.ServerTold || unbinds != 1 {
		t.Errorf("%+v, %d unbinds", stopped, unbinds)
	}
}

func TestReplicas_ReportsMissing(t *testing.T) {
	t.Parallel()
	svc := newService(t)
	svc.replica, svc.replicas = "rp-1", 5
	svc.start()
	r := run(t, svc, "8080", nil)
	want := agent.Replicas{Connected: 1, Wanted: 3, Found: []string{"rp-1"}}
	if d := cmp.Diff(want, next[agent.Replicas](r)); d != "" {
		t.Error(d)
	}
}

func TestReplicas_NoneWithSingleServer(t *testing.T) {
	t.Parallel()
	svc := newService(t).start()
	r := run(t, svc, "8080", nil)
	for range 3 {
		receive(t, svc.bound, "session")
		svc.cut()
	}
	r.stop()
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if all := remaining[agent.Replicas](r); len(all) > 0 {
		t.Errorf("%+v", all)
	}
}
