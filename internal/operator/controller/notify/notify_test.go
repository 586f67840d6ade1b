// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package notify_test

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fairlead-dev/fairlead/internal/operator/controller/notify"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestSource_KeepsNamesBeforeStartAndDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		now, later := notify.New("ns", 0), notify.New("ns", 10*time.Second)
		now.NotifyAll([]string{"early", "early"})
		must.Succeed(t, now.Start(t.Context(), q))
		must.Succeed(t, later.Start(t.Context(), q))
		began := time.Now()
		later.Notify("slow")
		now.Notify("late")
		want := map[string]time.Duration{"early": 0, "late": 0, "slow": 10 * time.Second}
		for range len(want) {
			r, _ := q.Get()
			after := time.Since(began)
			if d, ok := want[r.Name]; !ok || r.Namespace != "ns" || after < d || after > d+time.Second {
				t.Errorf("got %s after %s", r, after)
			}
			delete(want, r.Name)
			q.Done(r)
		}
	})
}
