// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"testing"
	"time"
)

func TestPinger_RTTIsLeastOfRecent(t *testing.T) {
	t.Parallel()
	const near, far = 10 * time.Millisecond, 80 * time.Millisecond
	var s Session
	if got := s.ping.rtt(); got != 0 {
		t.Errorf("%v before anything was measured", got)
	}
	s.ping.recordRTT(0)
	if got := s.ping.rtt(); got != 1 {
		t.Errorf("%v, and no time at all would mean that it is not known", got)
	}
	for range rttSamples {
		s.ping.recordRTT(far)
	}
	s.ping.recordRTT(near)
	for i := range rttSamples - 1 {
		s.ping.recordRTT(far) // behind others' bytes
		if got := s.ping.rtt(); got != near {
			t.Fatalf("%v after %d that took longer", got, i+1)
		}
	}
	s.ping.recordRTT(far) // the route is another
	if got := s.ping.rtt(); got != far {
		t.Errorf("%v after %d that took longer", got, rttSamples)
	}
}
