// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestReady_WaitsForSessionWhileOthersHaveOne checks that a forwarder with a wrong address takes no
// calls over from those that are connected, and is ready once these have lost the service, too.
func TestReady_WaitsForSessionWhileOthersHaveOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := startInBubble(t, 0)
		o := tcpObjects()
		o.OthersConnected = true
		b.source.update(o)
		time.Sleep(time.Hour)
		const why = "the other forwarders have one"
		if reason := b.notReadyReason(); b.readyz() != 503 || !strings.Contains(reason, why) {
			t.Errorf("readyz %d: %q", b.readyz(), reason)
		}
		o.OthersConnected = false
		b.source.update(o)
		time.Sleep(2 * time.Second)
		if b.readyz() != 200 {
			t.Error("not ready though no forwarder has a session")
		}
		o.OthersConnected = true
		b.source.update(o)
		time.Sleep(time.Hour)
		if b.readyz() != 200 {
			t.Error("unready again")
		}
		b.stop()
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		if !strings.Contains(b.logged.String(), "not ready without a session with the edge: "+why) {
			t.Errorf("the log has %s", &b.logged)
		}
	})
}

// TestReady_NotWhileRefused checks that a forwarder whose credential is refused is not ready before
// it is replaced, and that an edge that does not answer is not waited for.
func TestReady_NotWhileRefused(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, e *fakeEdge) *runningForwarder {
		e.setRefuse(&tunnel.Error{Code: tunnel.CodeBadToken, Msg: "the token's key is not known"})
		timing := shortTiming()
		timing.readyTimeout, timing.readyPoll = 0, time.Millisecond
		r := start(t, e, timing)
		o := testObjects()
		o.OthersConnected = true
		r.source.update(o)
		wait.Until(t, "the refusal", func() bool { return r.edge.refusal() != "" })
		o.OthersConnected = false // they have lost theirs, as their keys are not known either
		r.source.update(o)
		time.Sleep(20 * timing.readyPoll)
		if reason := r.notReadyReason(); r.ready.Load() || !strings.Contains(reason, "the token's key is not known") {
			t.Errorf("ready %v: %q", r.ready.Load(), reason)
		}
		return r
	}
	t.Run("until the credential is replaced", func(t *testing.T) {
		t.Parallel()
		e := startEdge(t, respond)
		r := refused(t, e)
		e.setRefuse(nil)
		wait.Until(t, "readiness", r.ready.Load)
	})
	t.Run("until the edge does not answer", func(t *testing.T) {
		t.Parallel()
		e := startEdge(t, respond)
		r := refused(t, e)
		_ = e.ln.Close()
		wait.Until(t, "readiness", r.ready.Load)
		if r.edge.Live() != nil {
			t.Error("there is a session")
		}
	})
}
