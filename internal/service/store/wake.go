// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package store

import (
	"maps"
	"slices"
	"sync"
)

// wakes are the channels of those who wait for changes of an account.
type wakes struct {
	mu   sync.Mutex
	subs map[string]map[chan struct{}]struct{}
}

// Subscribe implements account.EventLog.
func (s *Store) Subscribe(accountID string) (wake <-chan struct{}, cancel func()) {
	return s.wakes.subscribe(accountID)
}

func (w *wakes) subscribe(accountID string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subs == nil {
		w.subs = map[string]map[chan struct{}]struct{}{}
	}
	if w.subs[accountID] == nil {
		w.subs[accountID] = map[chan struct{}]struct{}{}
	}
	w.subs[accountID][ch] = struct{}{}
	return ch, func() { w.unsubscribe(accountID, ch) }
}

func (w *wakes) unsubscribe(accountID string, ch chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subs[accountID], ch)
	if len(w.subs[accountID]) == 0 {
		delete(w.subs, accountID)
	}
}

func (w *wakes) wakeAll() {
	for _, accountID := range w.accounts() {
		w.wake(accountID)
	}
}

// accounts returns the accounts whose changes are waited for.
func (w *wakes) accounts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.subs))
}

func (w *wakes) wake(accountID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.subs[accountID] {
		select {
		case ch <- struct{}{}:
		default: // it is awake already
		}
	}
}
