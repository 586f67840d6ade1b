// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package endpointsync

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/operator/controller/projectionlatency"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

// TestSet_TellsLatencyOfNewURLs checks which URLs are new: not those of the first list, and not
// those that an object or another endpoint has.
func TestSet_TellsLatencyOfNewURLs(t *testing.T) {
	t.Parallel()
	latency, registry := projectionlatency.New(clock.RealClock{}), prometheus.NewRegistry()
	must.Succeed(t, latency.Register(registry))
	pending := func() string {
		families, err := registry.Gather()
		must.Succeed(t, err)
		for _, f := range families {
			if strings.HasSuffix(f.GetName(), "projections_pending") {
				return fmt.Sprint(f.Metric[0].GetGauge().GetValue())
			}
		}
		return "none"
	}
	admit := admitFunc(func(e *account.Endpoint) (bool, error) { return !strings.Contains(e.URL, "excluded"), nil })
	s := NewSet(SetOptions{Selector: admit, Clock: clock.RealClock{}, Latency: latency})
	s.Seed(map[string][]int32{"kept.demo": {80}})
	s.Replace(listed(agentEndpoint("ep-1", "http://api.demo")), time.Now())
	expect := func(what, want string) {
		t.Helper()
		if got := pending(); got != want {
			t.Errorf("%s: %s wait, want %s", what, got, want)
		}
	}
	expect("the first list", "0")
	for i, c := range []struct{ id, url, want string }{
		{"ep-2", "http://api.demo", "0"},      // of the same URL
		{"ep-3", "http://kept.demo", "0"},     // an object has it
		{"ep-4", "http://excluded.demo", "0"}, // by the selector
		{"ep-5", "http://a.b.demo", "0"},      // an impossible URL
		{"ep-6", "http://new.demo", "1"},
		{"ep-7", "tcp://api.demo:5432", "2"}, // another port
	} {
		s.Apply(event(account.Added, int64(i+1), agentEndpoint(c.id, c.url)))
		expect(c.url, c.want)
	}
	s.Replace(listed(agentEndpoint("ep-1", "http://api.demo"), agentEndpoint("ep-8", "http://listed.demo")), time.Now())
	expect("a later list", "3")
}
