// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package closedport

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestReserve_KeepsThePort(t *testing.T) {
	t.Parallel()
	addr := Reserve(t)
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialing gave %v, want a refusal", err)
	}
	if _, err := net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listening gave %v, want that it is in use", err)
	}
}
