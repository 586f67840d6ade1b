// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// stoppableAgents starts two replicas, whose second one has two agents with an endpoint each. The
// agents answer what they read; that of ep-1 stops when stop is called.
func stoppableAgents(t *testing.T) (asks, holds *testReplica, stop func()) {
	t.Helper()
	c := newCluster(t)
	asks, holds = c.start("rp-1"), c.start("rp-2")
	stopped := new(sync.RWMutex)
	holds.local.add(testHolder("ep-1"), agentSessionOver(t, echo, func(c net.Conn) net.Conn {
		return stoppedConn{c, stopped}
	}))
	other := testHolder("ep-2")
	other.Connections = 10
	holds.local.add(other, agentSession(t, echo))
	c.linked(asks, holds)
	return asks, holds, func() {
		stopping := make(chan struct{})
		go func() { stopped.Lock(); close(stopping) }()
		t.Cleanup(func() { <-stopping; stopped.Unlock() })
	}
}

// openEchoed opens a stream to the member and uses it once.
func openEchoed(t *testing.T, m *Member) *tunnel.Stream {
	t.Helper()
	st := open(t, m)
	send(t, st, "x")
	if _, err := io.ReadFull(st, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestMember_CallsWaitersWhenAgentStops stops an agent after its stream was opened, which only the
// replica that relays to it can notice.
func TestMember_CallsWaitersWhenAgentStops(t *testing.T) {
	t.Parallel()
	asks, holds, stop := stoppableAgents(t)
	first := asks.choose(t)
	second, err := asks.Choose(t.Context(), testQuery(), []*Member{first})
	must.Succeed(t, err)
	t.Cleanup(second.Release)
	waits, stays, withdrawn := openEchoed(t, first), openEchoed(t, second), openEchoed(t, first)
	called := make(chan struct{})
	defer stays.OnUnresponsive(func() { t.Error("a call for an agent that responds") })()
	withdrawn.OnUnresponsive(func() { t.Error("a call that was withdrawn") })()
	defer waits.OnUnresponsive(func() { close(called) })()
	stop()
	began := time.Now()
	wait.Receive(t, "the call", called)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if m := asks.choose(t); m != second {
		t.Error("the agent that does not respond is chosen again")
	}
	for _, st := range []*tunnel.Stream{waits, stays, withdrawn} {
		_ = st.Reset(tunnel.Aborted)
	}
	wait.Until(t, "the end of the relayed streams", func() bool {
		holds.relayed.mu.Lock()
		defer holds.relayed.mu.Unlock()
		return len(holds.relayed.byID) == 0 && holds.local.open.Load() == 0
	})
}

// TestMember_EndsPollingWithLastWaiter checks that a replica asks only while calls wait.
func TestMember_EndsPollingWithLastWaiter(t *testing.T) {
	t.Parallel()
	asks, _ := newCluster(t).pair(echo)
	m := asks.choose(t)
	stop := openEchoed(t, m).OnUnresponsive(func() { t.Error("called for an agent that responds") })
	watch := &m.link.watch
	polling := func() bool {
		watch.mu.Lock()
		defer watch.mu.Unlock()
		return watch.polling
	}
	if !polling() {
		t.Error("no question is asked")
	}
	stop()
	wait.Until(t, "the end of the questions", func() bool { return !polling() })
}

func TestServeSilent_RefusesTooManyStreams(t *testing.T) {
	t.Parallel()
	asks, _ := newCluster(t).pair(echo)
	m := asks.choose(t)
	if _, err := m.link.peer.askSilent(t.Context(), make([]*agentWait, 0)); err != nil {
		t.Errorf("no streams: %v", err)
	}
	many := make([]*agentWait, maxWatched+1)
	for i := range many {
		many[i] = &agentWait{relayID: uint64(i)}
	}
	if _, err := m.link.peer.askSilent(t.Context(), many); err == nil {
		t.Error("a question about too many streams was answered")
	}
}
