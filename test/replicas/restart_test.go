// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"testing"
)

// TestReplicas_RollingRestartLosesNoRequest restarts one server after the other under load.
func TestReplicas_RollingRestartLosesNoRequest(t *testing.T) {
	t.Parallel()
	r := startRig(t, 3)
	c := r.startChain(-1, -1)
	r.waitLegs(c.agent)
	l := startLoad(t, requestRate(t), append(c.targets(), c.api()...)...)
	l.wait(50)
	for i := range number(t, restartsVariable, 3) {
		r.replicas[i%3].restart()
		l.wait(20)
	}
	l.stop()
	l.requireNoFailure("rolling restarts")
}
