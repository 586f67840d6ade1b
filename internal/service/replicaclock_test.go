// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/service"
	"github.com/fairlead-dev/fairlead/test/support/servicetest"
)

// TestReplicas_RefuseLoginsWithWrongClock steps the clock of a replica's store away from the
// database's and back.
func TestReplicas_RefuseLoginsWithWrongClock(t *testing.T) {
	t.Parallel()
	var offset atomic.Int64
	c := startSessionLoad(t, newReplicaGroup(t).options, func(o *service.Options) {
		o.SetStoreClock(func() time.Time { return time.Now().Add(time.Duration(offset.Load())) })
	})
	alice := c.newLoginBrowser()
	if got, _ := c.logIn(alice, loadURL+"/hello"); got.status != http.StatusOK {
		t.Fatalf("before: %d %s", got.status, got.body)
	}
	begin := func() response { return c.request(c.newLoginBrowser(), "GET", loadURL+"/hello") }
	offset.Store(int64(-time.Minute))
	servicetest.Eventually(t, "logins are refused", func() bool {
		got := begin()
		return got.status == http.StatusServiceUnavailable && strings.Contains(got.body, "its clock is wrong")
	})
	if got := c.request(alice, "GET", loadURL+"/hello"); got.status != http.StatusOK {
		t.Errorf("a person who is logged in: %d %s", got.status, got.body)
	}
	if status, _ := c.GetHealth("/readyz"); status != http.StatusOK {
		t.Errorf("ready: %d", status)
	}
	servicetest.Eventually(t, "one warning", func() bool {
		return strings.Count(c.Log.String(), "people cannot log in through this server") == 1
	})
	offset.Store(0)
	servicetest.Eventually(t, "logins begin again", func() bool { return begin().status == http.StatusSeeOther })
}
