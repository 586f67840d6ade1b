// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"time"

	"github.com/fairlead-dev/fairlead/internal/account"
	"github.com/fairlead-dev/fairlead/internal/goruntime/timer"
	"github.com/fairlead-dev/fairlead/internal/service/seal"
	"github.com/fairlead-dev/fairlead/internal/service/store"
)

// crowd lets calls wait on one replica after the other until all is written, among them one that
// fails, so that batches have such a call. It counts those that had.
func (h *history) crowd(random *rand.Rand) {
	session := h.start(random)
	for n := 0; h.writing.Load() > 0; n++ {
		r := h.randomReplica(random)
		release, err := r.HoldTurn(h.T.Context())
		if h.unavailable(err) {
			timer.Sleep(h.T.Context(), 10*time.Millisecond)
			continue
		}
		if n%2 == 0 {
			h.waitForCalls(r, 2) // else it is the first
		}
		failed := make(chan account.Code, 1)
		go func() { failed <- account.CodeOf(bindUnknownBackend(h, r, session)) }()
		waiting := h.waitForCalls(r, 3)
		release()
		switch code := <-failed; code {
		case account.CodeInvalid:
			if waiting > 1 {
				h.mixed.Add(1)
			}
		case account.CodeNotFound: // its replica was fenced
			session = h.start(random)
		case account.CodeUnavailable:
			h.refused.Add(1)
		default:
			h.T.Errorf("code %q of a bind with an unknown backend", code)
		}
	}
}

// withKey gives a replica the key that policies need.
func withKey(o *store.Options) { o.Key, _ = seal.New(bytes.Repeat([]byte{7}, seal.KeySize)) }

// bindUnknownBackend binds with a policy that is refused after the first statements have written.
func bindUnknownBackend(h *history, r *replica, session string) error {
	request := h.Request(session, "http://never.demo")
	unknownBackend(&request)
	_, err := r.Bind(h.T.Context(), request)
	return err
}

// waitForCalls waits a moment for so many calls to wait for the replica's turn to write, and
// returns how many do.
func (h *history) waitForCalls(r *replica, n int) int {
	ctx, cancel := context.WithTimeout(h.T.Context(), 100*time.Millisecond)
	defer cancel()
	for r.WaitingCalls() < n && timer.Sleep(ctx, time.Millisecond) {
	}
	return r.WaitingCalls()
}
