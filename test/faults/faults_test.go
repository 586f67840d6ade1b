// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runScenario runs a manager through the transports, creates the account's endpoints and changes
// them. It waits until the manager has converged after each.
func runScenario(w *testCluster, through ...transport) {
	w.start(through...)
	w.createInitialState()
	w.awaitConverged("after the creation")
	w.applyChanges()
	w.awaitConverged("after the changes")
}

// scenarioWrites is about how many writes the scenario has. It depends on which events come
// together, so a manager that is killed by one of the last writes may survive.
const scenarioWrites = 34

func TestManager_KilledBetweenWrites(t *testing.T) {
	t.Parallel()
	for k := range int64(scenarioWrites) {
		t.Run(fmt.Sprintf("after %d", k+1), func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t)
			kill := make(chan struct{})
			through, killed := killAt(k+1, func() { close(kill) })
			stop, _ := w.start(through)
			go func() {
				select {
				case <-kill:
				case <-t.Context().Done():
				}
				stop()
			}()
			restarted := false
			awaitConverged := func(when string) {
				w.await(when, func() error {
					if killed.Load() && !restarted {
						stop()
						w.start()
						restarted = true
					}
					return w.invariantError()
				})
				w.awaitConverged(when)
			}
			w.createInitialState()
			awaitConverged("after the creation")
			w.applyChanges()
			awaitConverged("after the changes")
			if !killed.Load() && k < scenarioWrites/2 {
				t.Errorf("the scenario has fewer than %d writes", k+1)
			}
		})
	}
}

func TestManager_FailedWrites(t *testing.T) {
	t.Parallel()
	for _, a := range []answer{
		{"500", http.StatusInternalServerError, metav1.StatusReasonInternalError},
		{"409", http.StatusConflict, metav1.StatusReasonConflict},
		{"429", http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests}, {"time-out", 0, ""},
	} {
		for _, applied := range []bool{false, true} {
			for _, every := range []int64{2, 3} {
				t.Run(fmt.Sprintf("%s for every %d., applied %v", a.name, every, applied), func(t *testing.T) {
					t.Parallel()
					runScenario(newTestCluster(t), everyNth(every, a, applied))
				})
			}
		}
	}
}

func TestManager_LateAndBrokenWatches(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprintf("stale reads, seed %d", seed), func(t *testing.T) {
			t.Parallel()
			runScenario(newTestCluster(t), watches(seed, func(body io.ReadCloser, rng *rand.Rand) io.ReadCloser {
				return &slowBody{body, rng, 80 * time.Millisecond}
			}))
		})
		t.Run(fmt.Sprintf("watches cut off, seed %d", seed), func(t *testing.T) {
			t.Parallel()
			runScenario(newTestCluster(t), watches(seed, newTruncatedBody))
		})
	}
}

func TestManager_TwoLeaders(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			w := newTestCluster(t)
			w.start()
			runScenario(w)
		})
	}
}
