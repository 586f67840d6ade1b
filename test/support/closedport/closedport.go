// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

// Package closedport gives tests TCP addresses that refuse connections for as long as a test runs.
// An address of a listener that was closed does not: the next test that listens may be given it.
package closedport

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// Reserve returns an address of 127.0.0.1 that is bound and never listened on. It is given back at
// the end of the test.
func Reserve(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	syscall.CloseOnExec(fd)
	must.Succeed(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	bound, err := syscall.Getsockname(fd)
	must.Succeed(t, err)
	return fmt.Sprintf("127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}
