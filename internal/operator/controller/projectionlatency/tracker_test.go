// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package projectionlatency

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/fairlead-dev/fairlead/test/support/must"
)

// newTracker returns a Tracker with its registry, and a function that steps its clock.
func newTracker(t *testing.T) (*Tracker, *prometheus.Registry, func(time.Duration)) {
	t.Helper()
	clock, registry := clocktesting.NewFakePassiveClock(time.Unix(0, 0)), prometheus.NewRegistry()
	tracker := New(clock)
	must.Succeed(t, tracker.Register(registry))
	return tracker, registry, func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }
}

// expect compares what is pending, and the number and the sum of what was measured.
func expect(t *testing.T, registry *prometheus.Registry, pending int, oldest float64, count int, sum float64) {
	t.Helper()
	want := fmt.Sprintf(`# HELP fairlead_operator_projections_pending New URLs that wait for their Services.
# TYPE fairlead_operator_projections_pending gauge
fairlead_operator_projections_pending %d
# HELP fairlead_operator_projection_oldest_pending_seconds `+"How long the oldest of the new URLs has waited for its "+
		`Services.
# TYPE fairlead_operator_projection_oldest_pending_seconds gauge
fairlead_operator_projection_oldest_pending_seconds %v
`, pending, oldest)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fairlead_operator_projections_pending",
		"fairlead_operator_projection_oldest_pending_seconds"); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	must.Succeed(t, err)
	for _, f := range families {
		if f.GetName() != "fairlead_operator_projection_seconds" {
			continue
		}
		if h := f.Metric[0].GetHistogram(); h.GetSampleCount() != uint64(count) || h.GetSampleSum() != sum {
			t.Errorf("measured %d of %v s together, want %d of %v s", h.GetSampleCount(), h.GetSampleSum(), count, sum)
		}
	}
}

func TestTracker_MeasuresFromFirstBegin(t *testing.T) {
	t.Parallel()
	tracker, registry, step := newTracker(t)
	expect(t, registry, 0, 0, 0, 0)
	tracker.Begin("api.demo", 80)
	step(time.Second)
	tracker.Begin("api.demo", 80)
	tracker.Begin("api.demo", 5432)
	tracker.Begin("web.demo", 80)
	step(time.Second)
	expect(t, registry, 3, 2, 0, 0)
	tracker.Done("api.demo", []int32{80, 8080})
	tracker.Done("api.demo", []int32{80})
	tracker.Done("other.demo", []int32{80})
	expect(t, registry, 2, 1, 1, 2)
	tracker.Done("api.demo", []int32{80, 5432})
	expect(t, registry, 1, 1, 2, 3)
}

func TestTracker_ForgetsWhatCannotBeProjected(t *testing.T) {
	t.Parallel()
	tracker, registry, step := newTracker(t)
	tracker.Begin("api.demo", 80)
	tracker.Begin("api.demo", 81)
	tracker.Begin("web.demo", 80)
	step(time.Minute)
	tracker.Retain("api.demo", []int32{81, 82})
	expect(t, registry, 2, 60, 0, 0)
	tracker.Drop("api.demo")
	tracker.Drop("web.demo")
	tracker.Done("web.demo", []int32{80})
	expect(t, registry, 0, 0, 0, 0)
	if len(tracker.waiting) != 0 {
		t.Errorf("kept %v", tracker.waiting)
	}
}

func TestTracker_NilMeasuresNothing(t *testing.T) {
	t.Parallel()
	var tracker *Tracker
	tracker.Begin("api.demo", 80)
	tracker.Done("api.demo", []int32{80})
	tracker.Retain("api.demo", nil)
	tracker.Drop("api.demo")
}
