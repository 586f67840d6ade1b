// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/agent"
	"github.com/fairlead-dev/fairlead/test/support/must"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// cutConns are connections that a test can cut.
type cutConns struct {
	mu     sync.Mutex
	all    []net.Conn
	killed bool // nothing connects any more
}

func (c *cutConns) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.killed {
			return nil, errors.Join(net.ErrClosed, conn.Close())
		}
		c.all = append(c.all, conn)
	}
	return conn, err
}

// kill cuts the connections as the end of the process would.
func (c *cutConns) kill() {
	c.mu.Lock()
	c.killed = true
	c.mu.Unlock()
	c.cut()
}

func (c *cutConns) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.all {
		_ = conn.Close()
	}
	c.all = nil
}

const clusterUID = "1f0c3a52-8d57-4d52-9c1e-0a5b5cf0a001"

// exporterKey creates an API key of a cluster's exporter.
func exporterKey(s *servicetest.Server) string {
	var key account.APIKey
	s.CreateObject("/api_keys", map[string]any{"scopes": []string{"exporter"}, "cluster_uid": clusterUID}, &key)
	return *key.Token
}

// TestRun_BindsManyEndpoints holds that an exporter's endpoints are bound faster than 20 a second,
// and again after a reconnect. FAIRLEAD_AGENT_ENDPOINTS is how many; 2,000 take two seconds for
// each step on a quiet machine, without the race detector.
func TestRun_BindsManyEndpoints(t *testing.T) {
	s := servicetest.Start(t)
	n := 300
	if text := os.Getenv("FAIRLEAD_AGENT_ENDPOINTS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		must.Succeed(t, err)
	}
	allowed := time.Duration(n) * time.Second / 20
	var conns cutConns
	all := many(t, "8080", n)
	key, began := exporterKey(s), time.Now()
	r := start(t, s, func(o *agent.Options) {
		o.Endpoints, o.DialServer, o.ClusterUID = all, conns.dial, clusterUID
		o.Token = func() string { return key }
	})
	awaitOnline := func(what string, reconnected bool) {
		t.Helper()
		bound := map[string]bool{}
		for len(bound) < n {
			if e, ok := servicetest.Receive(t, r.events, what).(agent.Online); ok && e.Reconnected == reconnected {
				bound[e.Key] = true
			}
		}
		took := time.Since(began)
		t.Logf("%s: %v", what, took)
		if took > allowed {
			t.Errorf("%s of %d endpoints took %v, at most %v are allowed", what, n, took, allowed)
		}
	}
	awaitOnline("first binds", false)
	conns.cut()
	began = time.Now()
	awaitOnline("binds after a reconnect", true)
	for i := range all {
		all[i].Metadata = "changed"
	}
	began = time.Now()
	r.Set(all)
	awaitOnline("binds of changes", true)
	began = time.Now()
	r.Set(nil)
	for range n {
		next(r, func(e agent.Removed) bool { return e.Unbound })
	}
	t.Logf("unbinds: %v", time.Since(began))
}
