// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"math/rand/v2"
	"time"
)

// breakAll injects the faults in the order of the seed.
func (h *history) breakAll(random *rand.Rand) {
	defer h.breaking.Store(false)
	h.lossy.Store(true)
	defer h.lossy.Store(false)
	faults := []func(*rand.Rand){h.kill, h.cutDatabase}
	random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for _, fault := range faults {
		h.pause(random, time.Second)
		fault(random)
	}
	h.pause(random, time.Second)
}

// kill ends a service at once and starts another in its place.
func (h *history) kill(random *rand.Rand) {
	r := h.replicas[random.IntN(historyReplicas)]
	h.t.Logf("killing %s", r.host)
	r.kill()
	r.restart()
}

// cutDatabase cuts a service from the database for less than the others take to fence it.
func (h *history) cutDatabase(random *rand.Rand) {
	r := h.replicas[random.IntN(historyReplicas)]
	mode := []relayMode{relayRefuses, relayHolds}[random.IntN(2)]
	h.t.Logf("cutting %s from the database (%d)", r.host, mode)
	r.database.begin()
	defer r.database.over()
	r.setPostgres(mode, false)
	h.pause(random, 2*time.Second)
	r.setPostgres(relayPasses, false)
}
