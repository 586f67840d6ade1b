// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// A thousand refused connections leave no descriptor open, regardless of their protocol. The test
// is not parallel: all tests share the process's descriptors.
func TestDescriptors_RefusedOpensLeaveNone(t *testing.T) {
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("this system does not list a process's descriptors in /proc/self/fd")
		}
		return len(entries)
	}
	r := connected(t, startEdge(t, refuseWith(tunnel.RefusedUpstream)), shortTiming())
	refused := func(port int) {
		c, err := net.DialTimeout("tcp", r.addr(port), testTimeout)
		if errors.Is(err, syscall.ECONNRESET) {
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testTimeout))
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.demo\r\n\r\n") // a reset may come first
		_, _ = io.Copy(io.Discard, c)
	}
	refused(10080)
	refused(15432)
	before := descriptors()
	const each, at = 20, 25
	for _, port := range []int{10080, 15432} {
		var clients sync.WaitGroup
		for range at {
			clients.Go(func() {
				for range each {
					refused(port)
				}
			})
		}
		clients.Wait()
	}
	const others = 32 // the session may have got further connections
	wait.Until(t, "the descriptors to be closed", func() bool { return descriptors() <= before+others })
	accepted := int64(0)
	for _, l := range r.status().Listeners {
		accepted += l.Connections
	}
	if accepted != 2*each*at+2 {
		t.Errorf("%d connections were accepted, want %d", accepted, 2*each*at+2)
	}
}
