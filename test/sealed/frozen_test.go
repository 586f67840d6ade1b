// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealed_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/test/support/frozen"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// freezing returns a DialFunc whose connections pass the process: while it is stopped, nothing moves. What
// it returns are TCP connections, as parked ones have to be.
func freezing(t *testing.T, process *frozen.Process) agent.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		far, err := process.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		near := upstream(t, func(c *net.TCPConn) {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = io.Copy(c, far)
				_ = c.Close()
			}()
			_, _ = io.Copy(far, c)
			_ = far.Close()
			<-ended
		})
		return new(net.Dialer).DialContext(ctx, network, near)
	}
}

// maxDelay is what a busy machine adds.
const maxDelay = 4 * time.Second

// TestSealedHTTP_FrozenAgentEndsConnection holds that a kept connection whose agent does not respond ends
// soon after a request.
func TestSealedHTTP_FrozenAgentEndsConnection(t *testing.T) {
	overBothPaths(t, testSealedHTTPFrozenAgentEndsConnection)
}

func testSealedHTTPFrozenAgentEndsConnection(t *testing.T) {
	var process frozen.Process
	s := newSite(t, digestOf, func(r *rig, _ *agent.Endpoint) { r.dial = freezing(t, &process) })
	t.Cleanup(process.Continue) // before the agent's end
	ask := func() error {
		_, _, err := s.do("POST", "/", strings.NewReader("no client repeats it"))
		return err
	}
	must.Succeed(t, ask())
	began := time.Now()
	process.Stop()
	err := ask()
	if took := time.Since(began); err == nil || took > 8*time.Second+maxDelay {
		t.Errorf("%v after %v", err, took)
	} else {
		t.Logf("%v after %v", err, took)
	}
}
