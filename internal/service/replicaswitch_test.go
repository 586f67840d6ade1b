// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestReplicas_FailoverSwitchIsOneEvent lets the first child of a failover end that two replicas
// forward to.
func TestReplicas_FailoverSwitchIsOneEvent(t *testing.T) {
	t.Parallel()
	g := newReplicaGroup(t)
	one, two := g.start(servicetest.AllowLoopback), g.start(servicetest.AllowLoopback)
	awaitPeers(1, one, two)
	a := one.Tenant()
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer upstream.Close()
	static, answer := a.Static(upstream.Listener.Addr().String()), a.Answer(299, "canned")
	failover := a.Failover(static, answer)
	b := a.Cloud(account.BindingKubernetes, "http://shop.demo", "", failover)
	expect := func(want int) {
		t.Helper()
		for _, r := range []*servicetest.Server{one, two} {
			if status, _ := r.StartForwarder().Get(b); status != want {
				t.Errorf("status %d, want %d", status, want)
			}
		}
	}
	serving := func(child string) {
		t.Helper()
		servicetest.Eventually(t, "both replicas have recorded "+child, func() bool {
			found, err := a.Store.ActiveChildren(t.Context(), a.Account, []string{failover})
			n := 0
			for _, c := range found[failover] {
				if c == child {
					n++
				}
			}
			return err == nil && n == 2
		})
	}
	expect(http.StatusOK)
	serving(static)
	upstream.Close()
	expect(299)
	serving(answer)
	var list struct{ Events []account.AuditEvent }
	two.CallAPI("GET", "/events?type=backend.switched&object_id="+failover, nil, &list)
	if len(list.Events) != 1 || list.Events[0].Details["from"] != static || list.Events[0].Details["to"] != answer {
		t.Errorf("events of one switch: %+v", list.Events)
	}
}
