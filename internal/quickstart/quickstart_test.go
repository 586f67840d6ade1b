// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"net"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/agent"
)

// TestFreePort_AvoidsTarget holds that a target which does not listen yet keeps its port.
func TestFreePort_AvoidsTarget(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address(0))
	if err != nil {
		t.Fatal(err)
	}
	taken := l.Addr().(*net.TCPAddr).Port
	if port, err := (&quickstart{}).freePort(t.Context(), taken); err != nil || port == taken {
		t.Errorf("for a port in use: %d, %v", port, err)
	}
	_ = l.Close()
	q := &quickstart{target: agent.Upstream{Host: "localhost", Port: taken}}
	if port, err := q.freePort(t.Context(), taken); err != nil || port == taken || port == 0 {
		t.Errorf("for the target's port: %d, %v", port, err)
	}
}
