// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package sealedpaths

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/tunnel"
	"github.com/fairlead-dev/fairlead/test/support/must"
)

func TestMetrics_ShowEachPathAndReason(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(Metrics("fairlead_test", func() tunnel.SealedPaths {
		return tunnel.SealedPaths{Raw: 1, Mux: 2, InUse: 3, Parked: 4,
			Paused: map[tunnel.PairPause]int{tunnel.PairsCut: 5}}
	})...)
	families, err := registry.Gather()
	must.Succeed(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = value
		}
	}
	want := map[string]float64{"fairlead_test_sealed_streams_total raw": 1, "fairlead_test_sealed_streams_total mux": 2,
		"fairlead_test_raw_connections in_use": 3, "fairlead_test_raw_connections parked": 4}
	for _, why := range tunnel.PairPauses() {
		want["fairlead_test_raw_connections_paused "+string(why)] = 0
	}
	want["fairlead_test_raw_connections_paused cut"] = 5
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
