// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/wait"
)

// TestServer_AloneServesBehindBalancer runs one server without replicas: forwarder and public
// listeners serve, and the API answers, through the balancer.
func TestServer_AloneServesBehindBalancer(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1)
	c := r.startChain(-1, -1)
	l := startLoad(t, 100, c.targets()...)
	l.wait(100)
	if _, err := r.newAPI("https://"+r.balancer.addrs[frontService]).ListEndpoints(t.Context(),
		account.EndpointFilter{}); err != nil {
		t.Error(err)
	}
	l.stop()
	l.requireNoFailure("one server")

	l = startLoad(t, 100, c.targets()...)
	l.wait(20)
	began := time.Now()
	r.replicas[0].restart()
	wait.Until(t, "requests to succeed after the restart", func() bool {
		return time.Since(began)-l.window(began, time.Second) > time.Second
	})
	l.stop()
	t.Logf("restart of the only server: failures for %s\n%s", l.window(began, time.Second), l)
}

// TestLoad_RecordsFailures cuts the link to the only server.
func TestLoad_RecordsFailures(t *testing.T) {
	t.Parallel()
	r := startRig(t, 1)
	c := r.startChain(-1, -1)
	l := startLoad(t, 100, c.public("http")...)
	l.wait(20)
	if failed := l.failed(); len(failed) > 0 {
		t.Fatalf("%d requests failed: %v", len(failed), failed[0].err)
	}
	r.balancer.cut(0)
	l.wait(20)
	l.stop()
	if failed := l.failed(); len(failed) < 15 {
		t.Errorf("%d requests failed while the link was cut", len(failed))
	}
}
