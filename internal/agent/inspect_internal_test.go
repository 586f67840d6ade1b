// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/agent/inspect"
	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/internal/tunnel/relay"
)

// TestInspected_IsStreamItself checks that without an inspector, and for what is not HTTP, nothing
// stands between the relay and the stream. It counts allocations, so it is not parallel.
func TestInspected_IsStreamItself(t *testing.T) {
	r := inspect.New()
	defer r.Close()
	st := &tunnel.Stream{}
	for _, c := range []struct {
		recorder *inspect.Recorder
		http     bool
		want     bool
	}{{nil, true, true}, {r, false, true}, {r, true, false}} {
		i := inspection{&Options{UpstreamOptions: UpstreamOptions{Inspect: c.recorder}}}
		got, _ := i.tap(&spec{}, st, Connection{HTTP: c.http})
		if same := got == relay.HalfCloser(st); same != c.want {
			t.Errorf("recorder %t, HTTP %t: the stream itself %t", c.recorder != nil, c.http, same)
		}
	}
	off, sp := inspection{&Options{}}, &spec{}
	if n := testing.AllocsPerRun(100, func() { off.tap(sp, st, Connection{HTTP: true}) }); n > 0 {
		t.Errorf("%v allocations while it is off", n)
	}
}
