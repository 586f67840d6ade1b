// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package trafficpolicy

import (
	"net/http/httptest"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// maxThreadCPU is 300 times what the dearest policy takes without the race detector.
const maxThreadCPU = 3 * time.Second

// TestCost_BoundsRequest checks that a policy of the allowed size refuses any request of the
// allowed size before it has taken long. It measures the thread's CPU time: what else the machine
// does has no part in it.
func TestCost_BoundsRequest(t *testing.T) {
	t.Parallel()
	for name, c := range costlyPolicies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := compile(t, c.doc)
			r := httptest.NewRequest("GET", "/", nil)
			r.URL.Path, r.URL.RawQuery = c.path, c.query
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			began := threadCPU(t)
			res := do(t, p, fullConn(), r)
			if took := threadCPU(t) - began; took > maxThreadCPU {
				t.Errorf("took %v of CPU time", took)
			}
			if code := res.Header.Get(account.CodeHeader); res.StatusCode != 500 ||
				code != string(account.CodePolicyCost) {
				t.Errorf("status %d, code %q", res.StatusCode, code)
			}
		})
	}
}

// threadCPU returns the CPU time that the calling thread has taken.
func threadCPU(t *testing.T) time.Duration {
	t.Helper()
	const thread = 1 // RUSAGE_THREAD of getrusage(2), which package syscall lacks
	var used syscall.Rusage
	must.Succeed(t, syscall.Getrusage(thread, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
