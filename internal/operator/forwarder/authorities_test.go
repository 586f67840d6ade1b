// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"slices"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// learner records what the edge announces.
type learner chan string

func (learner) Learns() bool { return true }

func (l learner) Learn(authorities [][]byte) error {
	for _, der := range authorities {
		l <- string(der)
	}
	return nil
}

func TestEdgeClient_LearnsAuthorities(t *testing.T) {
	t.Parallel()
	e := startEdge(t, nil)
	e.server.SetAuthorities([][]byte{[]byte("one")})
	learnt := make(learner, 10)
	first := start(t, e, shortTiming(), func(o *Options) { o.Authorities = learnt })
	first.source.update(testObjects())
	if hello := wait.Receive(t, "a hello", e.hellos); !slices.Contains(hello.Features, tunnel.FeatureAuthorities) {
		t.Errorf("hello %+v", hello)
	}
	if got := wait.Receive(t, "what the welcome announced", learnt); got != "one" {
		t.Errorf("the welcome announced %q", got)
	}
	wait.Receive(t, "a session", e.up)
	e.server.SetAuthorities([][]byte{[]byte("two")})
	for got := "one"; got == "one"; { // each connection's welcome announces it
		got = wait.Receive(t, "what the session was told", learnt)
	}
	wait.Until(t, "a session that was told", func() bool { return len(e.server.Untold()) == 0 })
	second := start(t, e, shortTiming()) // a client that learns nothing
	second.source.update(testObjects())
	wait.Receive(t, "a session", e.up)
	if untold := e.server.Untold(); len(untold) != 1 {
		t.Errorf("%d sessions do not know the authorities, want 1", len(untold))
	}
}
