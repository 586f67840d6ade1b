// Copyright The Fairlead Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"net/http/httptest"
	"testing"
)

// TestAuthenticate_NotesOtherDevices notes the device of a request that comes from another one than
// the last, and of no other.
func TestAuthenticate_NotesOtherDevices(t *testing.T) {
	t.Parallel()
	w := newHarness(t)
	b := w.browser()
	b.login("/")
	for _, agent := range []string{"one", "one", "two", "two", "one"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("User-Agent", agent)
		if res := b.do(r); res.Code != 200 {
			t.Fatalf("status %d", res.Code)
		}
	}
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if len(w.store.devices) != 3 {
		t.Errorf("noted %q, want one, two, one", w.store.devices)
	}
}
