// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package freeaddr

import (
	"net"
	"net/netip"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestFind_AvoidsPortsOfConnections also listens, as a server does.
func TestFind_AvoidsPortsOfConnections(t *testing.T) {
	t.Parallel()
	for range 10 {
		found, err := Find()
		must.Succeed(t, err)
		if port := netip.MustParseAddrPort(found).Port(); port < firstPort || port > lastPort {
			t.Errorf("found %s", found)
		}
		l, err := net.Listen("tcp", found)
		must.Succeed(t, err)
		must.Succeed(t, l.Close())
	}
}
